// Package hooks asks external services about requests before they are routed: a service can allow, reject or change a
// request. Two kinds of services are supported:
//
//   - http receives the body as a POST and answers with an action in JSON, in the form of vLLM Router's fork;
//   - ext_proc is Envoy's external processing (envoy.service.ext_proc.v3) over gRPC.
//
// A Chain has the hooks of one configuration in their order. Chain.Update keeps the hooks that did not change, with
// their connections and breakers. Each Hook has a breaker and at most MaxInflight calls at a time. A call that is not
// made or fails returns a Reply with the reason; the caller applies Config.OnError and Config.OnReject.
//
// Only a Reply's Reason and Body may repeat text of the request. All other fields can be logged.
package hooks
