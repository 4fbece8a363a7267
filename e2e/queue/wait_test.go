package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// newOneSlotRig returns a rig of one engine with one slot, and the held request that fills it.
func newOneSlotRig(t *testing.T, queue string) (*queueRig, *pending) {
	t.Helper()
	r := newRig(t, 1, engines.Config{})
	r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""), "queue": queue})
	p := r.start(held)
	r.waitForRunning(1)
	return r, p
}

// reached reports whether an engine received the request of a reply.
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

// checkAfterwards releases the held requests and checks that all waiting requests and a new one
// are served, and that no engine received a rejected request.
func (r *queueRig) checkAfterwards(waiting []*pending, refused ...rig.Reply) {
	r.T.Helper()
	r.ResumePaused()
	r.checkServed(waiting)
	if err := r.mustSend(plain).CheckOK(); err != nil {
		r.T.Errorf("a new request: %v", err)
	}
	r.WaitUntilIdle()
	for _, a := range refused {
		if r.reached(a) {
			r.T.Errorf("the engine received a rejected request: %d %s", a.Status, a.Body)
		}
	}
}

// TestRequestExpiresAfterMaxWait: after max_wait, a waiting request is rejected with 503 and
// Retry-After, and no engine receives it. A request that may wait longer is served when the slot is
// free. Both report their wait.
//
// QU-02: queued longer than max_wait.
func TestRequestExpiresAfterMaxWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const most = 400 * time.Millisecond
		r, holder := newOneSlotRig(t, `{ max_wait: { interactive: 400ms, background: 60s, batch: 10m } }`)
		patient := r.start(plain, "X-Request-Priority", "batch")
		r.waitForQueued(1)
		a := r.mustSend(plain)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
			t.Error(err)
		}
		if a.Duration() < most {
			t.Errorf("the request was rejected after %v, max_wait is %v", a.Duration(), most)
		}
		if queued(a) < most*9/10 {
			t.Errorf("the rejected request reports a wait of %v", queued(a))
		}
		if line := r.AccessLine(a.ID); line["code"] != "overloaded" || line["shed"] != "wait" || line["queue_ms"] == nil ||
			line["outcome"] != "failed" && line["outcome"] != "refused" {
			t.Errorf("the access log has %v", line)
		}
		r.waitForQueued(1) // batch may wait longer
		r.ResumePaused()
		first, second := r.reply(holder), r.reply(patient)
		if err := errors.Join(first.CheckOK(), second.CheckOK()); err != nil || queued(first) != 0 || queued(second) < most {
			t.Errorf("the first request reports a wait of %v, the second of %v (%v)", queued(first), queued(second), err)
		}
		r.checkAfterwards(nil, a)
	})
}

// TestFullQueueRejectsAtOnce: with max_depth requests of a class waiting, further requests of
// that class are rejected at once, with staggered Retry-After times. The waiting requests stay.
//
// QU-01: more than max_depth.
func TestFullQueueRejectsAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const depth = 8
		r, holder := newOneSlotRig(t, fmt.Sprintf("{ max_depth: %d, %s }", depth, waitLong))
		served := append(r.startMany(depth, plain), holder)
		r.waitForQueued(depth)
		served = append(served, r.start(plain, "X-Request-Priority", "background"),
			r.start(plain, "X-Request-Priority", "batch"))
		r.waitForQueued(depth + 2) // max_depth applies to each class

		var refused []rig.Reply
		times := map[string]bool{}
		for range 20 {
			a := r.mustSend(plain)
			if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
				t.Error(err)
			}
			if retry := a.Header.Get("X-Should-Retry"); retry != "" { // a rejected request should be retried
				t.Errorf("X-Should-Retry is %q", retry)
			}
			times[a.Header.Get("Retry-After-Ms")] = true
			refused = append(refused, a)
		}
		if len(times) < 5 {
			t.Errorf("20 rejections have %d different Retry-After times: %v", len(times), times)
		}
		if shed := r.Sum("tierway_queue_shed_total", `reason="depth"`, `class="interactive"`); shed != 20 {
			t.Errorf("%v requests were counted as shed with reason depth, want 20", shed)
		}
		r.waitForQueued(depth + 2)
		r.checkAfterwards(served, refused...)
	})
}

// TestUnreachableDeadlineIsRejectedEarly: if a client's own timeout would pass before the turn
// of its request, the gateway rejects the request at once.
func TestUnreachableDeadlineIsRejectedEarly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, engines.Config{Slots: 1, PerToken: 10 * time.Millisecond,
			Script: func(string, []byte) engines.Script { return engines.Script{Tokens: 11} }}) // a tenth of a second
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""), "queue": "{ " + waitLong + " }"})
		for range 20 { // the gateway learns the pool's throughput
			if err := r.mustSend(plain).CheckOK(); err != nil {
				t.Fatal(err)
			}
		}
		holder := r.start(held)
		r.waitForRunning(1)
		queue := r.startMany(200, plain)
		r.waitForQueued(200)
		hopeless := r.mustSend(plain, "X-Stainless-Timeout", "4") // the queue takes five times as long
		if err := hopeless.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil ||
			!strings.Contains(hopeless.Body, "longer than its client does") {
			t.Errorf("%s (%v)", hopeless.Body, err)
		}
		if took := hopeless.Duration(); took > 0 && !rig.Soaking() {
			t.Errorf("the request was rejected after %v, not at once", took)
		}
		if shed := r.Sum("tierway_queue_shed_total", `reason="deadline"`); shed != 1 {
			t.Errorf("%v requests were counted as shed with reason deadline, want 1", shed)
		}
		patient := r.start(plain, "X-Stainless-Timeout", "600")
		r.waitForQueued(201)
		r.disconnect(append(queue, patient))
		r.waitForQueued(0)
		r.checkAfterwards([]*pending{holder}, hopeless)
	})
}

// TestWaitingStreamGetsHeartbeats: a waiting stream receives comments and then its answer. If it
// expires, it ends with one error frame and without [DONE].
func TestWaitingStreamGetsHeartbeats(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r, holder := newOneSlotRig(t, `{ heartbeat_after: 30ms, max_wait: { interactive: 2s, background: 10m, batch: 10m } }`)
		refused := r.open(stream)
		refused.ReadUntil(":")
		frame := r.readAll(refused)
		if refused.Resp.StatusCode != http.StatusOK || !strings.HasPrefix(frame, ":") || strings.Count(frame, "data:") != 1 ||
			!strings.Contains(frame, `"code":"overloaded"`) || strings.Contains(frame, "[DONE]") {
			t.Errorf("a stream that expired is %d: %s", refused.Resp.StatusCode, frame)
		}
		f := r.open(stream, "X-Request-Priority", "batch")
		f.ReadUntil(":")
		r.waitForQueued(1)
		f.ReadUntil(":")
		r.ResumePaused()
		answer := r.readAll(f)
		if !strings.HasPrefix(answer, ":") || !strings.Contains(answer, `"finish_reason":"stop"`) ||
			!strings.HasSuffix(answer, "data: [DONE]\n\n") || strings.Contains(answer, `"error"`) {
			t.Errorf("a stream that waited ended as %s", answer)
		}
		r.checkAfterwards([]*pending{holder})
	})
}

// newDownRig returns a rig of two engines that do not listen and a gateway that has marked both
// down.
func newDownRig(t *testing.T, queue string) *queueRig {
	t.Helper()
	r := newRigNotListening(t, 2, engines.Config{})
	r.Serve(rig.Settings{
		"tiers":  r.Tiers("max_inflight: 4", ""),
		"health": `{ path: auto, interval: 1s, timeout: 1s, down_after: 1, up_after: 1 }`,
		"queue":  queue,
	})
	rig.Eventually(t, func() error {
		if _, page := r.GetData("/readyz"); !strings.Contains(page, "small") {
			return fmt.Errorf("/readyz does not report that no worker is up: %s", page)
		}
		return nil
	})
	if up := r.Sum("tierway_worker_up"); up != 0 {
		t.Fatalf("%v workers are up", up)
	}
	return r
}

// TestRequestsWaitForAnEngine: while all engines are down, requests wait for engine_wait. They
// are served if an engine comes up in time and rejected otherwise. Streams get heartbeats.
//
// QU-07: all workers are down.
func TestRequestsWaitForAnEngine(t *testing.T) {
	bubble.Run(t, "an engine comes up", func(t *testing.T) {
		r := newDownRig(t, `{ engine_wait: 30s, heartbeat_after: 30ms }`)
		all := r.startMany(6, plain)
		f := r.open(stream)
		f.ReadUntil(":")
		r.waitForQueued(7)
		r.Workers[1].Listen()
		r.checkServed(all)
		if answer := r.readAll(f); !strings.HasSuffix(answer, "data: [DONE]\n\n") || strings.Contains(answer, `"error"`) {
			t.Errorf("the stream that waited for an engine ended as %s", answer)
		}
	})
	bubble.Run(t, "no engine comes up", func(t *testing.T) {
		const most = time.Second
		r := newDownRig(t, `{ engine_wait: 1s, heartbeat_after: 100ms }`)
		whole := r.start(plain)
		f := r.open(stream)
		frame := r.readAll(f)
		if !strings.HasPrefix(frame, ":") || !strings.Contains(frame, `"code":"no_healthy_worker"`) ||
			strings.Contains(frame, "[DONE]") {
			t.Errorf("a stream that waited for engine_wait is %d: %s", f.Resp.StatusCode, frame)
		}
		a := r.reply(whole)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "no_healthy_worker"); err != nil {
			t.Error(err)
		}
		if a.Duration() < most {
			t.Errorf("the request was rejected after %v, engine_wait is %v", a.Duration(), most)
		}
		r.Workers[0].Listen()
		r.WaitUntilReady()
		r.checkAfterwards(nil, a)
	})
	bubble.Run(t, "engine_wait 0s rejects at once", func(t *testing.T) {
		r := newDownRig(t, `{ engine_wait: 0s }`)
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		defer cancel()
		a := r.send(ctx, plain)
		if err := a.CheckRefusal(http.StatusServiceUnavailable, "no_healthy_worker"); err != nil {
			t.Error(err)
		}
		if q := r.Sum("tierway_queue_depth"); q != 0 {
			t.Errorf("%v requests wait", q)
		}
	})
}

// TestNoRequestWaitsBesideAnIdleWorker: requests that the policy prefers to send to a full worker
// go to an idle one instead.
func TestNoRequestWaitsBesideAnIdleWorker(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 2, engines.Config{})
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 2", ""), "policy": `{ name: chwbl }`})
		all := r.startMany(4, held) // the same prompt, so the policy prefers one worker
		r.waitForRunning(4)
		r.ResumePaused()
		r.checkServed(all)
	})
}

// TestBurstWithinMaxWaitIsServed: after a few short answers, the gateway serves a whole burst
// that takes a fifth of max_wait, although its initial estimates were longer.
func TestBurstWithinMaxWaitIsServed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRig(t, 1, engines.Config{Slots: 1, PerToken: 15 * time.Millisecond,
			Script: func(string, []byte) engines.Script { return engines.Script{Tokens: 11} }})
		r.Serve(rig.Settings{"tiers": r.Tiers("max_inflight: 1", ""),
			"queue": `{ max_wait: { interactive: 30s, background: 10m, batch: 10m } }`})
		for range 10 {
			if err := r.mustSend(plain).CheckOK(); err != nil {
				t.Fatal(err)
			}
		}
		r.checkServed(r.startMany(40, plain))
	})
}
