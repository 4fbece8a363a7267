package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/engines/chaos"
)

// narrowYAML is one tier. Its first worker has one slot. Its verbs are the digests of two keys, more
// settings of the queue, the engine, the worker's URL, and more workers.
const narrowYAML = `
auth: { keys: [ { name: acme, sha256: %s }, { name: low, sha256: %s, priority: batch } ] }
health: { path: "off" }
retry: { attempts: 2, budget: 1 }
queue: { heartbeat_after: 30ms%s }
tiers:
  - name: small
    model: fake-7b
    engine: %s
    serves: [chat]
    policy: { name: least_load }
    workers: [ { name: w0, url: %q, max_inflight: 1 }%s ]
models: { auto: small }
`

// blockingEngine is an engine. Its answers to a prompt with the word "hold" wait for release.
type blockingEngine struct {
	*chaos.Recorder
	once sync.Once
	let  chan struct{}

	mu    sync.Mutex // guards ended
	ended []engines.Account
}

// accounts returns the accounts of the requests that have ended.
func (h *blockingEngine) accounts() []engines.Account {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ended)
}

func newBlockingEngine(c engines.Config) *blockingEngine {
	h := &blockingEngine{let: make(chan struct{})}
	c.Name, c.Model = "fake", "fake-7b"
	c.Ended = func(_ *http.Request, a engines.Account) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ended = append(h.ended, a)
	}
	c.Script = func(_ string, body []byte) engines.Script {
		if strings.Contains(string(body), "hold") {
			return engines.Script{Tokens: 4, HoldAfter: 1, Release: h.let}
		}
		return engines.Script{Tokens: 4}
	}
	h.Recorder = chaos.Record(engines.New(c))
	return h
}

func (h *blockingEngine) release() { h.once.Do(func() { close(h.let) }) }

// narrowRig serves narrow in front of h. Its keys are "key" and "low".
func narrowRig(t *testing.T, h *blockingEngine, queue, engine string, more ...string) *rig {
	t.Helper()
	digest := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	url := startServer(t, h)
	r := newRig(t, fmt.Sprintf(narrowYAML, digest("key"), digest("low"), queue, engine, url, strings.Join(more,
		""))+"# %s")
	t.Cleanup(h.release) // before the server waits for requests in flight
	r.stopControl = r.runControl()
	r.waitForChecks()
	t.Cleanup(func() {
		if n := r.control.Snapshot().Pools[0].WaitQueue.Waiting(); n != 0 {
			t.Errorf("%d requests are still queued", n)
		}
	})
	return r
}

const chatOf = `{"model":"auto","messages":[{"role":"user","content":%q}],"max_tokens":4%s}`

func (r *rig) chat(ctx context.Context, word, more string, headers ...string) <-chan httpAnswer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(chatOf, word, more)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer key")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	got := make(chan httpAnswer, 1)
	go func() {
		resp, err := r.net.transport.RoundTrip(req)
		if err != nil {
			got <- httpAnswer{err: err}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- httpAnswer{resp.StatusCode, resp.Header, string(body), err}
	}()
	return got
}

// occupySlot sends a request that occupies the only slot, and returns when it does.
func (r *rig) occupySlot() <-chan httpAnswer {
	r.t.Helper()
	got := r.chat(context.Background(), "hold", "")
	r.until("the slot is occupied", func() bool { return r.control.Pools.Gauges()[0].Inflight == 1 })
	return got
}

func (r *rig) waitForQueued(n int) {
	r.t.Helper()
	r.until(fmt.Sprint(n, " queued requests"),
		func() bool { return r.control.Snapshot().Pools[0].WaitQueue.Waiting() == n })
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	waitUntil(r.t, what, ok)
}

// TestARequestWaitsForASlot: it is served when the slot is free, and X-Queue-Ms is its wait.
func TestARequestWaitsForASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, "", "auto")
		first := r.occupySlot()
		second := r.chat(context.Background(), "hi", "")
		r.waitForQueued(1)
		time.AfterFunc(20*time.Millisecond, h.release)
		if a := <-first; a.status != http.StatusOK || a.header.Get("X-Queue-Ms") != "0" {
			t.Errorf("the first: %d, X-Queue-Ms %q, want 200 and 0", a.status, a.header.Get("X-Queue-Ms"))
		}
		a := <-second
		if waited, err := strconv.ParseFloat(a.header.Get("X-Queue-Ms"), 64); a.status != http.StatusOK || err != nil ||
			waited < 10 {
			t.Errorf("the second: %d, X-Queue-Ms %q, want 200 and 10 or more", a.status, a.header.Get("X-Queue-Ms"))
		}
	})
}

// TestQueuedRequestsAreServedByPriority: the class comes from the header or the service tier. QU-08: it
// is never above the tenant's.
func TestQueuedRequestsAreServedByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, "", "vllm")
		first := r.occupySlot()
		var all []<-chan httpAnswer
		for i, c := range []struct{ word, more, key, class string }{
			{"clamped", "", "low", "interactive"}, {"batch", "", "key", "batch"}, {"flex", `,"service_tier":"flex"`, "key", ""},
			{"background", "", "key", "background"}, {"urgent", "", "key", ""},
		} {
			all = append(all, r.chat(context.Background(), c.word, c.more, "Authorization", "Bearer "+c.key,
				"X-Request-Priority", c.class))
			r.waitForQueued(i + 1)
		}
		h.release()
		for _, got := range append(all, first) {
			if a := <-got; a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		var order []string
		for _, q := range h.Requests() {
			for _, word := range []string{"hold", "clamped", "batch", "flex", "background", "urgent"} {
				if strings.Contains(string(q.Body), `"`+word+`"`) {
					order = append(order, word)
				}
			}
		}
		// Within a class tenants alternate: a tenant without a served request goes first.
		if got := strings.Join(order, " "); got != "hold urgent background clamped batch flex" {
			t.Errorf("served in the order %s", got)
		}
		for _, acc := range h.accounts() {
			if acc.Prioritized != (acc.Priority > 0) {
				t.Errorf("a priority of %d was sent", acc.Priority)
			}
		}
	})
}

// TestPriorityIsForwardedToTheEngine: never above the class, and not after the engine has rejected it.
// Usage that the client requested still arrives.
func TestPriorityIsForwardedToTheEngine(t *testing.T) {
	const usage = `,"stream":true,"stream_options":{"include_usage":true}`
	t.Run("accepted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newBlockingEngine(engines.Config{Priority: engines.PriorityFirst})
			r := narrowRig(t, h, "", "vllm")
			for _, c := range []struct {
				class, more string
				want        int64
				sent        bool
			}{
				{"interactive", "", 0, false}, {"background", "", 10, true}, {"batch", "", 20, true},
				{"batch", `,"priority":-5`, 20, true}, {"batch", `,"priority":25`, 25, true},
				{"interactive", `,"priority":-5`, 0, true},
			} {
				a := <-r.chat(context.Background(), "hi", c.more+usage, "X-Request-Priority", c.class)
				if a.status != http.StatusOK || !strings.Contains(a.body, `"usage":{`) {
					t.Errorf("%s%s: %d %s, want usage", c.class, c.more, a.status, a.body)
				}
				accounts := h.accounts()
				if got := accounts[len(accounts)-1]; got.Priority != c.want || got.Prioritized != c.sent {
					t.Errorf("%s%s: sent %d (%v), want %d (%v)", c.class, c.more, got.Priority, got.Prioritized, c.want, c.sent)
				}
			}
		})
	})
	t.Run("rejected", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newBlockingEngine(engines.Config{Priority: engines.PriorityRefused})
			r := narrowRig(t, h, "", "vllm")
			for range 3 {
				if a := <-r.chat(context.Background(), "hi", "", "X-Request-Priority", "batch"); a.status != http.StatusOK {
					t.Errorf("%d %s", a.status, a.body)
				}
			}
			sent := 0
			for _, acc := range h.accounts() {
				if acc.Prioritized {
					sent++
				}
			}
			if sent != 1 {
				t.Errorf("a priority was sent %d times, want once", sent)
			}
		})
	})
}

// QU-01: a full queue rejects at once, with Retry-After.
func TestAFullQueueRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, ", max_depth: 2", "auto")
		first := r.occupySlot()
		one, two := r.chat(context.Background(), "hi", ""), r.chat(context.Background(), "hi", "")
		r.waitForQueued(2)
		a := <-r.chat(context.Background(), "hi", "")
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(a.body), &e); err != nil || a.status != http.StatusServiceUnavailable ||
			e.Error.Code != "overloaded" {
			t.Errorf("the third: %d %s", a.status, a.body)
		}
		after, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil || after < 1 || a.header.Get("Retry-After-Ms") == "" {
			t.Errorf("Retry-After %q, Retry-After-Ms %q", a.header.Get("Retry-After"), a.header.Get("Retry-After-Ms"))
		}
		if a.header.Get("X-Should-Retry") != "" {
			t.Errorf("X-Should-Retry is %q: a shed request should be retried", a.header.Get("X-Should-Retry"))
		}
		h.release()
		for _, got := range []<-chan httpAnswer{first, one, two} {
			if a := <-got; a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if got := len(h.Requests()); got != 3 {
			t.Errorf("the engine got %d requests, want 3", got)
		}
	})
}

// QU-02: an answer that has not begun gets status 503. A stream that heartbeats have opened gets an
// error frame.
func TestTheWaitIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, ", max_wait: { interactive: 100ms }", "auto")
		first := r.occupySlot()
		whole, stream := r.chat(context.Background(), "hi", ""), r.chat(context.Background(), "hi", `,"stream":true`)
		if a := <-whole; a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "overloaded") ||
			a.header.Get("Retry-After") == "" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		a := <-stream
		if a.status != http.StatusOK || !strings.HasPrefix(a.body, ": keep-alive\n\n") ||
			!strings.Contains(a.body, "overloaded") || strings.Contains(a.body, "[DONE]") {
			t.Errorf("the stream: %d %q, want heartbeats and an error frame", a.status, a.body)
		}
		h.release()
		<-first
		if got := len(h.Requests()); got != 1 {
			t.Errorf("the engine got %d requests, want 1", got)
		}
	})
}

// TestAStreamIsKeptAliveWhileItWaits and is then complete.
func TestAStreamIsKeptAliveWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, "", "auto")
		r.occupySlot()
		stream := r.chat(context.Background(), "hi", `,"stream":true`)
		r.waitForQueued(1)
		time.AfterFunc(100*time.Millisecond, h.release)
		if a := <-stream; !strings.HasPrefix(a.body, ": keep-alive\n\n") || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("the stream: %d %q", a.status, a.body)
		}
	})
}

// TestACancelledRequestLeavesTheQueue: no part of it reaches an engine, its place is free, and no
// worker is blamed.
func TestACancelledRequestLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, "", "auto")
		first := r.occupySlot()
		ctx, leave := context.WithCancel(context.Background())
		var all []<-chan httpAnswer
		for range 20 {
			all = append(all, r.chat(ctx, "hi", ""))
		}
		r.waitForQueued(20)
		leave()
		for _, got := range all {
			<-got
		}
		r.waitForQueued(0)
		h.release()
		<-first
		r.until("all ended", func() bool { return r.Inflight() == 0 })
		if got := len(h.Requests()); got != 1 {
			t.Errorf("the engine got %d requests, want 1", got)
		}
		if got := strings.Count(r.access.String(), `"outcome":"client_gone"`); got != 20 {
			t.Errorf("%d of 20 ended as client_gone", got)
		}
	})
}

// TestARetryWaitsForAnotherWorker: one worker fails, and the other one is full.
func TestARetryWaitsForAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		broken := startServer(t,
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		r := narrowRig(t, h, "", "auto", fmt.Sprintf(", { name: w1, url: %q }", broken))
		first := r.occupySlot()
		second := r.chat(context.Background(), "hi", "")
		r.waitForQueued(1)
		h.release()
		if a := <-second; a.status != http.StatusOK || a.header.Get("X-Routed-To") != "w0" {
			t.Errorf("%d from %s: %s", a.status, a.header.Get("X-Routed-To"), a.body)
		}
		<-first
		if log := r.access.String(); !strings.Contains(log, `"attempts":2`) {
			t.Errorf("the broken worker was not tried: %s", log)
		}
	})
}

// TestARequestWhoseDeadlineCannotBeMetIsRejected: the client waits 1 s, and the queue holds 5 s of
// work.
func TestARequestWhoseDeadlineCannotBeMetIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{PerToken: 150 * time.Millisecond})
		r := narrowRig(t, h, "", "auto")
		for range 9 { // about 0.5 s each
			<-r.chat(context.Background(), "hi", "")
		}
		first := r.occupySlot()
		ctx, leave := context.WithCancel(context.Background())
		for range 10 {
			r.chat(ctx, "hi", "")
		}
		r.waitForQueued(10)
		a := <-r.chat(context.Background(), "hi", "", "X-Stainless-Timeout", "1")
		if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "longer than its client does") {
			t.Errorf("%d %s", a.status, a.body)
		}
		leave()
		r.waitForQueued(0)
		h.release()
		<-first
	})
}
