package server

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
	"tierway/openai"
	"tierway/server/intake"
)

// TestConfigurationWarnsOfTheDataPlanesPaths: openai.OwnMethod knows every path that the data plane
// answers itself. Routes with parameters, and routes that a pool may serve, are excluded.
func TestConfigurationWarnsOfTheDataPlanesPaths(t *testing.T) {
	for _, p := range intake.Prefixes() {
		for _, rt := range intake.Routes() {
			want := rt.Method
			if strings.ContainsAny(rt.Path, ":*") || rt.Kind == intake.Optional || rt.Kind == intake.Feedback {
				want = ""
			}
			if got := openai.OwnMethod(p.Path + rt.Path); got != want {
				t.Errorf("%s %s: %q, want %q", rt.Method, p.Path+rt.Path, got, want)
			}
		}
	}
}

// TestABaseURLWithV1ServesClientsThatAppendIt: Anthropic's clients append /v1 to their base URL, and some
// of OpenAI's do.
func TestABaseURLWithV1ServesClientsThatAppendIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, engines.New(engines.Config{Model: "fake-7b"}))
		created := r.post("/v1/v1/responses", `{"model":"small","input":"hi"}`)
		id := regexp.MustCompile(`resp_\w+`).FindString(created.body)
		for _, row := range []struct{ method, path, body string }{
			{http.MethodPost, "/v1/v1/chat/completions", anyBody}, {http.MethodPost, "/v1/v1/messages", anyBody},
			{http.MethodPost, "/v1/v1/messages/count_tokens", anyBody}, {http.MethodPost, "/batch/v1/v1/messages", anyBody},
			{http.MethodPost, "/background/v1/v1/messages", anyBody},
			{http.MethodGet, "/v1/v1/responses/" + id, ""}, {http.MethodDelete, "/v1/v1/responses/" + id, ""},
			{http.MethodGet, "/v1/v1/models", ""}, {http.MethodGet, "/v1/v1/models/small", ""},
		} {
			if a := r.do(row.method, row.path, row.body); a.status != http.StatusOK {
				t.Errorf("%s %s: %d %s", row.method, row.path, a.status, a.body)
			}
		}
		if a := r.post("/v1/v1/v1/messages", anyBody); a.status != http.StatusNotFound {
			t.Errorf("three times: %d %s", a.status, a.body)
		}
	})
}
