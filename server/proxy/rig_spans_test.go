package proxy

import (
	"slices"
	"testing"

	"tierway/decisions"
	"tierway/telemetry"
)

// TestSpansOfAPassedPathHaveNoRoute: clients choose these paths, so their number is unlimited.
func TestSpansOfAPassedPathHaveNoRoute(t *testing.T) {
	r := newProxyRig(t, "auth: { required: false }\npools: [ { name: raw, paths: [\"/raw/*\"], workers: [ %s ] } ]\n",
		fakeAnswers())
	r.post(r.url+"/raw/x", "{}")
	var names []string
	spans, _ := decisions.Trace{Decision: r.lastRecord()}.Spans(nil)
	for _, s := range spans {
		if names = append(names, s.Name); routeOf(s) != "" {
			t.Errorf("%s has the route %q", s.Name, routeOf(s))
		}
	}
	if want := []string{"POST", "route", "POST"}; !slices.Equal(names, want) {
		t.Errorf("the spans are %q, want %q", names, want)
	}
}

// routeOf returns the http.route of a span.
func routeOf(s telemetry.Span) string {
	for _, a := range s.Attributes {
		if a.Key == "http.route" {
			return a.Value.AsString()
		}
	}
	return ""
}
