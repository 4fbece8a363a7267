package admin

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"tierway/replay"
	"tierway/store"
	"tierway/tenants"
)

// Plane is the admin API with what it remembers between requests.
type Plane struct {
	Options
	engine  *gin.Engine
	api     huma.API
	started time.Time
	cross   http.CrossOriginProtection // refuses what a page of another site makes a browser send
	routes  map[string]*operation      // by method and gin's path; written once, before serving

	changing  sync.Mutex   // one change of tenants and keys at a time
	replaying sync.Mutex   // one replay at a time
	drafting  sync.Mutex   // one explanation under a draft at a time
	streams   atomic.Int32 // of operators who follow decisions
	exports   atomic.Int32 // of decisions that are being read

	mu        sync.Mutex            // guards the rest
	drains    map[string]drainBegun // by worker, those that were begun here
	refused   map[string]refusals   // by client address
	elsewhere int                   // refusals that were not written down, of addresses that are not in refused
}

// operation is one operation of the admin API. The list in operations is the
// whole of it: routes, roles, the OpenAPI document and docs/admin-api.md are made
// from it.
type operation struct {
	Id, Method, Path string
	summary          string
	roles            []string // who may; none: whoever has the bootstrap secret
	preview          bool     // a viewer may with ?dry_run=true
	Endless          bool     // its answer goes on until its client leaves: it bounds its own time
	status           int      // of success; 0: 200
	errors           []int    // besides those that every operation has
	register         func(a *Plane, op huma.Operation)
}

// action names the operation as the audit log does: tenant.update.
func (op *operation) action() string {
	verb, noun, ok := strings.Cut(op.Id, "-")
	if !ok {
		return op.Id
	}
	return noun + "." + verb
}

// Who may use an operation.
var (
	anybody = []string{store.RoleAdmin, store.RoleViewer}
	admins  = []string{store.RoleAdmin}
)

// maxAdminBody bounds what the admin API reads: a configuration of five thousand
// workers fits.
const maxAdminBody = 1 << 20

// Operations is the admin API.
func Operations() []operation {
	return slices.Concat(tenantOperations(), keyOperations(), adminOperations(), workerOperations(), queueOperations(), decisionOperations(), explainOperations(), replayOperations(), configOperations(), []operation{
		{Id: "get-openapi", Method: http.MethodGet, Path: "/admin/openapi.json", summary: "This API as an OpenAPI document", roles: anybody,
			register: func(a *Plane, op huma.Operation) { handle(a, op, a.document) }},
	})
}

// handle registers an operation's handler.
func handle[I, O any](a *Plane, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	huma.Register(a.api, op, h)
}

// schemaName names a type in the document: as in Go, with the word Replay before the
// names of its package, which others have too.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[replay.Report]().PkgPath() {
		return "Replay" + name
	}
	return name
}

// register puts all operations on the engine.
func (a *Plane) register() {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[tenants.Limits](), reflect.TypeFor[LimitSettings]())
	registry.RegisterTypeAlias(reflect.TypeFor[tenants.Money](), reflect.TypeFor[amount]())
	decisionTypes(registry)
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: json.Unmarshal}
	a.api = humagin.New(a.engine, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Tierway admin API", Version: a.Version},
			Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
				securityScheme: {Type: "http", Scheme: "bearer", Description: "An admin key: of config.yaml (admin.keys), or made by POST /admin/admins or /admin/bootstrap."},
			}},
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		Transformers:                 []huma.Transformer{waysOut, hush},
		RejectUnknownQueryParameters: true, // a mistyped dry_run must not be a real run
	})
	a.api.UseMiddleware(a.queryOnce)
	a.routes = map[string]*operation{}
	for _, op := range Operations() {
		a.routes[op.Method+" "+ginPath(op.Path)] = &op
		op.register(a, op.describe())
	}
}

// ginPath returns a path of the document as gin writes it.
func ginPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// securityScheme is the name of the admin keys' scheme in the document.
const securityScheme = "admin_key"

// describe returns the operation as huma takes it.
func (op operation) describe() huma.Operation {
	o := huma.Operation{OperationID: op.Id, Method: op.Method, Path: op.Path, Summary: op.summary,
		DefaultStatus: op.status, MaxBodyBytes: maxAdminBody,
		BodyReadTimeout: 2 * adminPatience, // its deadline ends the whole request: beyond what that may take
		Extensions:      map[string]any{"x-roles": append([]string{}, op.roles...)}}
	declared := map[int]bool{http.StatusForbidden: true, http.StatusTooManyRequests: true, http.StatusUnauthorized: true, http.StatusUnprocessableEntity: true}
	if len(op.roles) > 0 {
		o.Security = []map[string][]string{{securityScheme: {}}}
	}
	if op.preview {
		o.Extensions["x-dry-run-roles"] = anybody
	}
	if op.Method != http.MethodGet && op.Method != http.MethodDelete {
		for _, status := range []int{http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType} {
			declared[status] = true
		}
	}
	for _, status := range op.errors {
		declared[status] = true
	}
	o.Errors = slices.Sorted(maps.Keys(declared))
	return o
}

// document answers with the OpenAPI document.
func (a *Plane) document(context.Context, *struct{}) (*reply[json.RawMessage], error) {
	text, err := json.Marshal(a.api.OpenAPI())
	if err != nil {
		return nil, a.failed("writing the OpenAPI document", err)
	}
	return &reply[json.RawMessage]{Body: text}, nil
}

// reply is an answer with a body.
type reply[T any] struct {
	Body T
}

// tagged is an answer with a body that has a version.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"The version, for If-Match."`
	Body T
}

// bodyOf makes the body of an operation be checked as a T and given to its
// handler as it was sent, so that what was left out and what is null are told
// apart.
func bodyOf[T any](a *Plane, op huma.Operation) huma.Operation {
	registry := a.api.OpenAPI().Components.Schemas
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: registry.Schema(reflect.TypeFor[T](), true, "")},
	}}
	return op
}
