// Package server assembles a gateway and serves it.
//
// New builds a Server from Options: the state of package control, the data plane of package proxy and
// the admin API of package admin. The Server owns what lies before the planes: listeners, TLS, checks of
// request framing, CORS, health endpoints and the drain at shutdown.
//
// Call New, then Listen, then Run to serve. When the context of Run ends, the gateway drains: it accepts
// requests for drain.accept_grace while /readyz reports not ready, then closes its listeners. Requests in
// flight may finish within drain.timeout; the remaining ones are cut.
//
// The packages below it depend on each other in one direction: admin and proxy use control,
// proxy also uses intake, and control uses none of them. The order of the stages of a request is in package proxy.
package server
