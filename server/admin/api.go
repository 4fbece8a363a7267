package admin

import (
	"context"
	"encoding/json"
	"reflect"
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
	case t == reflect.TypeFor[config.Change](), t == reflect.TypeFor[control.Impact]():
		return name + "View"
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

// Parameters that several operations have.
type (
	TenantPath struct {
		Name string `path:"name" maxLength:"63"`
	}
	IDPath struct {
		ID string `path:"id" maxLength:"63"`
	}
	WorkerPath struct {
		Name string `path:"name" maxLength:"200"`
	}
	Precondition struct {
		IfMatch string `header:"If-Match" doc:"The ETag that the change is based on."`
	}
)
