package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/breaker"
	"tierway/server/control"
)

// counting answers with a status, after a while, and counts.
type counting struct {
	status int
	after  time.Duration
	next   http.Handler // answers instead of status
	asked  atomic.Int64
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.asked.Add(1)
	if c.next == nil {
		w.WriteHeader(c.status)
		return
	}
	body, err := io.ReadAll(r.Body) // a client that leaves is noticed only after that
	if err != nil {
		return
	}
	timer := time.NewTimer(c.after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	c.next.ServeHTTP(w, again)
}

// stateOf is a worker's breaker.
func (r *rig) stateOf(name string) breaker.State {
	r.t.Helper()
	for _, p := range r.control.Snapshot().Pools {
		for _, v := range p.Routing.Snapshot(time.Now()) {
			if v.ID == name {
				return v.Ref.(*control.Member).Gate.State()
			}
		}
	}
	r.t.Fatalf("there is no worker %s", name)
	return 0
}

const held = `
auth: { required: false }
health: { path: "off" }
policy: { name: least_load }
retry: { attempts: 2, budget: 1 }
tiers:
  - name: small
    model: fake-7b
    workers: [ %s ]
`

// TestTwoSickWorkersDoNotExcuseEachOther, though all requests are the same, so that one
// failure of each proves nothing: the next ones go to other workers, whose answers do.
func TestTwoSickWorkersDoNotExcuseEachOther(t *testing.T) {
	sick := [2]*counting{{status: 500}, {status: 500}}
	well := [2]*counting{{next: fakeEngine(), after: 50 * time.Millisecond},
		{next: fakeEngine(), after: 50 * time.Millisecond}}
	r := newRig(t, held, sick[0], sick[1], well[0], well[1])
	var clients sync.WaitGroup
	var failed atomic.Int64
	for range 4 {
		clients.Go(func() {
			for range 25 {
				if r.post("/v1/chat/completions", ask("fake-7b", "Hi", "")).status != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	clients.Wait()
	for _, name := range []string{"w0", "w1"} {
		if st := r.stateOf(name); st != breaker.Open {
			t.Errorf("%s is %v", name, st)
		}
	}
	// What was under way until both had failed the request once.
	if n := failed.Load(); n > 20 {
		t.Errorf("%d of 100 requests failed", n)
	}
}

// TestASickWorkerGetsLittleWhileAnotherThinks, although the verdict on the sick one waits
// for the other's answer.
func TestASickWorkerGetsLittleWhileAnotherThinks(t *testing.T) {
	sick := &counting{status: 500}
	well := &counting{next: fakeEngine(), after: 2 * time.Second}
	r := newRig(t, held, sick, well)
	var clients sync.WaitGroup
	stop := time.Now().Add(2500 * time.Millisecond)
	for range 4 {
		clients.Go(func() {
			for time.Now().Before(stop) {
				r.post("/v1/chat/completions", ask("fake-7b", "Hi", ""))
			}
		})
	}
	clients.Wait()
	if n := sick.asked.Load(); n > 10 {
		t.Errorf("the sick worker was asked %d times", n)
	}
}

// TestAFollowUpTeachesNothingOfItsPrompt: the engine has read what the gateway
// has not.
func TestAFollowUpTeachesNothingOfItsPrompt(t *testing.T) {
	r := newRig(t, plain, fakeEngine())
	text := strings.Repeat("some words that an engine counts ", 40)
	scale := func() int64 { return r.control.Snapshot().ByName["small"].Routing.Estimates().PromptScale.Count }
	r.post("/v1/responses", `{"model":"fake-7b","input":"`+text+`","previous_response_id":"resp_elsewhere"}`)
	r.post("/v1/responses", `{"model":"fake-7b","input":"`+text+`","conversation":"conv_elsewhere"}`)
	r.post("/v1/rerank", `{"model":"fake-7b","query":"`+text+`","documents":["a","b"]}`)
	if n := scale(); n != 0 {
		t.Errorf("%d answers taught the scale of estimates", n)
	}
	r.post("/v1/responses", `{"model":"fake-7b","input":"`+text+`"}`)
	if n := scale(); n != 1 {
		t.Errorf("a whole prompt taught it %d times", n)
	}
}

// TestASickWorkerThatIsKeptGetsLittle: two of three fail at once, and one of them
// may not be left. It must not look like the idlest of all.
func TestASickWorkerThatIsKeptGetsLittle(t *testing.T) {
	sick := [2]*counting{{status: 500}, {status: 500}}
	r := newRig(t, held, sick[0], sick[1], &counting{next: fakeEngine(), after: 20 * time.Millisecond})
	var clients sync.WaitGroup
	var failed atomic.Int64
	for range 4 {
		clients.Go(func() {
			for range 50 {
				if r.post("/v1/chat/completions", ask("fake-7b", "Hi", "")).status != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if n := failed.Load(); n > 30 {
		t.Errorf("%d of 200 requests failed though a worker is well", n)
	}
}

// TestAProbeThatHangsMovesOn: the request that tries a worker waits no longer
// than the probe may take, and is answered by another one.
func TestAProbeThatHangsMovesOn(t *testing.T) {
	var hang atomic.Bool
	var hung atomic.Int64
	sick := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil && hang.Load() {
			hung.Add(1)
			<-r.Context().Done()
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := newRig(t, strings.Replace(held, "tiers:", "breaker: { open_for: 10ms, probe_timeout: 100ms }\ntiers:", 1), sick,
		fakeEngine())
	for r.stateOf("w0") == breaker.Closed {
		r.post("/v1/chat/completions", ask("fake-7b", "Hi", `,"max_tokens":1`))
	}
	hang.Store(true)
	for n := 0; hung.Load() == 0; n++ {
		got := r.post("/v1/chat/completions", ask("fake-7b", "Hi", `,"max_tokens":1`))
		if got.status != http.StatusOK || n > 5000 {
			t.Fatalf("request %d is %d: %s", n, got.status, got.body)
		}
	}
	if st := r.stateOf("w0"); st == breaker.Closed {
		t.Errorf("the worker that hangs is %v", st)
	}
}
