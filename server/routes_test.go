package server

import (
	"strings"
	"testing"

	"tierway/openai"
	"tierway/server/intake"
)

// TestConfigurationWarnsOfTheDataPlanesPaths: openai.OwnMethod knows every path that the data plane
// answers itself. Routes with parameters, and routes that a pool may override, are excluded.
func TestConfigurationWarnsOfTheDataPlanesPaths(t *testing.T) {
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
