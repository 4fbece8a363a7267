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
)

// maxAdminBody bounds what the admin API reads: a configuration of five thousand
// workers fits.
const maxAdminBody = 1 << 20

// schemaName names a type in the document: as in Go, with the word Replay before the
// names of its package, which others have too, and View behind what has no view of its own.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.PkgPath() == reflect.TypeFor[replay.Report]().PkgPath():
		return "Replay" + name
	case t == reflect.TypeFor[tiers.Explanation](): // decisions has an Explanation too
		return "Classification"
	case t == reflect.TypeFor[config.Change](), t == reflect.TypeFor[control.Impact]():
		return name + "View"
	}
	return name
}

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

func ginPath(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

const securityScheme = "admin_key"

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

type tagged[T any] struct {
	ETag string `header:"ETag" doc:"The version, for If-Match."`
	Body T
}

type (
	// TenantPath is the path's tenant, as several operations have it.
	TenantPath struct {
		Name string `path:"name" maxLength:"63"`
	}
	// IDPath is the path's id.
	IDPath struct {
		ID string `path:"id" maxLength:"63"`
	}
	// WorkerPath is the path's worker.
	WorkerPath struct {
		Name string `path:"name" maxLength:"200"`
	}
	// Precondition is the header by which a change is refused if another one came before.
	Precondition struct {
		IfMatch string `header:"If-Match" doc:"The ETag that the change is based on."`
	}
)

// PageQuery chooses a part of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"At most so many items."`
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before."`
	Search string `query:"q" maxLength:"100" doc:"Only items whose name has this text."`
}

type page[T any] struct {
	Items []T     `json:"items" nullable:"false"`
	Next  *string `json:"next_cursor" doc:"Ask for the next page with ?cursor; null: this is the last."`
	Total int     `json:"total" doc:"Items on all pages."`
}

// whole returns a list that is one page.
func whole[T any](all []T) *reply[page[T]] {
	return &reply[page[T]]{Body: page[T]{Items: all, Total: len(all)}}
}

// mapped returns f of each item; never nil.
func mapped[T, V any](all []T, f func(T) V) []V {
	out := make([]V, len(all))
	for i := range all {
		out[i] = f(all[i])
	}
	return out
}

// paged returns the part of all that q asks for, in the order of their ids. A
// cursor is the id of the last item that was seen, so that items which come and
// go between two pages neither repeat nor hide others.
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
