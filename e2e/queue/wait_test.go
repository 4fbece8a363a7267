package queue

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

// one is a rig of one engine with one place, which a request holds.
func one(t *testing.T, queue string) (*queueRig, *promise) {
	t.Helper()
	r := newRig(t, 1, engines.Config{})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""), "queue": queue})
	p := r.later(held)
	r.running(1)
	return r, p
}

// reached says whether an engine has got the request of an answer.
func (r *queueRig) reached(a rig.Reply) bool {
	for _, w := range r.Workers {
		for _, got := range w.Recorder.Requests() {
			if got.Header.Get("X-Request-Id") == a.ID {
				return true
			}
		}
	}
	return false
}

// outlived lets go of what is held, has everything served that still waits, and
// wants that no engine ever gets a request that was refused.
func (r *queueRig) outlived(waiting []*promise, refused ...rig.Reply) {
	r.T.Helper()
	r.ReleaseHeld()
	r.served(waiting)
	if err := r.now(plain).CheckOK(); err != nil {
		r.T.Errorf("a request after all others: %v", err)
	}
	r.WaitUntilQuiet()
	for _, a := range refused {
		if r.reached(a) {
			r.T.Errorf("the engine got a request that was refused: %d %s", a.Status, a.Body)
		}
	}
}

// TestNobodyWaitsLongerThanMaxWait: then the answer is 503 with the time after
// which to come back, and no engine ever sees the request.
//
// QU-02: queued longer than max_wait.
func TestNobodyWaitsLongerThanMaxWait(t *testing.T) {
	t.Parallel()
	const most = 400 * time.Millisecond
	r, holder := one(t, `{ max_wait: { interactive: 400ms, background: 60s, batch: 10m } }`)
	patient := r.later(plain, "X-Request-Priority", "batch")
	r.waiting(1)
	a := r.now(plain)
	if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
		t.Error(err)
	}
	if a.Duration() < most {
		t.Errorf("it was refused after %v, it may wait %v", a.Duration(), most)
	}
	if line := r.AccessLine(a.ID); line["code"] != "overloaded" || line["outcome"] != "failed" &&
		line["outcome"] != "refused" {
		t.Errorf("the log says %v", line)
	}
	r.waiting(1) // batch may wait longer
	r.outlived([]*promise{holder, patient}, a)
}

// TestAFullQueueRefusesAtOnce: as many wait as may, of each class; who comes then
// is refused while they wait on, and told to come back at a time of its own.
//
// QU-01: over the depth.
func TestAFullQueueRefusesAtOnce(t *testing.T) {
	t.Parallel()
	const depth = 8
	r, holder := one(t, fmt.Sprintf("{ max_depth: %d, %s }", depth, waitLong))
	served := append(r.crowd(depth, plain), holder)
	r.waiting(depth)
	served = append(served, r.later(plain, "X-Request-Priority", "background"),
		r.later(plain, "X-Request-Priority", "batch"))
	r.waiting(depth + 2) // classes have a depth each

	var refused []rig.Reply
	times := map[string]bool{}
	for range 20 {
		a := r.now(plain)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
			t.Error(err)
		}
		times[a.Header.Get("Retry-After-Ms")] = true
		refused = append(refused, a)
	}
	if len(times) < 5 {
		t.Errorf("20 refusals name %d times to come back: %v", len(times), times)
	}
	if shed := r.Sum("tierway_queue_shed_total", `reason="depth"`, `class="interactive"`); shed != 20 {
		t.Errorf("%v requests were counted as shed for the depth, 20 were", shed)
	}
	r.waiting(depth + 2)
	r.outlived(served, refused...)
}

// TestBodiesThatWaitAreBounded: over max_bytes the answer is the same, and small
// requests still get in.
//
// QU-01: over the bytes.
func TestBodiesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	r, holder := one(t, "{ max_bytes: 65536, "+waitLong+" }")
	large := chat(strings.Repeat("a long story ", 3000)) // some 39,000 bytes
	served := append(r.crowd(1, large), holder)
	r.waiting(1)
	a := r.now(large)
	if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
		t.Error(err)
	}
	served = append(served, r.later(plain))
	r.waiting(2)
	r.outlived(served, a)
}

// TestAHopelessDeadlineIsRefusedEarly: a client that says how long it waits is
// told at once that its turn comes later than that, not when its time is over.
func TestAHopelessDeadlineIsRefusedEarly(t *testing.T) {
	t.Parallel()
	const deadline = 4 * time.Second // the queue takes five times as long
	r := newRig(t, 1, engines.Config{Slots: 1, PerToken: 10 * time.Millisecond,
		Script: func(string, []byte) engines.Script { return engines.Script{Tokens: 11} }}) // a tenth of a second
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""), "queue": "{ " + waitLong + " }"})
	for range 20 { // what the pool serves in a second is learned
		if err := r.now(plain).CheckOK(); err != nil {
			t.Fatal(err)
		}
	}
	holder := r.later(held)
	r.running(1)
	queue := r.crowd(200, plain)
	r.waiting(200)
	hopeless := r.now(plain, "X-Stainless-Timeout", "4")
	if err := hopeless.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
		t.Error(err)
	}
	if hopeless.Duration() > deadline/2 {
		t.Errorf("it was refused after %v of the %v that it has", hopeless.Duration(), deadline)
	}
	if shed := r.Sum("tierway_queue_shed_total", `reason="deadline"`); shed != 1 {
		t.Errorf("%v requests were counted as shed for their deadline, 1 was", shed)
	}
	patient := r.later(plain, "X-Stainless-Timeout", "600")
	r.waiting(201)
	r.leave(append(queue, patient))
	r.waiting(0)
	r.outlived([]*promise{holder}, hopeless)
}

// TestAStreamBeatsWhileItWaits: comments come as long as it waits, then its answer;
// or, where nobody serves it in time, one error frame and no proper end.
func TestAStreamBeatsWhileItWaits(t *testing.T) {
	t.Parallel()
	r, holder := one(t, `{ heartbeat_after: 30ms, max_wait: { interactive: 2s, background: 10m, batch: 10m } }`)
	refused := r.open(stream)
	refused.ReadUntil(":")
	frame := r.rest(refused)
	if refused.Resp.StatusCode != http.StatusOK || !strings.HasPrefix(frame, ":") || strings.Count(frame, "data:") != 1 ||
		!strings.Contains(frame, `"code":"overloaded"`) || strings.Contains(frame, "[DONE]") {
		t.Errorf("a stream that waited in vain is %d: %s", refused.Resp.StatusCode, frame)
	}
	f := r.open(stream, "X-Request-Priority", "batch")
	f.ReadUntil(":")
	r.waiting(1)
	f.ReadUntil(":")
	r.ReleaseHeld()
	answer := r.rest(f)
	if !strings.HasPrefix(answer, ":") || !strings.Contains(answer, `"finish_reason":"stop"`) ||
		!strings.HasSuffix(answer, "data: [DONE]\n\n") || strings.Contains(answer, `"error"`) {
		t.Errorf("a stream that waited ended as %s", answer)
	}
	r.outlived([]*promise{holder})
}

// down is a rig of two engines that nobody hears, with a gateway that knows it.
func down(t *testing.T, queue string) *queueRig {
	t.Helper()
	r := unheardRig(t, 2, engines.Config{})
	r.Serve(rig.Settings{
		"tiers":  r.Tiers("max_inflight: 4", ""),
		"health": `{ path: auto, interval: 100ms, timeout: 100ms, down_after: 1, up_after: 1 }`,
		"queue":  queue,
	})
	rig.Eventually(t, func() error {
		if _, page := r.GetData("/readyz"); !strings.Contains(page, "small") {
			return fmt.Errorf("the gateway does not know that nobody is up: %s", page)
		}
		return nil
	})
	if up := r.Sum("tierway_worker_up"); up != 0 {
		t.Fatalf("%v workers are up", up)
	}
	return r
}

// TestEngineWait: while all engines are down, requests wait for one for so long:
// they are served when it comes, and refused when none does. A stream beats
// meanwhile.
//
// QU-07: all workers are away.
func TestEngineWait(t *testing.T) {
	t.Parallel()
	t.Run("an engine comes", func(t *testing.T) {
		t.Parallel()
		r := down(t, `{ engine_wait: 20s, heartbeat_after: 30ms }`)
		all := r.crowd(6, plain)
		f := r.open(stream)
		f.ReadUntil(":")
		r.waiting(7)
		r.Workers[1].Listen()
		r.served(all)
		if answer := r.rest(f); !strings.HasSuffix(answer, "data: [DONE]\n\n") || strings.Contains(answer, `"error"`) {
			t.Errorf("the stream that waited for an engine ended as %s", answer)
		}
	})
	t.Run("none comes", func(t *testing.T) {
		t.Parallel()
		const most = time.Second
		r := down(t, `{ engine_wait: 1s, heartbeat_after: 100ms }`)
		whole := r.later(plain)
		f := r.open(stream)
		frame := r.rest(f)
		if !strings.HasPrefix(frame, ":") || !strings.Contains(frame, `"code":"no_healthy_worker"`) ||
			strings.Contains(frame, "[DONE]") {
			t.Errorf("a stream that waited for an engine in vain is %d: %s", f.Resp.StatusCode, frame)
		}
		a := r.answer(whole)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "no_healthy_worker"); err != nil {
			t.Error(err)
		}
		if a.Duration() < most {
			t.Errorf("it was refused after %v, it waits %v for an engine", a.Duration(), most)
		}
		r.Workers[0].Listen()
		r.WaitUntilReady()
		r.outlived(nil, a)
	})
	t.Run("nobody waits", func(t *testing.T) {
		t.Parallel()
		r := down(t, `{ engine_wait: 0s }`)
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		defer cancel()
		a := r.ask(ctx, plain)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "no_healthy_worker"); err != nil {
			t.Error(err)
		}
		if q := r.Sum("tierway_queue_depth"); q != 0 {
			t.Errorf("%v requests wait", q)
		}
	})
}

// TestNobodyWaitsBesideAnIdleWorker: requests that a policy would have at one full
// worker go to another that is idle, and none of them is refused for its wait.
func TestNobodyWaitsBesideAnIdleWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, engines.Config{})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 2", ""), "policy": `{ name: chwbl }`})
	all := r.crowd(4, held) // one prompt, one home
	r.running(4)
	r.ReleaseHeld()
	r.served(all)
}

// TestWhoIsServedInTimeIsNotRefused: after a few answers that took a moment each, a
// burst that takes a fifth of max_wait is served whole, whatever the gateway took
// answers to be before it saw any.
func TestWhoIsServedInTimeIsNotRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{Slots: 1, PerToken: 5 * time.Millisecond,
		Script: func(string, []byte) engines.Script { return engines.Script{Tokens: 11} }})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""),
		"queue": `{ max_wait: { interactive: 10s, background: 10m, batch: 10m } }`})
	for range 10 {
		if err := r.now(plain).CheckOK(); err != nil {
			t.Fatal(err)
		}
	}
	r.served(r.crowd(40, plain))
}
