package queue

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestRetryKeepsItsPlaceInTheQueue: a request that waits again after a failed attempt stays
// ahead of the requests that arrived after it.
func TestRetryKeepsItsPlaceInTheQueue(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		r := newRigNotListening(t, 2, engines.Config{})
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
		first := r.start(chat("the first"))
		rig.Eventually(t, func() error { return r.checkInflight(1) })
		holder := r.start(held)
		r.waitForRunning(1) // on w1
		after := r.startMany(3, chat(rig.PauseMark+", in line"))
		r.waitForQueued(3)
		close(fail)
		rig.Eventually(t, func() error { return r.checkInflight(2) })
		r.waitForRunning(2) // a later request has taken the slot on w0
		r.waitForQueued(3)  // the first request waits again, ahead of the other two
		if !failed.Load() {
			t.Fatal("the first request did not fail")
		}
		holder.disconnect()
		if err := r.reply(first).CheckOK(); err != nil {
			t.Errorf("the retry of the first request: %v", err)
		}
		received := r.Workers[1].Recorder.Requests()
		if len(received) < 2 || !strings.Contains(string(received[1].Body), "the first") {
			t.Errorf("w1 received %d requests; the second is not the retry", len(received))
		}
		r.ResumePaused()
		r.checkServed(after)
	})
}
