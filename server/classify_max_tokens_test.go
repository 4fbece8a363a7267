package server

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
)

// One function as each dialect offers it.
const (
	chatTool     = `,"tools":[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}]`
	responseTool = `,"tools":[{"type":"function","name":"read","parameters":{"type":"object"}}]`
	messageTool  = `,"tools":[{"name":"read","input_schema":{"type":"object"}}]`
)

// newWideRig is a rig of three tiers with contexts that are large enough for agents.
func newWideRig(t *testing.T, more string) *rig {
	t.Helper()
	var list strings.Builder
	for _, tier := range []string{"small", "medium", "large"} {
		w := newServer(t, engines.New(engines.Config{Name: tier, AnyModel: true, Context: 1 << 18, Seed: 1}))
		fmt.Fprintf(&list, "  - { name: %s, model: %s-model, workers: [ { name: %s-0, url: %q } ] }\n", tier, tier, tier,
			w.URL)
	}
	return newRig(t, "auth: { required: false }\nhealth: { path: \"off\" }\ntiers:\n"+list.String()+more+"# %s\n")
}

// TestDefaultMaxTokensDoesNotSelectATier sends "hi" with the max_tokens that real clients send by
// default.
func TestDefaultMaxTokensDoesNotSelectATier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hiRequest = `"messages":[{"role":"user","content":"hi"}]`
		plain, lesson := newWideRig(t, ""), newWideRig(t, "classifier: { preset: lesson }\n")
		for _, c := range []struct {
			client, path, body string
			tier, why          string // by default; why max_tokens is not counted
			lesson             string // the tier under preset lesson
		}{
			{"a coding agent", "/v1/chat/completions", hiRequest + `,"max_tokens":32000` + chatTool, "small",
				"the request offers tools",
				"large"},
			{"its request for a title", "/v1/chat/completions", hiRequest + `,"max_tokens":32000`, "small",
				"so high a value is a ceiling", "large"},
			{"an agent near its context", "/v1/chat/completions", hiRequest + `,"max_completion_tokens":4000`, "small",
				"so high a value is a ceiling", "large"},
			{"old functions", "/v1/chat/completions", hiRequest + `,"max_tokens":3000,"functions":[{"name":"read"}]`, "small",
				"the request offers tools", "large"},
			{"a chat program", "/v1/chat/completions", hiRequest + `,"max_tokens":1024`, "small",
				"a power of two is a client's default",
				"medium"},
			{"Anthropic's SDK", "/v1/messages", hiRequest + `,"max_tokens":1024`, "small", "the endpoint requires it", "medium"},
			{"Anthropic's SDK, long", "/v1/messages", hiRequest + `,"max_tokens":3000`, "small", "the endpoint requires it",
				"large"},
			{"an agent on messages", "/v1/messages", hiRequest + `,"max_tokens":64000` + messageTool, "small",
				"the endpoint requires it", "large"},
			{"an agent on responses", "/v1/responses", `"input":"hi","max_output_tokens":16000` + responseTool, "small",
				"the request offers tools", "large"},
			{"the lesson's client", "/v1/chat/completions", hiRequest + `,"max_tokens":3000`, "large", "", "large"},
			{"the lesson's client, medium", "/v1/chat/completions", hiRequest + `,"max_tokens":600`, "medium", "", "medium"},
			{"a prompt to complete", "/v1/completions", `"prompt":"hi","max_tokens":3000`, "large", "", "large"},
			{"empty tools", "/v1/chat/completions", hiRequest + `,"max_tokens":3000,"tools":[]`, "large", "", "large"},
			{"a long answer on responses", "/v1/responses", `"input":"hi","max_output_tokens":3000`, "large", "", "large"},
		} {
			body := `{"model":"auto",` + c.body + `}`
			want := "max_tokens"
			if c.why != "" {
				want = "default; max_tokens not counted: " + c.why
			}
			got, e := plain.post(c.path, body), plain.explained(c.path, body)
			if tier, reason := got.header.Get("X-Model-Tier"), got.header.Get("X-Tier-Reason"); tier != c.tier ||
				reason != want {
				t.Errorf("%s: to %s by %q, want %s by %q: %s", c.client, tier, reason, c.tier, want, got.body)
			}
			if reason := e.Rule + strings.TrimSuffix("; "+e.Note, "; "); e.Tier != c.tier || reason != want {
				t.Errorf("%s: explained as %s by %q, want %s by %q", c.client, e.Tier, reason, c.tier, want)
			}
			if e.Classified == nil || e.Classified.Tier != c.tier {
				t.Errorf("%s: classified as %+v, want %s", c.client, e.Classified, c.tier)
			} else if s := e.Classified.Signals[1]; s.Rule != "max_tokens" || s.NotCounted != c.why || s.Value == 0 {
				t.Errorf("%s: explained as %+v, want %q", c.client, s, c.why)
			}
			if e := lesson.explained(c.path, body); e.Classified == nil || e.Classified.Tier != c.lesson ||
				e.Classified.Rule != "max_tokens" {
				t.Errorf("%s: under the lesson's preset classified as %+v, want %s", c.client, e.Classified, c.lesson)
			}
		}
	})
}
