package queue

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
)

// TestARetryKeepsItsPlace: a request whose worker failed waits for another one
// before those who came after it.
func TestARetryKeepsItsPlace(t *testing.T) {
	t.Parallel()
	r := unheardRig(t, 2, engines.Config{})
	fail, failed := make(chan struct{}), atomic.Bool{}
	r.Workers[0].Front = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil && strings.Contains(string(body), "the first") {
			<-fail
			failed.Store(true)
			http.Error(w, `{"error":{"message":"broken"}}`, http.StatusInternalServerError)
			return
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		r.Workers[0].Engine.ServeHTTP(w, req)
	})
	for _, w := range r.Workers {
		w.Listen()
	}
	r.Serve(rig.Settings{
		"tiers":  r.Tiers("max_inflight: 1", ""),
		"policy": `{ name: round_robin }`, // w0 first
		"queue":  "{ " + waitLong + " }",
		"retry":  `{ attempts: 2, budget: 1 }`,
	})
	first := r.later(chat("the first"))
	rig.Eventually(t, func() error { return r.inflight(1) })
	holder := r.later(held)
	r.running(1) // on w1
	after := r.crowd(3, chat(rig.HoldMark+", in line"))
	r.waiting(3)
	close(fail)
	rig.Eventually(t, func() error { return r.inflight(2) })
	r.running(2) // one of those after has taken the place on w0
	r.waiting(3) // the first is back, before the other two
	if !failed.Load() {
		t.Fatal("the first did not fail")
	}
	holder.leave()
	if err := r.answer(first).CheckOK(); err != nil {
		t.Errorf("the first, tried again: %v", err)
	}
	asked := r.Workers[1].Recorder.Requests()
	if len(asked) < 2 || !strings.Contains(string(asked[1].Body), "the first") {
		t.Errorf("w1 was asked %d times, and not by the first as soon as it was free", len(asked))
	}
	r.ReleaseHeld()
	r.served(after)
}
