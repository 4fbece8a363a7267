package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// upperTierYAML has two tiers of which only the higher one has an engine.
const upperTierYAML = `
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, workers: [ { name: s0, url: "http://127.0.0.1:9" } ] }
  - { name: large, model: fake-70b, workers: [ %s ] }
`

// A model that a hook has changed selects the tier: neither X-Model-Tier of the client nor the model in the path of an
// Azure client applies. X-Tier-Reason has a note about it.
func TestTheModelOfAHookDecides(t *testing.T) {
	const messages = `"messages":[{"role":"user","content":"Hi"}]`
	const note = "model; X-Model-Tier ignored: a hook changed the model"
	for _, c := range []struct {
		name, path, body string
		header           string // X-Model-Tier
		reason           string // X-Tier-Reason
	}{
		{"body", "/v1/chat/completions", `{"model":"small",` + messages + `}`, "", "model"},
		{"header", "/v1/chat/completions", `{"model":"small",` + messages + `}`, "small", note},
		{"path", "/openai/deployments/small/chat/completions", `{` + messages + `}`, "", "model"},
		{"path and body", "/openai/deployments/small/chat/completions", `{"model":"large",` + messages + `}`, "", "model"},
		{"path and header", "/openai/deployments/fake-7b/chat/completions", `{` + messages + `}`, "SMALL", note},
	} {
		synctest.Test(t, func(t *testing.T) {
			hook := newHookService(t, says(transformTo(`{"model":"large",`+messages+`}`)))
			r, engine := newHookRig(t, upperTierYAML, hook.line("guard", ", transform: true"))
			got := r.post(c.path, c.body, "X-Model-Tier", c.header)
			if got.status != 200 || got.header.Get("X-Tier-Reason") != c.reason || r.last().Tier != "large" ||
				sentField(t, engine, "model") != `"fake-70b"` {
				t.Errorf("%s: %d %q %+v", c.name, got.status, got.header.Get("X-Tier-Reason"), r.last())
			}
			if want := `{"model":"small"`; c.name == "path and body" && !strings.HasPrefix(hook.calls()[0], want) {
				t.Errorf("%s: the hook receives %s", c.name, hook.calls()[0])
			}
		})
	}
}

// A hook that keeps the model keeps what the client chose. One of type ext_proc can choose the tier itself, also
// after another one has changed the model.
func TestAHookThatKeepsTheModelKeepsTheTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, grpc := newHookService(t, nil), newProcessor(t)
		r, _ := newHookRig(t, upperTierYAML, web.line("web", ", transform: true"),
			strings.Replace(grpc.line(", transform: true"), "guard", "grpc", 1))
		for _, c := range []struct{ path, body, sent, header, set, tier string }{
			{"/v1/chat/completions", chatBody("small", "Hi", ""), chatBody("small", "Bye", ""), "large", "", "large"},
			{"/openai/deployments/large/chat/completions", chatBody("small", "Hi", ""), chatBody("large", "Bye", ""), "", "",
				"large"},
			{"/v1/chat/completions", chatBody("large", "Hi", ""), chatBody("small", "Bye", ""), "small", "large", "large"},
		} {
			web.answer, grpc.headers = says(transformTo(c.sent)), nil
			if c.set != "" {
				grpc.headers = always(toHeaders(changesHeaders("x-model-tier", c.set)))
			}
			got := r.post(c.path, c.body, "X-Model-Tier", c.header)
			if got.status != 200 || r.last().Tier != c.tier || strings.Contains(got.header.Get("X-Tier-Reason"), "ignored") {
				t.Errorf("%+v: %d %v %+v", c, got.status, got.header, r.last())
			}
		}
	})
}

// A tier or class that does not exist is an error of the hook, not a change without effect.
func TestAnUnknownTierOrClassOfAHookIsRefused(t *testing.T) {
	for _, c := range [][2]string{{"x-model-tier", "nope-secret"}, {"x-request-priority", "zzz-secret"}} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcessor(t)
			p.headers = always(toHeaders(changesHeaders(c[0], c[1])))
			r, engine := newHookRig(t, plain, p.line(", transform: true"))
			got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
			if got.status != 503 || got.header.Get("X-Tierway-Hooks") != "guard:refused" || len(engine.Requests()) != 0 {
				t.Errorf("%s: %d %v", c[0], got.status, got.header)
			}
			if cause := r.last().Hooks[0].Error; !strings.Contains(strings.ToLower(cause), c[0]) ||
				strings.Contains(cause, "secret") {
				t.Errorf("%s: the cause is %q", c[0], cause)
			}
		})
	}
}

// A service that limits the rate of requests answers with 429, and Retry-After states when the client may retry.
func TestARateLimitOfAServiceKeepsItsStatus(t *testing.T) {
	for _, c := range []struct{ more, retry, want string }{
		{"", "17", "17"}, {", on_reject: block400", "17", "17"}, {"", "", "2"}, {"", "soon", "2"}, {"", "0", "2"},
		{"", "99999999", "86400"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcessor(t)
			limited := immediate(typev3.StatusCode_TooManyRequests, "too many")
			limited.GetImmediateResponse().Headers = changesHeaders("x-limit", "9", "retry-after", c.retry).GetHeaderMutation()
			p.body = func(*extproc.ProcessingRequest) (*extproc.ProcessingResponse, error) { return limited, nil }
			r, engine := newHookRig(t, plain, p.line(c.more))
			got := r.post("/v1/chat/completions", chatBody("small", "Hi", ""))
			want := `{"error":{"message":"too many","type":"requests","param":null,"code":"rejected_by_hook"}}`
			if got.status != http.StatusTooManyRequests || !strings.Contains(got.body, want) || len(engine.Requests()) != 0 ||
				got.header.Get("Retry-After") != c.want || got.header.Get("X-Tierway-Hooks") != "guard:rejected" {
				t.Errorf("%+v: %d %s %v", c, got.status, got.body, got.header)
			}
		})
	}
}

// An explanation names the hook that ends the request.
func TestExplainNamesTheHookThatEndsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newHookService(t, says(sayAllow)), newHookService(t, says(sayReject))
		yaml := fmt.Sprintf("admin: { keys: [ { name: ops, sha256: %s } ] }\n", digestHex("ops")) + plain
		hooked, _ := newHookRig(t, yaml, first.line("first", ""), second.line("second", ""))
		r := adminRigOf(hooked)
		for answer, want := range map[string]string{
			sayReject: "rejected at request: the hook second rejects it: it names a patient",
			`{}`:      "rejected at request: the hook second fails (error): the answer is not a JSON object with an action",
		} {
			second.answerWith(says(answer))
			if e := r.explain(200, order{"request": hiRequest("small"), "hooks": true}); e.Summary != want {
				t.Errorf("%q, want %q", e.Summary, want)
			}
			hooked.post("/v1/chat/completions", chatBody("small", "Hi", ""))
			id := hooked.last().RequestID
			short := strings.TrimPrefix(strings.TrimSuffix(want, ": it names a patient"), "rejected")
			if e := r.explain(200, order{"decision": id}); e.Summary != "was rejected"+short {
				t.Errorf("past: %q, want %q", e.Summary, "was rejected"+short)
			}
		}
	})
}
