package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"tierway/breaker"
	"tierway/engines"
	"tierway/http1"
	"tierway/server/control"
)

// waitForChecks waits until every worker has its first health check.
func (r *rig) waitForChecks() {
	r.t.Helper()
	r.until("every worker is checked", func() bool {
		for _, p := range r.control.Snapshot().Pools {
			for _, w := range p.LiveWorkers(time.Now()) {
				if w.Health.Since.IsZero() {
					return false
				}
			}
		}
		return true
	})
}

// runControl runs the control loops until stop is called or the test ends.
func (r *rig) runControl() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() { r.control.Run(ctx) })
	stop = func() { cancel(); owned.Wait() }
	r.t.Cleanup(stop)
	return stop
}

// TestAFollowUpWaitsForTheWorkerOfItsResponse, also if a reload adds a worker while it waits: the new
// worker does not have the response.
func TestAFollowUpWaitsForTheWorkerOfItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home, other := newBlockingEngine(engines.Config{}), newBlockingEngine(engines.Config{})
		yaml := `
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, serves: [responses], policy: { name: least_load }, workers: [ { name: w0, url: %q, max_inflight: 1 }%s ] }
`
		homeURL, otherURL := startServer(t, home), startServer(t, other)
		r, from := newReloadRig(t, fmt.Sprintf(yaml, homeURL, "")+"# %s\n")
		r.runControl()
		t.Cleanup(home.release) // before the server closes, which waits for its requests
		var stored struct{ ID string }
		if a := r.post("/v1/responses", `{"model":"small","input":"hi","store":true}`); json.Unmarshal([]byte(a.body),
			&stored) != nil || stored.ID == "" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		first, followed := make(chan httpAnswer, 1), make(chan httpAnswer, 1)
		go func() { first <- r.post("/v1/responses", `{"model":"small","input":"hold"}`) }()
		r.until("the slot is occupied", func() bool { return r.control.Pools.Gauges()[0].Inflight == 1 })
		go func() {
			followed <- r.post("/v1/responses", fmt.Sprintf(`{"model":"small","input":"more","previous_response_id":%q}`,
				stored.ID))
		}()
		r.waitForQueued(1)
		from.write(fmt.Sprintf(yaml, homeURL, fmt.Sprintf(", { name: w1, url: %q }", otherURL)))
		r.reload()
		if a := r.post("/v1/responses", `{"model":"small","input":"hi"}`); a.header.Get("X-Routed-To") != "w1" {
			t.Errorf("%d from %q: the new worker gets no request", a.status, a.header.Get("X-Routed-To"))
		}
		r.waitForQueued(1)
		home.release()
		if a := <-followed; a.status != http.StatusOK || a.header.Get("X-Routed-To") != "w0" {
			t.Errorf("the follow-up: %d from %q: %s", a.status, a.header.Get("X-Routed-To"), a.body)
		}
		<-first
	})
}

// TestARequestQueuedInARemovedTierIsServed: its queue continues until the worker's backoff ends. Then
// the pool is collected.
func TestARequestQueuedInARemovedTierIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		engine := fakeEngine()
		backingOff := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if calls.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			engine.ServeHTTP(w, q)
		})
		yaml := `
auth: { required: false }
health: { path: "off" }
retry: { attempts: 1 }
queue: { max_wait: { interactive: 5s } }
tiers:
  - { name: keep, model: other, serves: [chat], workers: [ { name: k0, url: %q } ] }
  - { name: %s, model: fake-7b, serves: [chat], policy: { name: least_load }, workers: [ { name: w0, url: %q } ] }
`
		url, keep := startServer(t, backingOff), startServer(t, fakeEngine())
		r, from := newReloadRig(t, fmt.Sprintf(yaml, keep, "small", url)+"# %s\n")
		stopControl := r.runControl()
		send := func() httpAnswer {
			return r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"hi"}]}`)
		}
		if a := send(); a.status != http.StatusServiceUnavailable {
			t.Fatalf("%d %s", a.status, a.body)
		}
		got := make(chan httpAnswer, 1)
		go func() { got <- send() }()
		r.until("the request is queued", func() bool { return r.control.Snapshot().ByName["small"].WaitQueue.Waiting() == 1 })
		pool := weak.Make(r.control.Snapshot().ByName["small"].Routing)
		from.write(fmt.Sprintf(yaml, keep, "renamed", url))
		r.reload()
		if a := <-got; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
		stopControl() // a tick during a collection would keep the pool until the next one
		r.until("the pool is collected", func() bool { runtime.GC(); return pool.Value() == nil })
	})
}

// TestBreakersOfARemovedPoolStillApply opens a breaker after the reload that removed its pool. The pool
// follows the breaker as long as requests use it.
func TestBreakersOfARemovedPoolStillApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := `
auth: { required: false }
health: { path: "off" }
breaker: { open_for: 50ms }
tiers:
  - { name: %s, model: fake-7b, serves: [chat], workers: [ { name: w0, url: %q } ] }
`
		url := startServer(t, fakeEngine())
		r, from := newReloadRig(t, fmt.Sprintf(yaml, "small", url)+"# %s\n")
		p := r.control.Snapshot().ByName["small"]
		from.write(fmt.Sprintf(yaml, "renamed", url))
		r.reload()
		m := p.Routing.Snapshot(time.Now())[0].Ref.(*control.Member)
		for range 5 {
			ticket, err := m.Gate.Allow(0)
			if err != nil {
				t.Fatal(err)
			}
			m.Gate.Report(ticket, &http1.SendError{Phase: http1.PhaseConnect, Err: errors.New("connection refused")})
		}
		if v := p.Routing.Snapshot(time.Now())[0]; m.Gate.View().State != breaker.Open || v.Open <= 0 {
			t.Errorf("the breaker is %s, and the pool ejects the worker for %v", m.Gate.View().State, v.Open)
		}
		r.runControl()
		r.until("the breaker is half-open", func() bool { return m.Gate.View().State == breaker.HalfOpen })
		if v := p.Routing.Snapshot(time.Now())[0]; v.Open != 0 {
			t.Errorf("the pool ejects the worker of a half-open breaker for %v", v.Open)
		}
		runtime.KeepAlive(p)
	})
}

// TestEngineWaitAppliesToTheRequestThatFoundTheWorkerDown as to later requests.
func TestEngineWaitAppliesToTheRequestThatFoundTheWorkerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := networkOf(t).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		l.Close()
		for _, c := range []struct {
			wait   string
			status int
		}{{"0s", http.StatusBadGateway}, {"8s", http.StatusOK}} {
			r := newRig(t, fmt.Sprintf(`
auth: { required: false }
health: { path: "off" }
queue: { engine_wait: %s }
tiers:
  - { name: small, model: fake-7b, serves: [chat], workers: [ { name: w0, url: "http://%s" } ] }
`, c.wait, addr)+"# %s")
			r.runControl()
			r.waitForChecks()
			got := make(chan httpAnswer, 1)
			go func() {
				got <- r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"hi"}]}`)
			}()
			if c.status == http.StatusOK {
				r.waitForQueued(1)
				back, err := r.net.Listen("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				engine := &http.Server{Handler: fakeEngine(), ReadHeaderTimeout: time.Minute}
				defer engine.Close()
				go engine.Serve(back) // ends with the test
			}
			if a := <-got; a.status != c.status {
				t.Errorf("engine_wait %s: %d %s", c.wait, a.status, a.body)
			}
		}
	})
}

// TestAFailureWhoseRetryIsShedIsFinal: the client gets the worker's error with X-Should-Retry: false,
// because the gateway has already tried to retry.
func TestAFailureWhoseRetryIsShedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		broken := startServer(t,
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		r := narrowRig(t, h, ", max_wait: { interactive: 200ms }", fmt.Sprintf(", { name: w1, url: %q }", broken))
		first := r.occupySlot()
		a := <-r.chat(t.Context(), "hi") // fails on the broken worker; the other one stays full
		if a.status != http.StatusBadGateway || a.header.Get("X-Should-Retry") != "false" {
			t.Errorf("%d, X-Should-Retry %q, want 502 and false", a.status, a.header.Get("X-Should-Retry"))
		}
		h.release()
		<-first
		if log := r.accessLog(); !strings.Contains(log, `"attempts":1,`) || !strings.Contains(log, `"shed":"wait"`) {
			t.Errorf("the retry was not shed: %s", log)
		}
	})
}
