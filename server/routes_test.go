package server

import (
	"strings"
	"testing"

	"tierway/openai"
)

// TestTheConfigurationKnowsTheDataPlanesPaths: a path of a pool that the data plane
// answers itself is warned of. A route with a parameter or that a pool may take with
// its paths is none.
func TestTheConfigurationKnowsTheDataPlanesPaths(t *testing.T) {
	for _, p := range prefixes() {
		for _, rt := range routes() {
			want := rt.method
			if strings.ContainsAny(rt.path, ":*") || rt.kind == beside {
				want = ""
			}
			if got := openai.OwnMethod(p.path + rt.path); got != want {
				t.Errorf("%s %s: %q, want %q", rt.method, p.path+rt.path, got, want)
			}
		}
	}
}
