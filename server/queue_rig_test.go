package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tierway/engines"
	"tierway/engines/chaos"
)

// narrowYAML is one tier for the tenant of allKey. Its first worker has one slot. Its verbs are more settings of the
// queue, the worker's URL, and more workers.
const narrowYAML = `
auth: { keys: [ { name: acme, sha256: ` + digestOfKey + ` } ] }
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

// narrowRig serves narrowYAML in front of h.
func narrowRig(t *testing.T, h *blockingEngine, queue string, more ...string) *rig {
	t.Helper()
	r := newRig(t, fmt.Sprintf(narrowYAML, queue, startServer(t, h), strings.Join(more, ""))+"# %s")
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

const chatOf = `{"model":"auto","messages":[{"role":"user","content":%q}],"max_tokens":4}`

func (r *rig) chat(ctx context.Context, word string, headers ...string) <-chan httpAnswer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(chatOf, word)))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", allKey)
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
	got := r.chat(context.Background(), "hold")
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
