package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/decisions"
	"tierway/engines"
)

// newTieredRig is a rig of three tiers with one worker each.
func newTieredRig(t *testing.T, more string) *rig {
	t.Helper()
	var list strings.Builder
	for i, tier := range []string{"small", "medium", "large"} {
		w := newServer(t, engines.New(engines.Config{Name: tier, AnyModel: true, Seed: 1}))
		fmt.Fprintf(&list, "  - { name: %s, model: %s-model, context: %d, workers: [ { name: %s-0, url: %q } ] }\n", tier,
			tier, 8000<<(2*i), tier, w.URL)
	}
	if !strings.Contains(more, "classifier:") {
		more += "classifier: {}\n" // the default preset; newRig sets none
	}
	return newRig(t, "auth: { required: false }\nhealth: { path: \"off\" }\ntiers:\n"+list.String()+
		"models: { \"gpt-*\": small }\n"+more+"# %s\n")
}

// chatBody is a chat request with one user message. more is added to its fields.
func chatBody(model, text string, more string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // strings always marshal
	}
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]%s}`, model, b, more)
}

// explained returns the server's explanation of a request.
func (r *rig) explained(path, body string, headers ...string) *decisions.Explanation {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return r.Explain(req)
}

// tierOf returns the tier that served an answer and the rule that selected it.
func tierOf(got httpAnswer) (tier, rule string) {
	rule, _, _ = strings.Cut(got.header.Get("X-Tier-Reason"), ";") // the note follows
	return got.header.Get("X-Model-Tier"), rule
}

// TestExplanationMatchesTheRequestsRoute for every rule. Explain sends nothing and changes no state.
func TestExplanationMatchesTheRequestsRoute(t *testing.T) {
	const words = "a few plain words about the weather in spring and what the garden needs then "
	for _, c := range []struct {
		name, body, header string
		tier, rule         string
	}{
		{name: "no rule applies", body: chatBody("auto", "Hi", ""), tier: "small", rule: "default"},
		{name: "a long prompt", body: chatBody("auto", strings.Repeat(words, 350), ""), tier: "medium",
			rule: "prompt_tokens"},
		{name: "a very long prompt", body: chatBody("auto", strings.Repeat(words, 1200), ""), tier: "large",
			rule: "prompt_tokens"},
		{name: "a long answer", body: chatBody("auto", "Hi", `,"max_tokens":2001`), tier: "large", rule: "max_tokens"},
		{name: "a longish answer", body: chatBody("auto", "Hi", `,"max_completion_tokens":501`), tier: "medium",
			rule: "max_tokens"},
		{name: "a keyword", body: chatBody("auto", "Implement a function in Python that sorts a list of numbers", ""),
			tier: "large", rule: "keyword:code"},
		{name: "a header", body: chatBody("auto", "Hi", ""), header: "LARGE", tier: "large", rule: "header"},
		{name: "a tier's name", body: chatBody("medium", "Hi", ""), tier: "medium", rule: "model"},
		{name: "an alias", body: chatBody("gpt-4o", "Hi", ""), tier: "small", rule: "alias"},
		{name: "an alias with too short a context", body: chatBody("gpt-4o", strings.Repeat(words, 600), ""),
			tier: "medium",
			rule: "context"},
		{name: "an answer that exceeds the context", body: chatBody("small", "Hi", `,"max_tokens":8000`), tier: "medium",
			rule: "context"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTieredRig(t, "")
				var headers []string
				if c.header != "" {
					headers = []string{"X-Model-Tier", c.header}
				}
				e := r.explained("/v1/chat/completions", c.body, headers...)
				if e.Tier != c.tier || e.Rule != c.rule || e.Worker != c.tier+"-0" || e.Status != 0 {
					t.Errorf("explained as %+v, want %s by %s", e, c.tier, c.rule)
				}
				got := r.post("/v1/chat/completions", c.body, headers...)
				if got.status != http.StatusOK {
					t.Fatalf("the status is %d: %s", got.status, got.body)
				}
				tier, rule := tierOf(got)
				if worker := got.header.Get("X-Routed-To"); tier != e.Tier || rule != e.Rule || worker != e.Worker {
					t.Errorf("sent to %s of %s by %s, explained as %s of %s by %s", worker, tier, rule, e.Worker, e.Tier, e.Rule)
				}
			})
		})
	}
}

// TestAChatDoesNotFallBelowItsTier: a chat is recognized by its session ID or by its first messages.
func TestAChatDoesNotFallBelowItsTier(t *testing.T) {
	first := `{"role":"user","content":"Implement a function in Python that sorts a list"}`
	grown := first +
		`,{"role":"assistant","content":"def f(x): return sorted(x)"},{"role":"user","content":"Thanks, nice."}`
	chat := func(messages string) string { return `{"model":"auto","messages":[` + messages + `]}` }
	t.Run("by its beginning", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newTieredRig(t, "")
			r.post("/v1/chat/completions", chat(first))
			if tier, rule := tierOf(r.post("/v1/chat/completions", chat(grown))); tier != "large" || rule != "sticky" {
				t.Errorf("the second turn is at %s by %s", tier, rule)
			}
			if got := r.post("/v1/chat/completions", chat(`{"role":"user","content":"Thanks, nice."}`)); got.header.Get(
				"X-Model-Tier") != "small" {
				t.Errorf("another chat is at %s", got.header.Get("X-Model-Tier"))
			}
		})
	})
	for _, header := range []string{"X-Session-ID", "Session-Id"} { // Codex sends the second
		t.Run("by its session in "+header, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newTieredRig(t, "")
				r.post("/v1/chat/completions", chat(first), header, "s1")
				if tier, rule := tierOf(r.post("/v1/chat/completions", chat(`{"role":"user","content":"Thanks."}`), header,
					"s1")); rule != "sticky" {
					t.Errorf("the same session is at %s by %s", tier, rule)
				}
				if got := r.post("/v1/chat/completions", chat(`{"role":"user","content":"Thanks."}`), header,
					"s2"); got.header.Get("X-Model-Tier") != "small" {
					t.Errorf("another session is at %s", got.header.Get("X-Model-Tier"))
				}
			})
		})
	}
	t.Run("not by its prompt_cache_key, which all chats of an application may share", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newTieredRig(t, "")
			withCacheKey := func(messages string) string {
				return strings.Replace(chat(messages), "{", `{"prompt_cache_key":"app",`, 1)
			}
			r.post("/v1/chat/completions", withCacheKey(first))
			if got := r.post("/v1/chat/completions", withCacheKey(`{"role":"user","content":"Thanks."}`)); got.header.Get(
				"X-Model-Tier") != "small" {
				t.Errorf("another chat is at %s", got.header.Get("X-Model-Tier"))
			}
		})
	})
	t.Run("not when it is turned off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newTieredRig(t, "classifier: { sticky: { enabled: false } }\n")
			r.post("/v1/chat/completions", chat(first))
			if got := r.post("/v1/chat/completions", chat(grown)); got.header.Get("X-Model-Tier") != "small" {
				t.Errorf("the second turn is at %s", got.header.Get("X-Model-Tier"))
			}
		})
	})
}

// TestAFollowUpGoesToTheTierOfItsResponse: no other tier's engine has the response.
func TestAFollowUpGoesToTheTierOfItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTieredRig(t, "")
		first := r.post("/v1/responses", `{"model":"auto","input":"Implement a function in Python that sorts a list"}`)
		var made struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal([]byte(first.body), &made); err != nil || first.header.Get("X-Model-Tier") != "large" {
			t.Fatalf("the first is at %s: %s", first.header.Get("X-Model-Tier"), first.body)
		}
		got := r.post("/v1/responses", fmt.Sprintf(`{"model":"auto","input":"Thanks.","previous_response_id":%q}`, made.ID))
		if tier, rule := tierOf(got); got.status != http.StatusOK || tier != "large" || rule != "sticky" {
			t.Errorf("the follow-up is at %s by %s: %s", tier, rule, got.body)
		}
	})
}

// TestAPromptAboveEveryContextIsRejected only if the estimate is far above the context. Near it, the
// engine decides.
func TestAPromptAboveEveryContextIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTieredRig(t, "")
		for _, c := range []struct {
			name, model string
			tokens      int
			status      int
		}{
			{"far beyond the largest", "auto", 300_000, http.StatusBadRequest},
			{"far beyond a pinned model", "small-model", 20_000, http.StatusBadRequest},
			{"just beyond a pinned model", "small-model", 8_200, http.StatusOK},
		} {
			t.Logf("case %v", c.name)
			got := r.post("/v1/chat/completions", chatBody(c.model, strings.Repeat("word", c.tokens), ""))
			if got.status != c.status {
				t.Fatalf("the status is %d, want %d: %.300s", got.status, c.status, got.body)
			}
			if c.status == http.StatusBadRequest && !strings.Contains(got.body, `"code":"context_length_exceeded"`) {
				t.Errorf("the error is %s", got.body)
			}
		}
	})
}

// TestAPromptNearAThresholdIsCounted: the estimate by characters alone would be below the threshold.
func TestAPromptNearAThresholdIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTieredRig(t, "")
		// 15,600 characters are estimated at 3,900 tokens and are twice as many.
		e := r.explained("/v1/chat/completions", chatBody("auto", strings.Repeat(" a", 7800), ""))
		if e.Tier != "medium" || e.Rule != "prompt_tokens" {
			t.Fatalf("explained as %+v", e)
		}
		for _, s := range e.Classified.Signals {
			if s.Rule == "prompt_tokens" && (!s.Exact || s.Value < 7800 || s.Value > 7802) {
				t.Errorf("the signal is %+v", s)
			}
		}
		if e := r.explained("/v1/chat/completions", chatBody("auto", strings.Repeat(" a", 3000), "")); e.Tier != "small" ||
			e.Classified.Signals[0].Exact {
			t.Errorf("far from a threshold it is %+v", e.Classified)
		}
	})
}

// TestATierWithoutWorkersIsReplaced as classifier.unavailable says, also for the request that detects it. A
// request that names the engine's model stays at its tier.
func TestATierWithoutWorkersIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := newServer(t, http.NotFoundHandler())
		gone.Close() // connections are refused
		there := newServer(t, engines.New(engines.Config{AnyModel: true, Seed: 1}))
		rig := func(more string) *rig {
			return newRig(t, fmt.Sprintf(`
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: s, workers: [ { name: s0, url: %q } ] }
  - { name: large, model: l, workers: [ { name: l0, url: %q } ] }
%s`, gone.URL, there.URL, more)+"# %s\n")
		}
		r := rig("")
		for _, model := range []string{"auto", "small"} {
			if tier, rule := tierOf(r.post("/v1/chat/completions", chatBody(model, "Hi", ""))); tier != "large" ||
				rule != "unavailable" {
				t.Errorf("%s is at %s by %s", model, tier, rule)
			}
		}
		if got := r.post("/v1/chat/completions", chatBody("s", "Hi", "")); got.status != http.StatusServiceUnavailable {
			t.Errorf("a pinned request is %d: %s", got.status, got.body)
		}
		r = rig("classifier: { unavailable: refuse }\n")
		r.post("/v1/chat/completions", chatBody("auto", "Hi", ""))
		if got := r.post("/v1/chat/completions", chatBody("auto", "Hi", "")); got.status != http.StatusServiceUnavailable {
			t.Errorf("with unavailable: refuse it is %d: %s", got.status, got.body)
		}
	})
}
