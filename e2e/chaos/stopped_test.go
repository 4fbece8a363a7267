package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// stopLoad is the load under which a worker stops: requests that share a system message, and the time after which a
// client leaves. In real time clients are patient, and their requests must all succeed on any machine.
type stopLoad struct {
	warmUp, requests int
	gap              time.Duration
	patience         time.Duration
	mostFailures     int
}

func newStopLoad() stopLoad {
	if rig.Soaking() {
		return stopLoad{warmUp: 20, requests: 20, gap: 100 * time.Millisecond, patience: 5 * time.Minute}
	}
	return stopLoad{warmUp: 80, requests: 120, gap: 200 * time.Millisecond, patience: 12 * time.Second, mostFailures: 5}
}

// TestWorkerThatStopsFailsFewRequests: by default, the worker that has cached the common prompt receives the requests.
// It stops generating; its health check passes, or its listener is closed too.
func TestWorkerThatStopsFailsFewRequests(t *testing.T) {
	for name, closes := range map[string]bool{"it hangs": false, "it closes its listener": true} {
		for _, stream := range []bool{true, false} {
			bubble.Run(t, fmt.Sprintf("%s, stream %t", name, stream), func(t *testing.T) {
				r := newStopRig(t)
				l := newStopLoad()
				r.send(l, l.warmUp, stream)
				sick := r.workers[0]
				if r.workers[1].count() > sick.count() {
					sick = r.workers[1]
				}
				sick.stopped.Store(true)
				if closes {
					sick.listener.Close() // its open connections go on
				}
				failed := r.send(l, l.requests, stream)
				t.Logf("%d of %d requests failed; the longest wait at the worker was %s", len(failed), l.requests, sick.longest())
				if len(failed) > l.mostFailures {
					t.Errorf("%d requests failed, at most %d may: %s", len(failed), l.mostFailures, failed[0])
				}
				if wait := sick.longest(); l.mostFailures > 0 && wait > 15*time.Second {
					t.Errorf("a request without content was at the worker for %s", wait)
				}
			})
		}
	}
}

// stopRig is a gateway with the default settings in front of two workers that can stop.
type stopRig struct {
	*chaosRig
	workers []*stopWorker
}

// stopWorker is a worker that can stop.
type stopWorker struct {
	http.Handler
	listener net.Listener
	stopped  atomic.Bool // streams get a head and no event, other requests nothing

	mu     sync.Mutex
	served int
	waited time.Duration // longest time of a request while the worker was stopped
}

func (w *stopWorker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Handler.ServeHTTP(rw, r)
		return
	}
	w.mu.Lock()
	w.served++
	w.mu.Unlock()
	if !w.stopped.Load() {
		w.Handler.ServeHTTP(rw, r)
		return
	}
	began := time.Now()
	if body, err := io.ReadAll(r.Body); err == nil && strings.Contains(string(body), `"stream":true`) {
		rw.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(rw).Flush() // the gateway may have left
	}
	<-r.Context().Done()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waited = max(w.waited, time.Since(began))
}

func (w *stopWorker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served
}

func (w *stopWorker) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waited.Round(10 * time.Millisecond)
}

func newStopRig(t *testing.T) *stopRig {
	t.Helper()
	r := &stopRig{}
	var list []string
	for i := range 2 {
		engine := engines.New(engines.Config{Name: "engine", Model: "sim", Prefill: 10_000, PerToken: 10 * time.Millisecond,
			CacheTokens: 100_000, Slots: 4096})
		t.Cleanup(engine.Close)
		l, err := rig.EnvironmentOf(t).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := &stopWorker{Handler: engine, listener: l}
		server := &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
		t.Cleanup(func() { server.Close() })
		go server.Serve(l) // it ends when the listener or the server is closed
		r.workers = append(r.workers, w)
		list = append(list, fmt.Sprintf("{ name: w%d, url: %q }", i, "http://"+l.Addr().String()))
	}
	r.chaosRig = &chaosRig{rig.New(t, 0, engines.Config{}, rig.Settings{"admin": `{}`, "auth": `{ required: false }`,
		"health": `{}`, "tiers": "[ { name: small, model: sim, workers: [ " + strings.Join(list, ", ") + " ] } ]"})}
	r.Serve(nil)
	return r
}

// send sends n requests at intervals and returns the errors of those that failed.
func (r *stopRig) send(l stopLoad, n int, stream bool) (failed []error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	system := strings.Repeat("You answer in short sentences. ", 64)
	for range n {
		rig.Pause(r.T.Context(), l.gap)
		body := fmt.Sprintf(`{"model":"sim","stream":%t,"max_tokens":20,"messages":[{"role":"system","content":%q},`+
			`{"role":"user","content":"question %d"}]}`, stream, system, r.NextID())
		all.Go(func() {
			ctx, cancel := context.WithTimeout(r.T.Context(), l.patience)
			defer cancel()
			if err := r.exchange(r.Request(ctx, http.MethodPost, chat.path, body)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	all.Wait()
	return failed
}

// exchange sends a request and reads its answer.
func (r *stopRig) exchange(q *http.Request) error {
	resp, err := r.Client.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || strings.Contains(string(body), `"error"`)) {
		err = fmt.Errorf("status %d: %.300s", resp.StatusCode, body)
	}
	return err
}
