package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"tierway/replay"
	"tierway/routing"
	"tierway/store"
	"tierway/tenants"
	"tierway/tiers"
)

// operation is one operation of the admin API. Routes, roles, the OpenAPI document and
// docs/admin-api.md are made from it.
type operation struct {
	id, route, summary string   // route is its method and path
	roles              []string // who may; none: whoever has the bootstrap secret
	preview            bool     // a viewer may with ?dry_run=true
	endless            bool     // its answer goes on until its client leaves: it bounds its own time
	status             int      // of success; 0: 200, or 204 of DELETE
	errors             []int    // besides those that every operation has, and 404 where a path names something
	register           func(huma.API, huma.Operation)
}

// action names the operation as the audit log does: tenant.update.
func (op *operation) action() string {
	verb, noun, ok := strings.Cut(op.id, "-")
	if !ok {
		return op.id
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

// The errors that operations of one kind have.
var (
	reading    = []int{http.StatusNotImplemented, http.StatusServiceUnavailable}
	creating   = append([]int{http.StatusConflict}, reading...)
	changing   = append([]int{http.StatusPreconditionFailed}, creating...)
	overriding = []int{http.StatusPreconditionFailed, http.StatusServiceUnavailable}
)

// handler answers the requests of an operation.
type handler[I, O any] func(context.Context, *I) (*O, error)

// addition adds to the description of an operation.
type addition func(huma.Registry, *huma.Operation)

// handle returns how the operation of a handler is registered.
func handle[I, O any](h handler[I, O], describe ...addition) func(huma.API, huma.Operation) {
	return func(api huma.API, op huma.Operation) {
		for _, d := range describe {
			d(api.OpenAPI().Components.Schemas, &op)
		}
		huma.Register(api, op, h)
	}
}

// withDatabase returns a handler that is called only where there is a database.
func withDatabase[I, O any](g gateway, h handler[I, O]) handler[I, O] {
	return func(ctx context.Context, in *I) (*O, error) {
		if g.control.Stores.SQL == nil {
			return nil, huma.Error501NotImplemented("This gateway has no database. Set store.sql in its configuration, such as sqlite://tierway.db or postgres://…, and start it again; or write auth.keys and admin.keys into the configuration.")
		}
		return h(ctx, in)
	}
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

// newAPI returns the API on the plane's engine, without operations.
func (a *Plane) newAPI(version string) huma.API {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[tenants.Limits](), reflect.TypeFor[limitSettings]())
	registry.RegisterTypeAlias(reflect.TypeFor[tenants.Money](), reflect.TypeFor[amount]())
	// Terms write their own JSON.
	registry.RegisterTypeAlias(reflect.TypeFor[routing.Terms](), reflect.TypeFor[map[string]float64]())
	// Two types of one name cannot stand in the document.
	registry.RegisterTypeAlias(reflect.TypeFor[tiers.Explanation](), reflect.TypeFor[classification]())
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: json.Unmarshal}
	api := humagin.New(a.engine, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Tierway admin API", Version: version},
			Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
				securityScheme: {Type: "http", Scheme: "bearer", Description: "An admin key: of config.yaml (admin.keys), or made by POST /admin/admins or /admin/bootstrap."},
			}},
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		Transformers:                 []huma.Transformer{mend},
		RejectUnknownQueryParameters: true, // a mistyped dry_run must not be a real run
	})
	api.UseMiddleware(a.queryOnce)
	return api
}

// ginPath returns a path of the document as gin writes it.
func ginPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// securityScheme is the name of the admin keys' scheme in the document.
const securityScheme = "admin_key"

// describe returns the operation as huma takes it.
func (op operation) describe() huma.Operation {
	method, path, _ := strings.Cut(op.route, " ")
	o := huma.Operation{OperationID: op.id, Method: method, Path: path, Summary: op.summary,
		DefaultStatus: op.status, MaxBodyBytes: maxAdminBody,
		BodyReadTimeout: 2 * adminPatience, // its deadline ends the whole request: beyond what that may take
		Extensions:      map[string]any{"x-roles": append([]string{}, op.roles...)}}
	errors := append([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity,
		http.StatusTooManyRequests}, op.errors...)
	if len(op.roles) > 0 {
		o.Security = []map[string][]string{{securityScheme: {}}}
	}
	if op.preview {
		o.Extensions["x-dry-run-roles"] = anybody
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
func bodyOf[T any](registry huma.Registry, op *huma.Operation) {
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: registry.Schema(reflect.TypeFor[T](), true, "")},
	}}
}
