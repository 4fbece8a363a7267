// Package admin is the admin API of the gateway, under /admin/. Operators read and change tenants,
// keys and admin keys, inspect and drain workers, read queues, usage and the records of requests,
// check and reload the configuration, and have a request explained or replayed.
//
// New builds a Plane from Options. Plane.Handler serves requests; Plane.Operations and Plane.OpenAPI
// describe the API for docs/admin-api.md and for GET /admin/openapi.json.
//
// The table in operations.go is the only list of operations: path, roles, errors and summary. The
// routes, the permission checks and the OpenAPI document are all made from it, and struct tags add
// the descriptions of parameters and fields.
//
// Each request passes the guard first. It requires an admin key whose role may use the operation,
// rejects requests that a page of another site sent, and logs each rejection, at most once per second
// and address, in the log and the audit log. Only POST /admin/bootstrap works without a key: it takes
// the one-time secret that a gateway without admins prints at its start.
//
// Objects have a version, which answers carry as ETag. A change with If-Match fails with 412 if the
// version differs; without If-Match it is repeated on the new version. Tenants and keys of config.yaml
// are read-only here. Errors have the format of RFC 9457 and say what to do next.
//
// A request has 10 s, except exports and streams, which bound their own time. All handlers are safe
// for concurrent use; the state of the gateway itself is in package control.
package admin
