package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"tierway/engines"
	"tierway/routing"
)

// logged returns the access log so far.
func (r *rig) logged() string {
	return r.access.String()
}

// fill takes every place of the first pool, until free is called.
func (r *rig) fill() (free func()) {
	r.t.Helper()
	p := r.control.Snapshot().Pools[0]
	var leases []routing.Lease
	for {
		l, err := p.Routing.Acquire(&routing.Request{Now: time.Now()})
		if err != nil {
			break
		}
		leases = append(leases, l)
	}
	return func() {
		for i := range leases {
			leases[i].Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
		}
	}
}

// TestWhoeverHasWaitedIsToldHowLong: an error says it as an answer does, and the
// log has it with the reason.
func TestWhoeverHasWaitedIsToldHowLong(t *testing.T) {
	h := newHolding(engines.Config{})
	r := narrowRig(t, h, ", max_wait: { interactive: 100ms }", "auto")
	free := r.fill()
	a := <-r.chat(context.Background(), "hi", "")
	if waited, err := strconv.ParseFloat(a.header.Get("X-Queue-Ms"), 64); a.status != http.StatusServiceUnavailable ||
		err != nil || waited < 90 {
		t.Errorf("%d, X-Queue-Ms %q, want 503 and 90 or more", a.status, a.header.Get("X-Queue-Ms"))
	}
	if log := r.logged(); !strings.Contains(log, `"queue_ms":`) || !strings.Contains(log, `"shed":"wait"`) {
		t.Errorf("the log does not say how long it has waited, and why it was shed: %s", log)
	}
	free()
}

// TestWhoLeavesTheQueueIsLoggedWithItsWait: nobody gets the answer, and operators
// see how long the client was patient.
func TestWhoLeavesTheQueueIsLoggedWithItsWait(t *testing.T) {
	h := newHolding(engines.Config{})
	r := narrowRig(t, h, "", "auto")
	free := r.fill()
	defer free()
	ctx, leave := context.WithCancel(context.Background())
	got := r.chat(ctx, "hi", "")
	r.waiting(1)
	leave()
	<-got
	r.until("it has ended", func() bool { return r.Inflight() == 0 })
	if log := r.logged(); !strings.Contains(log, `"outcome":"client_gone"`) || !strings.Contains(log, `"queue_ms":`) {
		t.Errorf("the log does not say how long it has waited: %s", log)
	}
}

// TestAWorkersErrorAfterAWaitSaysTheWait: the worker failed, and the wait was real.
func TestAWorkersErrorAfterAWaitSaysTheWait(t *testing.T) {
	broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := newRig(t, strings.Replace(plain, "[ %s ]", `[ { name: w0, url: "`+served(t, broken)+`", max_inflight: 1 } ] # %s`,
		1))
	free := r.fill()
	time.AfterFunc(50*time.Millisecond, free)
	a := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"hi"}]}`)
	if waited, err := strconv.ParseFloat(a.header.Get("X-Queue-Ms"), 64); a.status != http.StatusBadGateway ||
		err != nil || waited < 40 {
		t.Errorf("%d, X-Queue-Ms %q, want 502 and 40 or more", a.status, a.header.Get("X-Queue-Ms"))
	}
}

// TestAWaitIsMeasuredOnceARequest: whoever had a worker counts once, with all its
// waits, however many workers it was sent to; whoever had none does not.
func TestAWaitIsMeasuredOnceARequest(t *testing.T) {
	h := newHolding(engines.Config{})
	broken := served(t,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	r := narrowRig(t, h, ", max_wait: { background: 20ms }", "auto",
		fmt.Sprintf(", { name: w1, url: %q, max_inflight: 1 }", broken))
	free := r.fill()
	shed, retried := r.chat(context.Background(), "hi", "", "X-Request-Priority", "background"),
		r.chat(context.Background(), "hi", "")
	<-shed
	r.waiting(1)
	free()
	if a := <-retried; a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	var twice answered
	for range 3 { // until one is sent to the broken worker and to the other one
		twice = <-r.chat(context.Background(), "hi", "")
	}
	if twice.status != http.StatusOK || !strings.Contains(r.logged(), `"attempts":2`) {
		t.Errorf("%d: no request had two attempts: %s", twice.status, r.logged())
	}
	metrics := r.scrape()
	for class, want := range map[string]string{"interactive": "4", "background": "0"} {
		series := fmt.Sprintf("tierway_queue_wait_seconds_count{class=%q,tier=\"small\"} %s\n", class, want)
		if !strings.Contains(metrics, series) {
			t.Errorf("want %s in the metrics", series)
		}
	}
}

// TestAClampIsSaidInTheLog: QU-08. Whoever asks for more than its tenant may have is
// served as that may, and the log says what it has asked for.
func TestAClampIsSaidInTheLog(t *testing.T) {
	h := newHolding(engines.Config{})
	r := narrowRig(t, h, "", "auto")
	if a := <-r.chat(context.Background(), "hi", "", "Authorization", "Bearer low", "X-Request-Priority",
		"interactive"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	if log := r.logged(); strings.Count(log, `"class":"batch","asked_class":"interactive"`) != 1 {
		t.Errorf("want batch, and interactive as asked, once: %s", log)
	}
	<-r.chat(context.Background(), "hi", "", "X-Request-Priority", "background")
	if got := strings.Count(r.logged(), "asked_class"); got != 1 {
		t.Errorf("asked_class is in %d of 2 lines, want 1", got)
	}
}

// TestARefundedAnswerSaysNothingOfWhatIsLeft: what was taken for a request that the
// queue refuses is given back, so that the headers would be off by it.
func TestARefundedAnswerSaysNothingOfWhatIsLeft(t *testing.T) {
	yaml := strings.Replace(limited, "auth:", "queue: { max_wait: { interactive: 20ms } }\nauth:", 1)
	digest := fmt.Sprintf(yaml, digestOfKey, "limits: { rpm: 60, burst: 10, tpm: 100000 }", served(t, bigEngine()))
	r := newRig(t,
		strings.Replace(digest, "[ %s ]", `[ { name: w0, url: "`+served(t, fakeEngine())+`", max_inflight: 1 } ] # %s`, 1))
	before := r.ask("cheap")
	if before.header.Get("X-Ratelimit-Remaining-Requests") == "" {
		t.Fatalf("%d %v: no headers of limits", before.status, before.header)
	}
	free := r.fill()
	a := r.ask("cheap")
	for name := range a.header {
		if a.status != http.StatusServiceUnavailable || strings.HasPrefix(name, "X-Ratelimit-") {
			t.Errorf("%d with %s", a.status, name)
		}
	}
	free()
	after := r.ask("cheap")
	if b, _ := strconv.Atoi(before.header.Get("X-Ratelimit-Remaining-Requests")); after.header.Get(
		"X-Ratelimit-Remaining-Requests") < strconv.Itoa(b-1) {
		t.Errorf("%d requests were left before, %s are after one more", b, after.header.Get("X-Ratelimit-Remaining-Requests"))
	}
}

// TestAnExplanationSaysWhatTheQueueWouldDo: wait, or refuse and why, as the request
// itself is answered.
func TestAnExplanationSaysWhatTheQueueWouldDo(t *testing.T) {
	body := fmt.Sprintf(chatOf, "hi", "")
	for _, c := range []struct {
		queue, note string
		status      int
	}{
		{", max_depth: 0", "the queue would reject the request (depth); 0 requests wait now", http.StatusServiceUnavailable},
		{", max_bytes: 10", "the queue would reject the request (bytes)", http.StatusServiceUnavailable},
		{"", "the request would wait in the queue; 0 requests wait now", 0},
	} {
		r := narrowRig(t, newHolding(engines.Config{}), c.queue, "auto")
		free := r.fill()
		e := r.explained("/v1/chat/completions", body, "Authorization", "Bearer key")
		if e.Status != c.status || !strings.Contains(strings.Join(e.Notes, "\n"), c.note) {
			t.Errorf("%s: %d %q, want %d and %q", c.queue, e.Status, e.Notes, c.status, c.note)
		}
		if v := r.control.Snapshot().Pools[0].WaitQueue.View(time.Now()).Classes[0]; v.Entered != 0 || v.Depth != 0 {
			t.Errorf("%s: an explanation is counted: %+v", c.queue, v)
		}
		free()
	}
}

// TestAnExplanationKnowsWhatIsWaitedFor: a worker that rests for less than the
// class may wait, and with engine_wait one that is down.
func TestAnExplanationKnowsWhatIsWaitedFor(t *testing.T) {
	body := fmt.Sprintf(chatOf, "hi", "")
	for _, c := range []struct {
		queue, note string
		rest        time.Duration
		status      int
	}{
		{"", "every worker is in backoff: the request would wait", 2 * time.Second, 0},
		{"", "", 20 * time.Second, http.StatusServiceUnavailable}, // longer than max_wait
		{", engine_wait: 5s", "no worker is up: the request would wait", 0, 0},
		{"", "", 0, http.StatusServiceUnavailable},
	} {
		r := narrowRig(t, newHolding(engines.Config{}), c.queue, "auto")
		p := r.control.Snapshot().Pools[0].Routing
		w := p.Snapshot(time.Now())[0]
		if c.rest > 0 {
			l, err := p.Acquire(&routing.Request{Now: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			p.SetBackoff(l.Worker(), time.Now().Add(c.rest))
			l.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
		} else {
			p.Observe(w.ID, w.Ref, routing.Status{})
		}
		e := r.explained("/v1/chat/completions", body, "Authorization", "Bearer key")
		if e.Status != c.status || !strings.Contains(strings.Join(e.Notes, "\n"), c.note) {
			t.Errorf("%+v: %d %q", c, e.Status, e.Notes)
		}
	}
}
