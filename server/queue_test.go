package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/engines/chaos"
)

// narrowYAML is one tier. Its first worker has one slot. Its verbs are the digests of two keys, more
// settings of the queue, the worker's URL, and more workers.
const narrowYAML = `
auth: { keys: [ { name: acme, sha256: %s }, { name: low, sha256: %s, priority: batch } ] }
health: { path: "off" }
retry: { attempts: 2, budget: 1 }
queue: { heartbeat_after: 30ms%s }
tiers:
  - name: small
    model: fake-7b
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
}

func newBlockingEngine(c engines.Config) *blockingEngine {
	h := &blockingEngine{let: make(chan struct{})}
	c.Name, c.Model = "fake", "fake-7b"
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
func narrowRig(t *testing.T, h *blockingEngine, queue string, more ...string) *rig {
	t.Helper()
	digest := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	url := startServer(t, h)
	r := newRig(t, fmt.Sprintf(narrowYAML, digest("key"), digest("low"), queue, url, strings.Join(more,
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

// TestACancelledRequestLeavesTheQueue: no part of it reaches an engine, its place is free, and no
// worker is blamed.
func TestACancelledRequestLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, "")
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
		if got := strings.Count(r.accessLog(), `"outcome":"client_gone"`); got != 20 {
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
		r := narrowRig(t, h, "", fmt.Sprintf(", { name: w1, url: %q }", broken))
		first := r.occupySlot()
		second := r.chat(context.Background(), "hi", "")
		r.waitForQueued(1)
		h.release()
		if a := <-second; a.status != http.StatusOK || a.header.Get("X-Routed-To") != "w0" {
			t.Errorf("%d from %s: %s", a.status, a.header.Get("X-Routed-To"), a.body)
		}
		<-first
		if log := r.accessLog(); !strings.Contains(log, `"attempts":2`) {
			t.Errorf("the broken worker was not tried: %s", log)
		}
	})
}

// TestARequestWhoseDeadlineCannotBeMetIsRejected: the client waits 1 s, and the queue holds 5 s of
// work.
func TestARequestWhoseDeadlineCannotBeMetIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{PerToken: 150 * time.Millisecond})
		r := narrowRig(t, h, "")
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
