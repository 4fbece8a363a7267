package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
)

// faultyFields are fields that an engine refuses and that the request of a prefill stage replaces or removes, by the
// path of the request.
var faultyFields = map[string][]string{
	"/v1/chat/completions": {`"max_tokens":0`, `"max_completion_tokens":0`, `"max_tokens":4,"min_tokens":5`,
		`"max_completion_tokens":4,"min_tokens":5`, `"max_tokens":4,"stream_options":{"include_usage":true}`,
		`"max_tokens":4,"stream":false,"stream_options":{"include_usage":true}`, `"max_tokens":0,"stream":true`,
		`"max_tokens":4,"min_tokens":5,"stream":true,"stream_options":{"include_usage":true}`},
	"/v1/completions": {`"max_tokens":0`, `"max_tokens":4,"min_tokens":5`, `"min_tokens":17`,
		`"max_tokens":4,"stream_options":{"include_usage":true}`, `"max_tokens":0,"stream":true`,
		`"max_tokens":0,"stream":true,"stream_options":{"include_usage":true}`},
	"/v1/responses": {`"max_output_tokens":0`, `"max_output_tokens":0,"stream":true`},
	"/v1/messages": {`"stop_sequences":[]`, `"max_tokens":0`, `"max_tokens":null`, `"stream":true`,
		`"max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":2000}`,
		`"max_tokens":2000,"stream":true,"thinking":{"budget_tokens":3000,"type":"enabled"}`},
}

// engineMessage returns the message of an engine's error.
func engineMessage(body string) string {
	var v struct{ Error struct{ Message string } }
	_ = json.Unmarshal([]byte(body), &v) // no message: no error
	return v.Error.Message
}

func TestPD6FaultyFieldsCostNoPrompt(t *testing.T) {
	for _, pool := range [][]string{{"nixl", "p0", "d0"}, {"shared", "p0", "d0"}, {"p2p_nccl", "p0", "d0"},
		{"p2p_nccl", "p0", "d0", "b0"}} {
		t.Run(strings.Join(pool, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStagesRig(t, pool[0], "", func(name string, c *engines.Config) {
					if name == "b0" {
						c.Handover = engines.HandoverShared // judges the fields
					}
				}, pool[1:]...)
				for path, list := range faultyFields {
					for _, fields := range list {
						s.wantOwnError(path, fields)
					}
				}
				s.wantNoPrompt()
			})
		})
	}
}

// wantOwnError sends a request with the fields, and verifies that the client receives an engine's own error.
func (s *stagesRig) wantOwnError(path, fields string) {
	s.t.Helper()
	input := map[string]string{"/v1/completions": `"prompt":%q`, "/v1/responses": `"input":%q`}[path]
	if input == "" {
		input = `"messages":[{"role":"user","content":%q}]`
	}
	rest := fmt.Sprintf(input, longText(1, 200)) + "," + fields + "}"
	alone := engines.New(engines.Config{Model: "fake-7b", Handover: engines.HandoverShared, Peers: new(engines.Peers)})
	own := httptest.NewRecorder()
	alone.ServeHTTP(own, httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"model":"fake-7b",`+rest)))
	want := engineMessage(own.Body.String())
	if want == "" {
		s.t.Fatalf("an engine accepts %s %s", path, fields)
	}
	if a := s.post(path, `{"model":"large",`+rest); a.status != own.Code || engineMessage(a.body) != want {
		s.t.Errorf("%s %s: %d %.300s; want %q", path, fields, a.status, a.body, want)
	}
}

// wantNoPrompt verifies that no engine has computed or kept a prompt.
func (s *stagesRig) wantNoPrompt() {
	s.t.Helper()
	s.wantClean()
	for _, w := range s.stages {
		if n := w.Stats().Written.Prompt; n != 0 {
			s.t.Errorf("%s computed %d prompt tokens", w.name, n)
		}
	}
}

func TestPD6AMinimumAboveALoweredLimitCostsNoPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStagesRig(t, "nixl\n    context: 1000\n    lower_max_tokens: true", "",
			func(_ string, c *engines.Config) { c.Handover = engines.HandoverNIXL }, "p0", "d0")
		a := s.post("/v1/chat/completions", `{"model":"large","messages":[{"role":"user","content":"`+longText(1, 200)+
			`"}],"max_tokens":2000,"min_tokens":1500}`)
		if a.status != http.StatusBadRequest || !strings.Contains(a.body, "min_tokens 1500 is above") {
			t.Errorf("%d %s", a.status, a.body)
		}
		s.wantNoPrompt()
	})
}
