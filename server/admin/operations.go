package admin

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
)

// operation is one operation of the admin API. Routes, permissions, the OpenAPI document and
// docs/admin-api.md are made from it.
type operation struct {
	id, route, summary string   // route is its method and path
	roles              []string // roles that may use it; none: only the bootstrap secret is needed
	preview            bool     // viewers may use it with ?dry_run=true
	endless            bool     // the answer lasts until the client disconnects
	status             int      // of success; 0: 200, or 204 of DELETE
	errors             []int    // besides the errors of every operation, and 404 of a path with a parameter
	register           func(huma.API, huma.Operation)
}

// The roles of an operation.
var (
	allRoles  = []string{store.RoleAdmin, store.RoleViewer}
	adminOnly = []string{store.RoleAdmin}
)

// Errors of operations of one kind.
var (
	reading    = []int{http.StatusNotImplemented, http.StatusServiceUnavailable}
	creating   = append([]int{http.StatusConflict}, reading...)            //nolint:gochecknoglobals // a table
	changing   = append([]int{http.StatusPreconditionFailed}, creating...) //nolint:gochecknoglobals // a table
	overriding = []int{http.StatusPreconditionFailed, http.StatusServiceUnavailable}
	reloading  = []int{http.StatusConflict, http.StatusPreconditionFailed}
	deciding   = []int{http.StatusConflict}
)

func (a *Plane) table() []operation {
	return []operation{
		{id: "list-tenants", route: "GET /admin/tenants", roles: allRoles, register: handle(a.directory.listTenants),
			summary: "List the tenants"},
		{id: "create-tenant", route: "POST /admin/tenants", roles: adminOnly, status: http.StatusCreated, errors: creating,
			register: handle(withDatabase(a.gateway, a.directory.createTenant), bodyOf[tenantCreate]),
			summary:  "Create a tenant; issue_key also creates its first key"},
		{id: "get-tenant", route: "GET /admin/tenants/{name}", roles: allRoles, register: handle(a.directory.getTenant),
			summary: "Show a tenant and its current usage"},
		{id: "update-tenant", route: "PATCH /admin/tenants/{name}", roles: adminOnly, errors: changing,
			register: handle(a.directory.updateTenant, bodyOf[TenantSettings]),
			summary:  "Change a tenant by a JSON merge patch"},
		{id: "delete-tenant", route: "DELETE /admin/tenants/{name}", roles: adminOnly, errors: changing,
			register: handle(a.directory.deleteTenant), summary: "Delete a tenant and its keys; its recorded usage stays"},
		{id: "purge-answers", route: "POST /admin/tenants/{name}/purge-answers", roles: adminOnly,
			errors: []int{http.StatusServiceUnavailable}, register: handle(a.directory.purgeAnswers),
			summary: "Remove the answers that the response cache keeps for a tenant"},
		{id: "list-keys", route: "GET /admin/tenants/{name}/keys", roles: allRoles, register: handle(a.directory.listKeys),
			summary: "List a tenant's keys, including expired and revoked ones"},
		{id: "create-key", route: "POST /admin/tenants/{name}/keys", roles: adminOnly, status: http.StatusCreated,
			errors:   creating,
			register: handle(withDatabase(a.gateway, a.directory.createKey), bodyOf[KeySettings]),
			summary:  "Create a key; the answer shows the secret once"},
		{id: "get-key", route: "GET /admin/keys/{id}", roles: allRoles, register: handle(a.directory.getKey),
			summary: "Show a key without its secret"},
		{id: "update-key", route: "PATCH /admin/keys/{id}", roles: adminOnly, errors: changing,
			register: handle(a.directory.updateKey, bodyOf[KeySettings]),
			summary:  "Change a key's name, rights, limits or expiry by a JSON merge patch"},
		{id: "rotate-key", route: "POST /admin/keys/{id}/rotate", roles: adminOnly, status: http.StatusCreated,
			errors:   changing,
			register: handle(a.directory.rotateKey), summary: "Replace a key with a new one; both work during grace_s"},
		{id: "revoke-key", route: "POST /admin/keys/{id}/revoke", roles: adminOnly, errors: changing,
			register: handle(a.directory.revokeKey), summary: "Revoke a key at once and permanently"},
		{id: "list-admins", route: "GET /admin/admins", roles: adminOnly, register: handle(a.keys.listAdmins),
			summary: "List the admin keys"},
		{id: "create-admin", route: "POST /admin/admins", roles: adminOnly, status: http.StatusCreated, errors: creating,
			register: handle(withDatabase(a.gateway, a.keys.createAdmin)),
			summary:  "Create an admin key; the answer shows the secret once"},
		{id: "delete-admin", route: "DELETE /admin/admins/{id}", roles: adminOnly,
			errors:   []int{http.StatusConflict, http.StatusServiceUnavailable},
			register: handle(a.keys.deleteAdmin), summary: "Delete an admin key"},
		{id: "bootstrap", route: "POST /admin/bootstrap", status: http.StatusCreated, errors: creating,
			register: handle(withDatabase(a.gateway, a.keys.bootstrap)),
			summary:  "Create the first admin key with the one-time secret that the gateway announces at its start"},
		{id: "get-metrics", route: "GET /admin/metrics", roles: allRoles, register: handle(a.metrics.getMetrics),
			summary: "Show the history of the gateway's own metrics in columns, for charts"},
		{id: "create-session", route: "POST /admin/session", status: http.StatusCreated,
			register: handle(a.login.createSession),
			summary:  "Open a session for a browser with an admin key or a login code; the answer sets a cookie"},
		{id: "get-session", route: "GET /admin/session", roles: allRoles, register: handle(a.login.getSession),
			summary: "Show the name, role and end of the current session"},
		{id: "delete-session", route: "DELETE /admin/session", roles: allRoles, register: handle(a.login.deleteSession),
			summary: "End the current session"},
		{id: "list-audit", route: "GET /admin/audit", roles: allRoles, errors: reading,
			register: handle(withDatabase(a.gateway, a.history.listAudit), exports[auditPage](ndjson)),
			summary:  "List changes with their authors, newest first; Accept: application/x-ndjson exports all"},
		{id: "verify-audit", route: "POST /admin/audit/verify", roles: allRoles, errors: append(deciding, reading...),
			register: handle(withDatabase(a.gateway, a.history.verifyAudit)),
			summary:  "Check that no entry of the audit log was changed, inserted or removed"},
		{id: "get-usage", route: "GET /admin/tenants/{name}/usage", roles: allRoles, errors: reading,
			register: handle(withDatabase(a.gateway, a.history.getUsage), exports[usageView](csvType)),
			summary:  "Show a tenant's usage by UTC day; Accept: text/csv exports it"},
		{id: "list-workers", route: "GET /admin/workers", roles: allRoles,
			register: handle(a.fleet.listWorkers),
			summary:  "List the workers with state, load, latencies and share, and the learned values of their pools"},
		{id: "get-worker", route: "GET /admin/workers/{name}", roles: allRoles, register: handle(a.fleet.getWorker),
			summary: "Show a worker and the progress of its drain"},
		{id: "list-backends", route: "GET /admin/backends", roles: allRoles, register: handle(a.fleet.listWorkers),
			summary: "Alias of /admin/workers"},
		{id: "get-backend", route: "GET /admin/backends/{name}", roles: allRoles, register: handle(a.fleet.getWorker),
			summary: "Alias of /admin/workers/{name}"},
		{id: "weigh-worker", route: "PATCH /admin/workers/{name}", roles: adminOnly, preview: true,
			errors:   []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusServiceUnavailable},
			register: handle(a.fleet.weighWorker), summary: "Set a worker's weight for ttl_s seconds, or until null resets it"},
		{id: "drain-worker", route: "POST /admin/workers/{name}/drain", roles: adminOnly, status: http.StatusAccepted,
			errors:   overriding,
			register: handle(a.fleet.drainWorker),
			summary:  "Drain a worker: it receives no new requests and finishes the current ones"},
		{id: "undrain-worker", route: "POST /admin/workers/{name}/undrain", roles: adminOnly, errors: overriding,
			register: handle(a.fleet.undrainWorker), summary: "End a worker's drain"},
		{id: "list-overrides", route: "GET /admin/overrides", roles: allRoles,
			register: handle(a.fleet.listOverrides), summary: "List the live overrides with their authors and times"},
		{id: "clear-override", route: "DELETE /admin/overrides/{worker}", roles: adminOnly, errors: overriding,
			register: handle(a.fleet.deleteOverride),
			summary:  "Remove a worker's live override; the configuration applies again"},
		{id: "list-tiers", route: "GET /admin/tiers", roles: allRoles, register: handle(a.fleet.listTiers),
			summary: "List the tiers and pools"},
		{id: "get-tier-report", route: "GET /admin/tiers/report", roles: allRoles,
			errors: []int{http.StatusServiceUnavailable}, register: handle(a.history.getTierReport),
			summary: "Show the share of each tier, what the tiers have saved, and the quality and cost of other shares by " +
				"the labels so far"},
		{id: "get-rules", route: "GET /admin/rules", roles: allRoles, register: handle(a.fleet.getRules),
			summary: "Show the classifier in force: its rules in order, with their requests since the gateway started, " +
				"and the aliases"},
		{id: "list-queues", route: "GET /admin/queues", roles: allRoles,
			register: handle(a.fleet.listQueues),
			summary:  "List the queues: by class, how many requests wait, for how long, and how earlier waits ended"},
		{id: "get-queue", route: "GET /admin/queues/{tier}", roles: allRoles,
			register: handle(a.fleet.getQueue),
			summary:  "Show the queue of a tier or pool and its waiting requests, in dispatch order"},
		{id: "list-hooks", route: "GET /admin/hooks", roles: allRoles, register: handle(a.fleet.listHooks),
			summary: "List the hooks with the state of their breakers, in the order in which they are called"},
		{id: "list-decisions", route: "GET /admin/decisions", roles: allRoles,
			register: handle(a.records.listDecisions, exports[decisionPage](ndjson)), summary: "List the records of the last " +
				"requests, including rejected ones, newest first; Accept: application/x-ndjson exports whole records, oldest " +
				"first, as replay reads them"},
		{id: "get-decision", route: "GET /admin/decisions/{id}", roles: allRoles,
			register: handle(a.records.getDecision),
			summary:  "Show a request's whole record by its id, with the score of each candidate; the newest of several with one id"},
		{id: "stream-decisions", route: "GET /admin/decisions/stream", roles: allRoles, endless: true,
			errors:   []int{http.StatusServiceUnavailable},
			register: handle(a.records.streamDecisions, streams),
			summary:  "Stream records as server-sent events; last_event_id or Last-Event-ID resumes"},
		{id: "explain-route", route: "POST /admin/route/explain", roles: allRoles,
			errors:   []int{http.StatusNotFound, http.StatusConflict},
			register: handle(a.route.explainRoute), summary: "Explain where a request would be routed now, or under a draft " +
				"configuration, without sending it; or explain a past request by its id. The body is at most 1 MiB: explain a " +
				"longer request by its id"},
		{id: "replay-route", route: "POST /admin/route/replay", roles: allRoles, errors: deciding,
			register: handle(a.route.replayRoute), summary: "Repeat the decisions of the last requests under a draft " +
				"configuration: requests that change tier or worker, and estimates of hit rate, regret and cost. Without a " +
				"draft: whether the configuration in force reproduces them"},
		{id: "get-config", route: "GET /admin/config", roles: allRoles, register: handle(a.configs.getConfig),
			summary: "Show the configuration in force, without secrets"},
		{id: "get-config-file", route: "GET /admin/config/file", roles: allRoles, errors: deciding,
			register: handle(a.configs.getConfigFile),
			summary:  "Show the text of the configuration file on disk, without secrets"},
		{id: "validate-config", route: "POST /admin/config/validate", roles: allRoles, errors: deciding,
			register: handle(a.configs.validateConfig), summary: "Check the file on disk, or a text in the body (role admin)"},
		{id: "reload", route: "POST /admin/reload", roles: adminOnly, preview: true, errors: reloading,
			register: handle(a.configs.reloadConfig),
			summary:  "Reload the configuration: all of it, or nothing if it has an error"},
		{id: "get-status", route: "GET /admin/status", roles: allRoles,
			register: handle(a.configs.getStatus), summary: "Show version, uptime, and the state of database, Redis and ledger"},
		{id: "get-overview", route: "GET /admin/overview", roles: allRoles, register: handle(a.overview.getOverview),
			summary: "Show the state of the gateway: load, tiers, stores, and what needs attention"},
		{id: "stream-events", route: "GET /admin/stream", roles: allRoles, endless: true,
			errors:   []int{http.StatusServiceUnavailable},
			register: handle(a.events.streamEvents, eventsStream),
			summary:  "Stream the overview, the workers and the records as server-sent events, by topics"},
		{id: "get-openapi", route: "GET /admin/openapi.json", roles: allRoles, register: handle(a.document),
			summary: "This API as an OpenAPI document"},
	}
}

// action returns the name of the operation in the audit log, such as tenant.update.
func (op *operation) action() string {
	if op.id == "reload" {
		return "config.reload" // as Control.Reload writes it
	}
	verb, noun, ok := strings.Cut(op.id, "-")
	if !ok {
		return op.id
	}
	return noun + "." + verb
}

// describe returns the description of the operation without its input and answer.
func (op operation) describe() huma.Operation {
	method, path, _ := strings.Cut(op.route, " ")
	o := huma.Operation{OperationID: op.id, Method: method, Path: path, Summary: op.summary,
		DefaultStatus: op.status, MaxBodyBytes: maxAdminBody,
		BodyReadTimeout: 2 * adminPatience, // this deadline ends the whole request, so it exceeds the request's own limit
		Extensions:      map[string]any{"x-roles": append([]string{}, op.roles...)}}
	errors := append([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
		http.StatusTooManyRequests}, op.errors...)
	if len(op.roles) > 0 {
		o.Security = []map[string][]string{{securityScheme: {}}, {cookieScheme: {}}}
	}
	if op.preview {
		o.Extensions["x-dry-run-roles"] = allRoles
	}
	if strings.Contains(path, "{") {
		errors = append(errors, http.StatusNotFound)
	}
	switch method {
	case http.MethodGet:
	case http.MethodDelete:
		o.DefaultStatus = http.StatusNoContent
	default:
		errors = append(errors, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType)
	}
	slices.Sort(errors)
	o.Errors = slices.Compact(errors)
	return o
}

type handler[I, O any] func(context.Context, *I) (*O, error)

// addition adds to the description of an operation what its types do not express.
type addition func(huma.Registry, *huma.Operation)

// handle returns a function that registers an operation with handler h.
func handle[I, O any](h handler[I, O], describe ...addition) func(huma.API, huma.Operation) {
	return func(api huma.API, op huma.Operation) {
		for _, d := range describe {
			d(api.OpenAPI().Components.Schemas, &op)
		}
		huma.Register(api, op, h)
	}
}

// withDatabase returns a handler that calls h if a database is configured, and answers 501 otherwise.
func withDatabase[I, O any](a *gateway, h handler[I, O]) handler[I, O] {
	return func(ctx context.Context, in *I) (*O, error) {
		if a.control.Stores.SQL == nil {
			return nil, huma.Error501NotImplemented("This gateway has no database. Set store.sql in its configuration, for " +
				"example to sqlite://tierway.db or postgres://…, and restart it; or define auth.keys and admin.keys in the " +
				"configuration.")
		}
		return h(ctx, in)
	}
}

// keepOnly removes all properties of s except the named ones.
func keepOnly(s *huma.Schema, names ...string) *huma.Schema {
	maps.DeleteFunc(s.Properties, func(name string, _ *huma.Schema) bool { return !slices.Contains(names, name) })
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { return !slices.Contains(names, name) })
	return s
}

// bodyOf makes the framework check the body of an operation against the schema of T and pass it to
// the handler unparsed. The handler can thus distinguish absent fields from null.
func bodyOf[T any](registry huma.Registry, op *huma.Operation) {
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: registry.Schema(reflect.TypeFor[T](), true, "")},
	}}
}
