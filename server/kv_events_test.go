package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/routing"
	"tierway/routing/kvindex"
)

// withEvents is a tier with engines that publish KV-cache events.
const withEvents = `
auth: { required: false }
health: { interval: 100ms, timeout: 100ms }
tiers:
  - name: small
    model: fake-7b
    policy: { name: kv_aware, lookup_timeout: 10s }
    workers: [ %s ]
`

// publishing returns an engine that publishes KV-cache events.
func publishing(t *testing.T, change ...func(*engines.Config)) *engines.Engine {
	t.Helper()
	c := engines.Config{Name: "fake", Model: "fake-7b", Seed: 1, CacheTokens: 1 << 20, Network: networkOf(t).zmtp()}
	for _, of := range change {
		of(&c)
	}
	e := engines.New(c)
	if err := e.PublishEvents(context.Background(), "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// chatAbout returns the body of a chat with a long prompt that differs by number.
func chatAbout(number int) string {
	text := strings.Repeat(fmt.Sprintf("chat %d has the same long words ", number), 300)
	return fmt.Sprintf(`{"model":"fake-7b","max_tokens":1,"messages":[{"role":"user","content":%q}]}`, text)
}

// sendDirectly sends a request to an engine past the gateway.
func sendDirectly(t *testing.T, url, body string) {
	t.Helper()
	sendTo(t, url+"/v1/chat/completions", body)
}

// sendTo sends a request to a URL of an engine.
func sendTo(t *testing.T, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := networkOf(t).transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("the engine answered %d", answer.StatusCode)
	}
}

// TestRequestGoesToTheWorkerWhoseEventsNameItsPrompt: only direct traffic has filled the cache, so it is not
// in the gateway's own history.
func TestRequestGoesToTheWorkerWhoseEventsNameItsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, withEvents, publishing(t), publishing(t), publishing(t))
		r.runControl()
		pool := r.control.Snapshot().Pools[0]
		home := r.member("w2")
		url := home.Worker.Spec().URL
		waitUntil(t, "stream", func() bool { return home.Events.View().Live })
		sendDirectly(t, url, chatAbout(1))
		waitUntil(t, "event of the direct request", func() bool { return home.Events.View().Blocks > 0 })
		a := r.post("/v1/chat/completions", chatAbout(1))
		var answer struct {
			Usage struct {
				Details struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(a.body), &answer); err != nil {
			t.Fatalf("%d %s: %v", a.status, a.body, err)
		}
		if to := a.header.Get("X-Routed-To"); to != "w2" || answer.Usage.Details.Cached < 1000 {
			t.Errorf("the chat went to %s, which had %d tokens", to, answer.Usage.Details.Cached)
		}
		if n := pool.Routing.Predictions().Events; n != 1 {
			t.Errorf("%d requests were routed by events", n)
		}
		scrape := r.scrape()
		for _, want := range []string{`tierway_kv_events_up{tier="small",worker="w2"} 1`,
			`tierway_kv_events_complete{tier="small",worker="w2"} 1`, `tierway_kv_index_limit_bytes 5.36870912e+08`} {
			if !strings.Contains(scrape, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	})
}

func TestReloadKeepsEventStreamsOfUnchangedWorkersAndEndsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := startServer(t, publishing(t)), startServer(t, publishing(t))
		text := func(workers ...string) string {
			return "classifier: { preset: none }\nstore: { sql: \"\" }\n" + fmt.Sprintf(withEvents, listOf(workers...))
		}
		both := text(entryOf("a", a, 1), entryOf("b", b, 1))
		r, from := newReloadRig(t, strings.ReplaceAll(both, "%", "%%")+"# %s\n")
		r.runControl()
		kept, removed := r.member("a"), r.member("b")
		waitUntil(t, "streams", func() bool { return kept.Events.View().Live && removed.Events.View().Live })
		sendDirectly(t, a, chatAbout(1))
		sendDirectly(t, b, chatAbout(1))
		waitUntil(t, "events of both", func() bool {
			return kept.Events.View().Blocks > 0 && removed.Events.View().Blocks > 0
		})
		since := kept.Events.View().Since
		alone := text(entryOf("a", a, 2))
		from.write(alone)
		r.reload()
		if v := r.member("a").Events.View(); r.member("a") != kept || v.Since != since || v.Blocks == 0 {
			t.Errorf("the stream of the kept worker: %+v", v)
		}
		if v := removed.Events.View(); v.Streams != 0 || strings.Contains(r.scrape(), `worker="b"`) {
			t.Errorf("the stream of the removed worker: %+v", v)
		}
		if used := r.control.Pools.IndexMemory().Used; used != int64(kept.Events.View().Blocks*kvindex.BlockBytes) {
			t.Errorf("%d bytes are used", used)
		}
		from.write(strings.Replace(alone, "workers:", "kv_events: { enabled: false }\n    workers:", 1))
		r.reload()
		if v := kept.Events.View(); v.Streams != 0 || r.control.Pools.IndexMemory().Used != 0 {
			t.Errorf("switched off: %+v", v)
		}
	})
}

// TestExplanationNotesWorkersWhoseEventsAreDown: an explanation sends no requests to /tokenize.
func TestExplanationNotesWorkersWhoseEventsAreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(withEvents, "workers:", "kv_events: { port: 1 }\n    workers:", 1), publishing(t))
		r.runControl()
		home := r.member("w0")
		waitUntil(t, "report of the refused connection", func() bool { return home.Events.View().Fault != "" })
		request := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/v1/chat/completions",
			strings.NewReader(chatAbout(1)))
		request.Header.Set("Content-Type", "application/json")
		e := r.Explain(request)
		if len(e.Notes) == 0 || !strings.Contains(strings.Join(e.Notes, "; "), "the KV-cache events of w0 are down (") {
			t.Errorf("the notes are %q", e.Notes)
		}
		if !strings.Contains(r.scrape(), `tierway_prompt_tokenize_requests_total{tier="small"} 0`) {
			t.Error("an engine got a request to /tokenize")
		}
	})
}

// TestFailingTokenizerIsLeftAlone: one engine of two that answers no request for tokens does not stop the
// look-ups of new prompts.
func TestFailingTokenizerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, asked := publishing(t), atomic.Int64{}
		failing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				asked.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			engine.ServeHTTP(w, r)
		})
		r := newRig(t, withEvents, failing, publishing(t))
		r.runControl()
		for i, name := range []string{"w0", "w1"} {
			m := r.member(name)
			waitUntil(t, "stream", func() bool { return m.Events.View().Live })
			sendDirectly(t, m.Worker.Spec().URL, chatAbout(i))
			waitUntil(t, "events", func() bool { return m.Events.View().Blocks > 0 })
		}
		const chats = 10
		for i := range chats {
			if a := r.post("/v1/chat/completions", chatAbout(100+i)); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if n := asked.Load(); n == 0 || n > 3 { // others may run when the first one fails
			t.Errorf("%d requests to the failing tokenizer", n)
		}
		if want := fmt.Sprintf(`tierway_prompt_lookups_total{result="answered",tier="small"} %d`, chats); !strings.Contains(
			r.scrape(), want) {
			t.Errorf("the metrics lack %s", want)
		}
	})
}

// TestOnlyRequestsOfTheRuleAreLookedUp: policy_rules select kv_aware for one model, and the requests of the other
// one wait for no tokens. The rule's lookup_timeout applies.
func TestOnlyRequestsOfTheRuleAreLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(withEvents, "policy: { name: kv_aware, lookup_timeout: 10s }",
			"policy: { name: round_robin }\n"+
				"    policy_rules: [ { model: looked-up, policy: { name: kv_aware, lookup_timeout: 10s } } ]", 1)
		r := newRig(t, yaml+"models: { looked-up: small, plain: small }\n", publishing(t))
		r.runControl()
		m := r.member("w0")
		waitUntil(t, "stream", func() bool { return m.Events.View().Live })
		sendDirectly(t, m.Worker.Spec().URL, chatAbout(0))
		waitUntil(t, "events", func() bool { return m.Events.View().Blocks > 0 })
		ask := func(model string, number int) {
			t.Helper()
			body := strings.Replace(chatAbout(number), `"fake-7b"`, `"`+model+`"`, 1)
			if a := r.post("/v1/chat/completions", body); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		for i := range 3 {
			ask("plain", 10+i)
		}
		answered := `tierway_prompt_lookups_total{result="answered",tier="small"} `
		if text := r.scrape(); !strings.Contains(text, answered+"0\n") {
			t.Error("a request without the rule was looked up")
		}
		for i := range 3 {
			ask("looked-up", 20+i)
		}
		if text := r.scrape(); !strings.Contains(text, answered+"3\n") {
			t.Error("a request of the rule was not looked up")
		}
	})
}

// TestRequestsOfAgentsGoToTheWorkerWhoseEventsNameTheirPrompt: other dialects than chat, and chats with tools and a
// format, are looked up like plain chats.
func TestRequestsOfAgentsGoToTheWorkerWhoseEventsNameTheirPrompt(t *testing.T) {
	rules := strings.Repeat("the rules of this agent have the same long words ", 200)
	for name, c := range map[string]struct{ path, body string }{
		"messages": {"/v1/messages", `{"model":"fake-7b","max_tokens":1,"system":[{"type":"text","text":%q}],
			"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}`},
		"responses": {"/v1/responses", `{"model":"fake-7b","max_output_tokens":1,"store":false,"instructions":%q,
			"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}]}`},
		"format": {"/v1/chat/completions", `{"model":"fake-7b","max_tokens":1,"response_format":{"type":"json_object"},
			"messages":[{"role":"system","content":%q},{"role":"user","content":"Reply in JSON"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, withEvents, publishing(t), publishing(t), publishing(t))
				r.runControl()
				home := r.member("w2")
				waitUntil(t, "stream", func() bool { return home.Events.View().Live })
				body := fmt.Sprintf(c.body, rules)
				sendTo(t, home.Worker.Spec().URL+c.path, body)
				waitUntil(t, "event of the direct request", func() bool { return home.Events.View().Blocks > 0 })
				a := r.post(c.path, body)
				if to := a.header.Get("X-Routed-To"); to != "w2" || a.header.Get("X-Route-Reason") != "kv_events" {
					t.Errorf("%d from %s by %s: %.200s", a.status, to, a.header.Get("X-Route-Reason"), a.body)
				}
				scrape := r.scrape()
				for _, want := range []string{`tierway_prompt_miscounts_total{tier="small"} 0`,
					`tierway_prompt_lookups_total{result="answered",tier="small"} 1`} {
					if !strings.Contains(scrape, want) {
						t.Errorf("the metrics lack %s", want)
					}
				}
			})
		})
	}
}

// TestAnEngineThatCountsOtherTokensIsRoutedByHistory: its /tokenize and its requests use different templates.
func TestAnEngineThatCountsOtherTokensIsRoutedByHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := publishing(t)
		other := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				fmt.Fprint(w, `{"count":40,"tokens":[`+strings.TrimSuffix(strings.Repeat("7,", 40), ",")+`]}`)
				return
			}
			engine.ServeHTTP(w, r)
		})
		r := newRig(t, withEvents, other)
		r.runControl()
		m := r.member("w0")
		waitUntil(t, "stream", func() bool { return m.Events.View().Live })
		sendDirectly(t, m.Worker.Spec().URL, chatAbout(1))
		waitUntil(t, "events", func() bool { return m.Events.View().Blocks > 0 })
		for i := range 3 {
			if a := r.post("/v1/chat/completions", chatAbout(10+i)); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		scrape := r.scrape()
		for _, want := range []string{`tierway_prompt_miscounts_total{tier="small"} 1`,
			`tierway_prompt_lookups_total{result="unknown",tier="small"} 2`} {
			if !strings.Contains(scrape, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		if !strings.Contains(r.logs.String(), "the engine counts other tokens than it returns") {
			t.Error("the log does not say so")
		}
	})
}

// TestLateLookupsAreShownWithTheWorker: an operator sees them beside the state of the worker's events.
func TestLateLookupsAreShownWithTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := publishing(t)
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/tokenize" {
				time.Sleep(time.Second)
			}
			engine.ServeHTTP(w, r)
		})
		yaml := strings.NewReplacer(`health: { path: "off" }`, "health: { interval: 100ms, timeout: 100ms }",
			"    workers:", "    policy: { name: kv_aware }\n    workers:").Replace(adminYAML(memoryDB))
		r := adminRigOf(newRig(t, yaml, slow))
		r.runControl()
		m := r.member("w0")
		waitUntil(t, "stream", func() bool { return m.Events.View().Live })
		sendDirectly(t, m.Worker.Spec().URL, chatAbout(0))
		waitUntil(t, "events", func() bool { return m.Events.View().Blocks > 0 })
		for i := range 3 {
			if a := r.post("/v1/chat/completions", chatAbout(10+i), "Authorization", "Bearer filed"); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		shown := r.ops(http.StatusOK, http.MethodGet, "/admin/workers/w0", "").body
		if !strings.Contains(shown, `"lookups":3,"late_lookups":3`) {
			t.Error(shown)
		}
	})
}

// TestAdaptersOfATierAreRequestedByTheirNames: a request for an adapter keeps its name, one for the tier gets the
// model.
func TestAdaptersOfATierAreRequestedByTheirNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		engine := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/models":
				fmt.Fprint(w, `{"object":"list","data":[{"id":"fake-7b"},{"id":"sql-lora","parent":"fake-7b"},`+
					`{"id":"new-lora","parent":"fake-7b"}]}`)
			case "/v1/chat/completions":
				var body struct{ Model string }
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				mu.Lock()
				asked = append(asked, body.Model)
				mu.Unlock()
				fmt.Fprint(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":`+
					`{"role":"assistant","content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`)
			}
		})
		yaml := strings.Replace(withEvents, "model: fake-7b",
			"model: fake-7b\n    models: [sql-lora]\n    engine: vllm", 1)
		r := newRig(t, yaml, engine)
		r.runControl()
		waitUntil(t, "list of adapters", func() bool { return r.control.Snapshot().Pools[0].Adapter("sql-lora") != "" })
		for _, model := range []string{"sql-lora", "small", "fake-7b"} {
			a := r.post("/v1/chat/completions", strings.Replace(chatAbout(1), `"fake-7b"`, `"`+model+`"`, 1))
			if a.status != http.StatusOK || a.header.Get("X-Model-Tier") != "small" {
				t.Errorf("%s: %d %s", model, a.status, a.body)
			}
		}
		if want := []string{"sql-lora", "fake-7b", "fake-7b"}; !slices.Equal(asked, want) {
			t.Errorf("the engine was asked for %q, not %q", asked, want)
		}
		time.Sleep(time.Minute) // many checks
		if n := strings.Count(r.logs.String(), "adapters=[new-lora]"); n != 1 {
			t.Errorf("%d lines name the adapter that no tier names: %s", n, r.logs.String())
		}
	})
}

// TestPrefillPolicyUsesEvents: the policy of the prefill stage alone uses what the engines publish.
func TestPrefillPolicyUsesEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		peers, stages := new(engines.Peers), []string{engines.RolePrefill, engines.RolePrefill, engines.RoleDecode}
		var list []string
		for i, role := range stages {
			e := publishing(t, func(c *engines.Config) { c.Handover, c.Role, c.Peers = engines.HandoverNIXL, role, peers })
			list = append(list, fmt.Sprintf("{ name: w%d, url: %q, role: %s }", i, startServer(t, e), role))
		}
		r := newRig(t, fmt.Sprintf(`
auth: { required: false }
health: { interval: 100ms, timeout: 100ms }
tiers:
  - name: small
    model: fake-7b
    handover: nixl
    uncached_threshold: 1
    policy: { name: round_robin }
    prefill_policy: { name: kv_aware, lookup_timeout: 10s }
    workers: [ %s ]
`, strings.Join(list, ", "))+"# %s\n")
		r.runControl()
		for number, holder := range []string{"w1", "w0", "w1"} {
			m := r.member(holder)
			waitUntil(t, "stream", func() bool { return m.Events.View().Live })
			before := m.Events.View().Blocks
			sendDirectly(t, m.Worker.Spec().URL, chatAbout(number))
			waitUntil(t, "event of the direct request", func() bool { return m.Events.View().Blocks > before })
			if a := r.post("/v1/chat/completions", chatAbout(number)); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if h := r.lastDecision().Attempts[0].Handover; len(h.Prefills) != 1 || h.Prefills[0].Worker != holder ||
				h.Prefills[0].Reason != string(routing.ReasonKVEvents) {
				t.Errorf("prompt %d is on %s: %+v", number, holder, h.Prefills)
			}
		}
	})
}
