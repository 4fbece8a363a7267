// Package admin is the admin API of the gateway, under /admin/. Operators read and change tenants,
// keys and admin keys, inspect and drain workers, read queues, usage and the records of requests,
// check and reload the configuration, and have a request explained or replayed. The state itself is in
// package control.
//
// New builds a Plane from Options. Plane.Handler serves requests; Plane.Operations and Plane.OpenAPI
// describe the API for docs/admin-api.md and for GET /admin/openapi.json.
//
// # A request
//
// The guard handles each request first. It requires an admin key with a role that may use the operation,
// and rejects requests that a page of another site sent. It writes each rejection to the log and the
// audit log, at most once per second and address. Only POST /admin/bootstrap works without a key: it
// takes the one-time secret that a gateway without admins prints at its start.
//
// The handler then has 10 s. Exports and streams bound their own time. All handlers are safe for
// concurrent use.
//
// # Adding an operation
//
// The table in operations.go is the only list of operations: path, roles, errors and summary. The
// routes, the permission checks and the OpenAPI document are all made from it. Struct tags add the
// descriptions of parameters and fields. A handler is a method of the type for its resource:
//
//	tenantAPI    tenants and their keys        workerAPI    workers, overrides, tiers, queues
//	adminAPI     admin keys                    decisionAPI  records of requests
//	historyAPI   audit log and usage           routeAPI     explanations and replays
//	configAPI    configuration and status
//
// # Changes
//
// Objects have a version, which answers carry as ETag. A change with If-Match fails with 412 if the
// version differs; without If-Match it is repeated on the new version. Tenants and keys of config.yaml
// are read-only here. Errors have the format of RFC 9457 and name the way out.
package admin
