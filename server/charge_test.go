package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/openai"
	"tierway/store"
)

// limited is two tiers with prices and contexts, and one tenant. Its verbs are the digest of the key, the
// tenant's settings and the URL of the large tier's engine.
const limited = `
store: { sql: "sqlite://:memory:" }
auth: { keys: [ { name: acme, sha256: %s, %s } ] }
health: { path: "off" }
classifier: { preset: none, unavailable: up }
tiers:
  - name: small
    model: fake-7b
    context: 8192
    price: { input: 1, cached_input: 0.5, output: 2 }
    serves: [chat, completions, responses, messages, embeddings]
    workers: [ %%s ]
  - name: large
    model: big-70b
    context: 131072
    price: { input: 10, output: 20 }
    serves: [chat]
    workers: [ { name: large-0, url: "%s" } ]
models: { cheap: small, dear: large }
`

// limitedRig serves limited with a tenant's settings. The tenant's key is "key".
func limitedRig(t *testing.T, settings string, small, large http.Handler) *rig {
	t.Helper()
	digest := sha256.Sum256([]byte("key"))
	return newRig(t, fmt.Sprintf(limited, hex.EncodeToString(digest[:]), settings, startServer(t, large)), small)
}

// bigEngine is fakeEngine with the model of the large tier.
func bigEngine() http.Handler {
	return engines.New(engines.Config{Name: "big", Model: "big-70b", Seed: 1, CacheTokens: 4096,
		Clock: func() time.Time { return time.Unix(1_700_000_000, 0) }})
}

// sendChat sends a chat with the tenant's key.
func (r *rig) sendChat(model string, headers ...string) httpAnswer {
	r.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, model)
	return r.post("/v1/chat/completions", body, append([]string{"Authorization", "Bearer key"}, headers...)...)
}

// rows flushes the ledger and returns the tenant's usage by outcome.
func (r *rig) rows() []store.UsageRow {
	r.t.Helper()
	r.proxy.FlushRecords()
	if err := r.control.Stores.Ledger.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	now := time.Now()
	rows, err := r.control.Stores.SQL.Usage(r.t.Context(), store.UsageQuery{Tenant: "acme", From: now.AddDate(0, 0, -1),
		To: now.AddDate(0, 0, 2), GroupBy: "outcome"})
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// row returns the usage of one outcome.
func (r *rig) row(outcome string) store.UsageRow {
	r.t.Helper()
	for _, row := range r.rows() {
		if row.Group == outcome {
			return row
		}
	}
	return store.UsageRow{}
}

// remaining returns the number of requests that the limit still allows.
func remaining(t *testing.T, a httpAnswer) int {
	t.Helper()
	n, err := strconv.Atoi(a.header.Get("X-Ratelimit-Remaining-Requests"))
	if err != nil {
		t.Fatalf("%d without remaining requests: %v", a.status, a.header)
	}
	return n
}

// RL-01: the six headers and the 429 have the form that OpenAI's SDKs expect.
func TestRateLimitHeadersHaveOpenAIsForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { rpm: 60, burst: 2, tpm: 40000 }", fakeEngine(), bigEngine())
		a := r.sendChat("cheap")
		duration := regexp.MustCompile(`^([0-9]+h)?([0-9]+m)?([0-9.]+s|[0-9]+ms)$`)
		for name, form := range map[string]*regexp.Regexp{
			"X-Ratelimit-Limit-Requests": regexp.MustCompile(`^60$`), "X-Ratelimit-Remaining-Requests": regexp.MustCompile(`^1$`),
			"X-Ratelimit-Reset-Requests":   duration,
			"X-Ratelimit-Limit-Tokens":     regexp.MustCompile(`^40000$`),
			"X-Ratelimit-Remaining-Tokens": regexp.MustCompile(`^3[0-9]{4}$`), "X-Ratelimit-Reset-Tokens": duration,
		} {
			if got := a.header.Get(name); !form.MatchString(got) {
				t.Errorf("%s: %q is not of the form %v", name, got, form)
			}
		}
		r.sendChat("cheap")
		a = r.sendChat("cheap")
		after, _ := strconv.Atoi(a.header.Get("Retry-After"))
		ms, _ := strconv.Atoi(a.header.Get("Retry-After-Ms"))
		if a.status != 429 || after < 1 || ms < 1 || ms > 1000 || a.header.Get("X-Should-Retry") != "" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		if !strings.Contains(a.body, `"type":"requests"`) || !strings.Contains(a.body, `"code":"rate_limit_exceeded"`) ||
			!strings.Contains(a.body, "60 requests per min") {
			t.Error(a.body)
		}
		if remaining(t, a) != 0 {
			t.Error("a rejected request reports remaining requests")
		}
	})
}

// RL-04: a request that is rejected before dispatch is not charged.
func TestRejectedRequestsAreNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { rpm: 600, burst: 50, tpm: 100000, concurrent: 2 }", fakeEngine(),
			http.NotFoundHandler())
		before := remaining(t, r.sendChat("cheap"))
		key := []string{"Authorization", "Bearer key"}
		for what, a := range map[string]httpAnswer{
			"400": r.post("/v1/chat/completions", `{"model":`, key...),
			"404": r.sendChat("unknown"),
			"401": r.post("/v1/chat/completions", hello, "Authorization", "Bearer other"),
			"415": r.post("/v1/chat/completions", hello, append(key, "Content-Type", "text/plain")...),
		} {
			if fmt.Sprint(a.status) != what {
				t.Errorf("%s: got %d %s", what, a.status, a.body)
			}
		}
		if after := remaining(t, r.sendChat("cheap")); after < before-1 {
			t.Errorf("%d requests are left of %d", after, before)
		}
	})
}

// RL-04: nor is a request without an available worker.
func TestARequestThatReachedNoWorkerIsRefunded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { rpm: 60, burst: 3, tpm: 1000 }", fakeEngine(), bigEngine())
		p := r.control.Snapshot().ByName["large"]
		for _, v := range p.Routing.Snapshot(time.Now()) {
			p.Routing.SetOpen(v.ID, v.Ref, time.Now().Add(time.Hour))
		}
		for range 5 {
			if a := r.sendChat("big-70b"); a.status != 503 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		if got := remaining(t, r.sendChat("cheap")); got != 2 {
			t.Errorf("%d requests are left, want 2 of 3", got)
		}
	})
}

func TestARequestLargerThanTheLimitIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { tpm: 100 }", fakeEngine(), bigEngine())
		a := r.post("/v1/chat/completions", `{"model":"cheap","max_tokens":90000,"messages":[{"role":"user","content":"`+
			strings.Repeat("many words ", 100)+`"}]}`, "Authorization", "Bearer key")
		if a.status != 429 || a.header.Get("X-Should-Retry") != "false" || a.header.Get("Retry-After") != "" ||
			!strings.Contains(a.body, "Request too large") || !strings.Contains(a.body, `"type":"tokens"`) {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
	})
}

// RL-07: usage above the reservation is charged too.
func TestUsageAboveTheReservationIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { tpm: 100000 }", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w,
				`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":89990,"completion_tokens":10,"total_tokens":90000}}`)
		}), bigEngine())
		if a := r.sendChat("cheap"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a := r.sendChat("cheap")
		if left, err := strconv.Atoi(a.header.Get("X-Ratelimit-Remaining-Tokens")); err != nil || left > 11000 {
			t.Errorf("%d tokens are left of 100,000 after 90,000 were used", left)
		}
	})
}

// RL-07: the unused part of a reservation is returned.
func TestReservationIsReplacedByRealUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { tpm: 100000 }", fakeEngine(), bigEngine())
		left := func() int {
			a := r.sendChat("cheap")
			n, err := strconv.Atoi(a.header.Get("X-Ratelimit-Remaining-Tokens"))
			if a.status != 200 || err != nil {
				t.Fatalf("%d %v", a.status, err)
			}
			return n
		}
		first := left()
		r.post("/v1/chat/completions",
			`{"model":"cheap","max_tokens":50000,"messages":[{"role":"user","content":"Say hello"}]}`, "Authorization",
			"Bearer key")
		if second := left(); second < first-4000 {
			t.Errorf("%d tokens are left after a short answer, %d before it", second, first)
		}
	})
}

func TestSpentBudgetIsRejectedWithoutRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { day_tokens: 10 }", fakeEngine(), bigEngine())
		if a := r.sendChat("cheap"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a := r.sendChat("cheap")
		if a.status != 429 || a.header.Get("X-Should-Retry") != "false" ||
			!strings.Contains(a.body, `"code":"insufficient_quota"`) || !strings.Contains(a.body, "daily token budget") {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		if got := r.row("refused"); got.Requests != 1 || got.Prompt+got.Output != 0 {
			t.Errorf("the rejected request is %+v in the ledger", got)
		}
	})
}

func TestASpentBudgetMovesToTheCheapestTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "degrade: true, limits: { day_money: 0.0001 }", fakeEngine(), bigEngine())
		if a := r.sendChat("dear"); a.status != 200 || a.header.Get("X-Model-Tier") != "large" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a := r.sendChat("dear")
		if a.status != 200 || a.header.Get("X-Model-Tier") != "small" ||
			!strings.HasPrefix(a.header.Get("X-Tier-Reason"), "budget") {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		if a := r.sendChat("big-70b"); a.status != 429 || !strings.Contains(a.body, "insufficient_quota") {
			t.Errorf("an engine's own model was moved: %d %s", a.status, a.body)
		}
		if got := r.row("ok"); got.Requests != 2 || got.Money <= 0 {
			t.Errorf("the ledger has %+v", got)
		}
	})
}

// RL-10: only the answer that the client received is charged.
func TestFailedAttemptsAreNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := fakeEngine()
		calls := 0
		flaky := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if calls++; calls == 1 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			engine.ServeHTTP(w, q)
		})
		r := newRig(t, strings.Replace(fmt.Sprintf(limited, digestOfKey, "limits: { rpm: 60 }", "http://127.0.0.1:1"),
			"workers: [ %s ]", "workers: [ %s ]", 1), flaky, flaky)
		a := r.sendChat("cheap")
		if a.status != 200 || calls != 2 {
			t.Fatalf("%d after %d calls", a.status, calls)
		}
		u := openai.ReadAnswer(openai.Chat, []byte(a.body)).Usage
		got := r.row("ok")
		if got.Requests != 1 || got.Prompt != u.Prompt || got.Output != u.Output || got.Estimated != 0 {
			t.Errorf("the ledger has %+v, the client %+v", got, u)
		}
	})
}

// digestOfKey is the digest of "key".
const digestOfKey = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"

// RL-08: a client that disconnects is charged for the output that it received, by the gateway's own
// count.
func TestClientThatLeavesIsChargedForReceivedOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan struct{})
		r := limitedRig(t, "limits: { rpm: 60 }", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			defer close(left)
			w.Header().Set("Content-Type", "text/event-stream")
			for range 7 {
				writeNow(t, w,
					`data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`+"\n\n")
			}
			<-q.Context().Done()
		}), bigEngine())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
			strings.NewReader(`{"model":"cheap","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
		req.Header.Set("Authorization", "Bearer key")
		resp, err := r.net.transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		buf := make([]byte, 1<<10)
		for n := 0; strings.Count(string(buf[:n]), "data:") < 7; {
			more, err := resp.Body.Read(buf[n:])
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			n += more
		}
		cancel()
		<-left
		waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
		got := r.row("client_gone")
		if got.Requests != 1 || got.Estimated != 1 || got.Output != 7 || got.Prompt < 1 {
			t.Errorf("the ledger has %+v", got)
		}
	})
}

// RL-08: the engine has read the prompt even if the client leaves before the first token.
func TestClientThatLeavesEarlyIsChargedForItsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := make(chan struct{})
		r := limitedRig(t, "limits: { rpm: 60 }", http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			close(reading)
			<-q.Context().Done()
		}), bigEngine())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
			strings.NewReader(`{"model":"cheap","messages":[{"role":"user","content":"hi"}]}`))
		req.Header.Set("Authorization", "Bearer key")
		go func() { <-reading; cancel() }()
		if resp, err := r.net.transport.RoundTrip(req); err == nil {
			resp.Body.Close()
			t.Fatal("an answer came")
		}
		waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
		if got := r.row("client_gone"); got.Requests != 1 || got.Estimated != 1 || got.Output != 0 || got.Prompt < 1 {
			t.Errorf("the ledger has %+v", got)
		}
	})
}

// TestTokenCountingIsNotCharged: counting does not run the model.
func TestTokenCountingIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counter := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"input_tokens":5000,"count":5000,"max_model_len":1,"tokens":[1,2]}`)
		})
		yaml := strings.Replace(fmt.Sprintf(limited, digestOfKey, "limits: { tpm: 100, day_tokens: 1000 }",
			"http://127.0.0.1:1"), "messages, embeddings]", "messages, embeddings, tokenize]", 1)
		r := newRig(t, yaml, counter)
		body := `{"model":"cheap","max_tokens":900,"prompt":"` + strings.Repeat("word ", 500) +
			`","messages":[{"role":"user","content":"` + strings.Repeat("word ", 500) + `"}]}`
		for range 3 {
			for _, path := range []string{"/v1/messages/count_tokens", "/tokenize"} {
				if a := r.post(path, body, "Authorization", "Bearer key"); a.status != 200 {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			}
		}
		if got := r.row("ok"); got.Requests != 6 || got.Prompt+got.Output != 0 || got.Money != 0 || got.Estimated != 0 {
			t.Errorf("the ledger has %+v", got)
		}
	})
}

// RL-05: a client that disconnects releases its slot, at whatever point.
func TestClientsThatLeaveReleaseTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		defer close(block)
		r := limitedRig(t, "limits: { concurrent: 2 }", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			select {
			case <-q.Context().Done():
			case <-block:
			}
		}), bigEngine())
		for i := range 40 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i%5)*time.Millisecond, cancel)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
				strings.NewReader(`{"model":"cheap","messages":[{"role":"user","content":"hi"}]}`))
			req.Header.Set("Authorization", "Bearer key")
			if resp, err := r.net.transport.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
			cancel()
		}
		waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
		for range 2 {
			if a := r.sendChat("dear"); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	})
}

// AU-13: the engine receives a cache_salt that belongs to the tenant, whatever salt the client sends.
func TestACacheSaltIsTheTenantsOwn(t *testing.T) {
	for name, c := range map[string]struct{ settings, body, want string }{
		"no salt": {"priority: batch", `{"model":"cheap","messages":[{"role":"user","content":"hi"}]}`, ""},
		"isolate_cache": {"isolate_cache: true", `{"model":"cheap","messages":[{"role":"user","content":"hi"}]}`,
			openai.CacheSalt("acme", "")},
		"the client's salt": {"priority: batch",
			`{"model":"cheap","cache_salt":"theirs","messages":[{"role":"user","content":"hi"}]}`,
			openai.CacheSalt("acme", "theirs")},
		"isolate_cache and the client's salt": {"isolate_cache: true",
			`{"cache_salt":"theirs","model":"cheap","messages":[{"role":"user","content":"hi"}]}`,
			openai.CacheSalt("acme", "theirs")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got string
				engine := fakeEngine()
				salted := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					body, _ := io.ReadAll(q.Body)
					if m := regexp.MustCompile(`"cache_salt":"([^"]*)"`).FindSubmatch(body); m != nil {
						got = string(m[1])
					}
					q.Body = io.NopCloser(strings.NewReader(string(body)))
					engine.ServeHTTP(w, q)
				})
				yaml := strings.Replace(fmt.Sprintf(limited, digestOfKey, c.settings, "http://127.0.0.1:1"), "model: fake-7b",
					"model: fake-7b\n    engine: vllm", 1)
				r := newRig(t, yaml, salted)
				if a := r.post("/v1/chat/completions", c.body, "Authorization", "Bearer key"); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
				if got != c.want || strings.Contains(got, "theirs") {
					t.Errorf("the engine got the salt %q, want %q", got, c.want)
				}
			})
		})
	}
}

// AU-05: an address that tries many keys gets 429. Valid keys of the same address are not affected.
func TestManyWrongKeysAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "priority: batch", fakeEngine(), bigEngine())
		for i := range 20 + 5 {
			a := r.post("/v1/chat/completions", hello, "Authorization", fmt.Sprintf("Bearer wrong-%d", i))
			want := 401
			if i >= 20 {
				want = 429
			}
			if a.status != want {
				t.Fatalf("wrong key %d: %d %s", i, a.status, a.body)
			}
		}
		if a := r.sendChat("cheap"); a.status != 200 {
			t.Errorf("a valid key: %d %s", a.status, a.body)
		}
	})
}

// TestBackgroundResponseIsChargedAtOnce: the answer "queued" has no usage, so the maximum output is
// charged.
func TestBackgroundResponseIsChargedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"id":"resp_1","object":"response","status":"queued","usage":null}`)
		})
		r := limitedRig(t, "limits: { day_tokens: 600 }", queued, bigEngine())
		body := `{"model":"cheap","input":"hi","background":true,"max_output_tokens":500}`
		for i, want := range []int{200, 200, 429} {
			if a := r.post("/v1/responses", body, "Authorization", "Bearer key"); a.status != want {
				t.Errorf("response %d: %d %s", i, a.status, a.body)
			}
		}
		if got := r.row("ok"); got.Output != 1000 || got.Estimated != 2 {
			t.Errorf("the ledger has %+v", got)
		}
		if a := r.post("/v1/responses/resp_1/cancel", "", "Authorization", "Bearer key"); a.status == 429 {
			t.Error("a tenant with a spent budget cannot cancel")
		}
	})
}

func TestEachPromptOfARequestIsReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { tpm: 1000 }", fakeEngine(), bigEngine())
		body := `{"model":"cheap","max_tokens":200,"prompt":["a","b","c","d","e","f"]}`
		if a := r.post("/v1/completions", body, "Authorization", "Bearer key"); a.status != 429 ||
			!strings.Contains(a.body, "Request too large") {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// AU-13: a tenant with isolate_cache may not use pass-through paths. For other tenants, a salt in such
// a body is replaced by one of the tenant's own.
func TestPassthroughBodiesCarryNoForeignSalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for settings, want := range map[string]int{"priority: batch": 200, "isolate_cache: true": 404} {
			var got string
			engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				got = string(body)
			})
			yaml := strings.Replace(plain, "auth: { required: false }", fmt.Sprintf("auth: { keys: [ { name: acme, sha256: %s, "+
				"%s } ] }\npools: [ { name: raw, paths: [\"/raw/*\"], workers: [ { name: raw-0, url: %q } ] } ]", digestOfKey,
				settings, startServer(t, engine)), 1)
			r := newRig(t, yaml, fakeEngine())
			for _, body := range []string{`{"cache_salt":"VICTIM","x":1}`, `{"cache_\u0073alt":"VICTIM"}`} {
				got = ""
				a := r.post("/raw/any", body, "Authorization", "Bearer key")
				if a.status != want || strings.Contains(got, "VICTIM") ||
					want == 200 && !strings.Contains(got, openai.CacheSalt("acme", "VICTIM")) {
					t.Errorf("%s, %s: %d, the engine got %q", settings, body, a.status, got)
				}
			}
			for _, body := range []string{`{"extra_key":"VICTIM"}`, `{"cache_salt":"a","cache_salt":"b"}`, `{"cache_salt":`} {
				got = ""
				if a := r.post("/raw/any", body, "Authorization", "Bearer key"); a.status < 400 || got != "" {
					t.Errorf("%s, %s: %d, the engine got %q", settings, body, a.status, got)
				}
			}
		}
	})
}

// TestAuthenticatedRequestsAreInTheLedger, also if no route matches or a WebSocket is requested. A list
// of models uses nothing and is not recorded.
func TestAuthenticatedRequestsAreInTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { rpm: 600 }", fakeEngine(), bigEngine())
		for _, c := range []struct {
			method, path string
			headers      []string
			status, rows int
		}{
			{"GET", "/v1/models", nil, 200, 0},
			{"GET", "/v1/models/none", nil, 404, 0},
			{"GET", "/v1/responses", []string{"Upgrade", "websocket"}, 426, 1},
			{"GET", "/v1/none", nil, 404, 2},
			{"POST", "/v1/chat/completions", nil, 400, 3},
		} {
			a := r.do(c.method, c.path, "", append([]string{"Authorization", "Bearer key"}, c.headers...)...)
			if got := r.row("refused").Requests; a.status != c.status || got != int64(c.rows) {
				t.Errorf("%s %s: %d, %d rows in the ledger, want %d, %d", c.method, c.path, a.status, got, c.status, c.rows)
			}
		}
	})
}
