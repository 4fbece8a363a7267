package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"

	"tierway/config"
	"tierway/replay"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/tierscore/report"
)

// maxAdminBody is the largest request body in bytes: a configuration with 5,000 workers fits.
const maxAdminBody = 1 << 20

// schemaName returns the name of a type in the OpenAPI document: its Go name, with the prefix Replay
// for types of package replay and the suffix View for types that would collide otherwise.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.PkgPath() == reflect.TypeFor[replay.Report]().PkgPath():
		return "Replay" + name
	case t == reflect.TypeFor[tiers.ClassifierReport]():
		return "Classification"
	case t == reflect.TypeFor[report.Report]():
		return "LabelReport"
	case t == reflect.TypeFor[config.Change](), t == reflect.TypeFor[control.Impact]():
		return name + "View"
	}
	return name
}

// newAPI returns the framework's API without operations.
func (a *Plane) newAPI(version string) huma.API {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registry.RegisterTypeAlias(reflect.TypeFor[tenants.Limits](), reflect.TypeFor[limitSettings]())
	registry.RegisterTypeAlias(reflect.TypeFor[tenants.Money](), reflect.TypeFor[amount]())
	// Terms write their own JSON.
	registry.RegisterTypeAlias(reflect.TypeFor[routing.Terms](), reflect.TypeFor[map[string]float64]())
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: json.Unmarshal}
	api := humagin.New(a.engine, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Tierway admin API", Version: version},
			Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
				cookieScheme: {Type: "apiKey", In: "cookie", Name: sessionCookie,
					Description: "The session of a browser, opened by POST /admin/session. With TLS its name begins with __Host-."},
				securityScheme: {Type: "http", Scheme: "bearer",
					Description: "An admin key: from config.yaml (admin.keys), or created by POST /admin/admins or /admin/bootstrap."},
			}},
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		Transformers:                 []huma.Transformer{improveError},
		RejectUnknownQueryParameters: true, // a mistyped dry_run must not be a real run
	})
	api.UseMiddleware(a.queryOnce)
	return api
}

// ginPath returns a path with its parameters in gin's notation.
func ginPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

const securityScheme = "admin_key"

const cookieScheme = "session"

func (a *Plane) document(context.Context, *struct{}) (*reply[json.RawMessage], error) {
	text, err := json.Marshal(a.api.OpenAPI())
	if err != nil {
		return nil, a.failed("writing the OpenAPI document", err)
	}
	return &reply[json.RawMessage]{Body: text}, nil
}

type reply[T any] struct {
	Body T
}

// tagged is an answer with a JSON body and the version of its object.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"Version of the object; send it as If-Match to change exactly this version."`
	Body T
}

type (
	// TenantPath is the tenant in the path of an operation.
	TenantPath struct {
		Name string `path:"name" maxLength:"63"`
	}
	// IDPath is the id in the path of an operation.
	IDPath struct {
		ID string `path:"id" maxLength:"63"`
	}
	// WorkerPath is the worker in the path of an operation.
	WorkerPath struct {
		Name string `path:"name" maxLength:"200"`
	}
	// Precondition is the header that makes a change fail if the object has changed since it was read.
	Precondition struct {
		IfMatch string `header:"If-Match" doc:"ETag of the version that the change is based on. If the version differs, the answer is 412. Absent: any version."`
	}
)

// PageQuery selects one page of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"Maximum number of items."`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the previous page."`
	Search string `query:"q" maxLength:"100" doc:"Only items with this text in their name."`
}

type page[T any] struct {
	Items []T     `json:"items" nullable:"false"`
	Next  *string `json:"next_cursor" doc:"Cursor of the next page; null on the last page."`
	Total int     `json:"total" doc:"Number of items on all pages."`
}

// whole returns all items as a single page.
func whole[T any](all []T) *reply[page[T]] {
	return &reply[page[T]]{Body: page[T]{Items: all, Total: len(all)}}
}

// mapped returns the results of f for all items; never nil.
func mapped[T, V any](all []T, f func(T) V) []V {
	out := make([]V, len(all))
	for i := range all {
		out[i] = f(all[i])
	}
	return out
}

// paged returns the page of all that q selects, in the order of ids. The cursor is the id of the last
// item of the previous page, so that items created or deleted between two pages neither repeat nor
// hide other items.
func paged[T any](all []T, q PageQuery, id, name func(*T) string) page[T] {
	all = slices.DeleteFunc(all, func(item T) bool { return !strings.Contains(name(&item), q.Search) })
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(id(&a), id(&b)) })
	p := page[T]{Items: []T{}, Total: len(all)}
	from := 0
	if q.Cursor != "" {
		from, _ = slices.BinarySearchFunc(all, q.Cursor, func(item T, cursor string) int {
			if id(&item) <= cursor {
				return -1
			}
			return 1
		})
	}
	to := min(from+q.Limit, len(all))
	p.Items = append(p.Items, all[from:to]...)
	if to < len(all) {
		p.Next = new(id(&all[to-1]))
	}
	return p
}
