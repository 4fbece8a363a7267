package queue

import (
	"net/http"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestFullQueueKeepsRoomForOtherTenants fills a class with the requests of one tenant, by
// number and by bytes. A request of another tenant still enters the queue and is served; the
// newest request of the first tenant is rejected, and so are its requests beyond the bound.
//
// QU-01: more than max_bytes.
func TestFullQueueKeepsRoomForOtherTenants(t *testing.T) {
	for bound, value := range map[string]string{"depth": "max_depth: 4", "bytes": "max_bytes: 400"} {
		bubble.Run(t, bound, func(t *testing.T) {
			r := newRig(t, 1, engines.Config{})
			r.Serve(rig.Settings{
				"tiers": r.Tiers("max_inflight: 1", ""),
				"auth":  "{ keys: [ " + tenant("loud", "weight: 1") + ", " + tenant("quiet", "weight: 1") + " ] }",
				"queue": "{ " + value + ", " + waitLong + " }",
			})
			holder := r.start(held, bearer("loud")...)
			r.waitForRunning(1)
			first := r.start(plain, bearer("loud")...)
			r.waitForQueued(1)
			var loud []*pending
			for n := 2; ; n++ {
				p := r.start(plain, bearer("loud")...)
				if !r.isQueued(p, n) {
					break
				}
				loud = append(loud, p)
			}
			quiet := r.start(plain, bearer("quiet")...)
			newest := r.reply(loud[len(loud)-1])
			if err := newest.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
				t.Error(err)
			}
			if shed := r.Sum("tierway_queue_shed_total", `reason="displaced"`, `class="interactive"`); shed != 1 {
				t.Errorf("%v requests were counted as displaced, want 1", shed)
			}
			r.ResumePaused()
			r.checkServed(append(loud[:len(loud)-1], holder, first, quiet))
		})
	}
}

// isQueued waits until a request is the n-th in the queue (true) or was rejected (false).
func (r *queueRig) isQueued(p *pending, n int) bool {
	r.T.Helper()
	for end := time.Now().Add(rig.Patience); time.Now().Before(end); {
		select {
		case a := <-p.replies:
			if err := a.CheckRefusal(http.StatusServiceUnavailable, "overloaded"); err != nil {
				r.T.Fatal(err)
			}
			return false
		case <-time.After(rig.Pace):
		}
		if int(r.Sum("tierway_queue_depth")) == n {
			return true
		}
	}
	r.T.Fatalf("no answer within %v", rig.Patience)
	return false
}
