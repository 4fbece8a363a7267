package admin

import (
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

func TestDocumentHasExactlyTheRoutes(t *testing.T) {
	r := newPlaneRig(t)
	routed, all := map[string]bool{}, map[string]bool{}
	for path, item := range r.plane.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put,
			"PATCH": item.Patch, "DELETE": item.Delete} {
			if op != nil {
				all[method+" "+path] = true
			}
		}
	}
	for _, rt := range r.plane.engine.Routes() {
		if strings.HasPrefix(rt.Path, "/admin") {
			routed[rt.Method+" "+rt.Path] = true
		}
	}
	for name := range all {
		if !routed[ginPath(name)] {
			t.Errorf("%s is documented and not routed", name)
		}
		delete(routed, ginPath(name))
		if path, isGet := strings.CutPrefix(name, "GET "); isGet { // every GET route serves HEAD
			delete(routed, "HEAD "+ginPath(path))
		}
	}
	for name := range routed {
		t.Errorf("%s is routed and not documented", name)
	}
	if len(all) != len(r.plane.Operations()) {
		t.Errorf("%d operations of %d are documented", len(all), len(r.plane.Operations()))
	}
}
