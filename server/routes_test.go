package server

import (
	"strings"
	"testing"

	"tierway/openai"
	"tierway/server/intake"
)

// TestTheConfigurationKnowsTheDataPlanesPaths: a path of a pool that the data plane
// answers itself is warned of. A route with a parameter or that a pool may take with
// its paths is none.
func TestTheConfigurationKnowsTheDataPlanesPaths(t *testing.T) {
	for _, p := range intake.Prefixes() {
		for _, rt := range intake.Routes() {
			want := rt.Method
			if strings.ContainsAny(rt.Path, ":*") || rt.Kind == intake.Optional {
				want = ""
			}
			if got := openai.OwnMethod(p.Path + rt.Path); got != want {
				t.Errorf("%s %s: %q, want %q", rt.Method, p.Path+rt.Path, got, want)
			}
		}
	}
}
