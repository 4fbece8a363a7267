package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/routing"
)

// occupyWorkers occupies every slot of the first pool until free is called.
func (r *rig) occupyWorkers() (free func()) {
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

// TestACancelledWaitIsLogged, so that operators see how long clients wait.
func TestACancelledWaitIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		r := narrowRig(t, h, "")
		free := r.occupyWorkers()
		defer free()
		ctx, leave := context.WithCancel(context.Background())
		got := r.chat(ctx, "hi")
		r.waitForQueued(1)
		time.Sleep(10 * time.Millisecond)
		leave()
		<-got
		r.until("the request has ended", func() bool { return r.Inflight() == 0 })
		if log := r.accessLog(); !strings.Contains(log, `"outcome":"client_gone"`) || !strings.Contains(log, `"queue_ms":`) {
			t.Errorf("the log has no queue_ms: %s", log)
		}
	})
}

func TestAWorkersErrorAfterAWaitHasTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		r := newRig(t, strings.Replace(plain, "[ %s ]", `[ { name: w0, url: "`+startServer(t,
			broken)+`", max_inflight: 1 } ] # %s`,
			1))
		free := r.occupyWorkers()
		time.AfterFunc(50*time.Millisecond, free)
		a := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"hi"}]}`)
		if waited, err := strconv.ParseFloat(a.header.Get("X-Queue-Ms"), 64); a.status != http.StatusBadGateway ||
			err != nil || waited < 40 {
			t.Errorf("%d, X-Queue-Ms %q, want 502 and 40 or more", a.status, a.header.Get("X-Queue-Ms"))
		}
	})
}

// TestAWaitIsMeasuredOncePerRequest: a request that reached a worker counts once, with the sum of its
// waits, whatever its number of attempts. A request that reached none does not count.
func TestAWaitIsMeasuredOncePerRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBlockingEngine(engines.Config{})
		broken := startServer(t,
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
		r := narrowRig(t, h, ", max_wait: { background: 20ms }",
			fmt.Sprintf(", { name: w1, url: %q, max_inflight: 1 }", broken))
		free := r.occupyWorkers()
		shed, retried := r.chat(context.Background(), "hi", "X-Request-Priority", "background"),
			r.chat(context.Background(), "hi")
		<-shed
		r.waitForQueued(1)
		free()
		if a := <-retried; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
		var twice httpAnswer
		for range 3 { // until one is sent to the broken worker and to the other one
			twice = <-r.chat(context.Background(), "hi")
		}
		if twice.status != http.StatusOK || !strings.Contains(r.accessLog(), `"attempts":2`) {
			t.Errorf("%d: no request had two attempts: %s", twice.status, r.accessLog())
		}
		metrics := r.scrape()
		for class, want := range map[string]string{"interactive": "4", "background": "0"} {
			series := fmt.Sprintf("tierway_queue_wait_seconds_count{class=%q,tier=\"small\"} %s\n", class, want)
			if !strings.Contains(metrics, series) {
				t.Errorf("want %s in the metrics", series)
			}
		}
	})
}

// TestARefundedAnswerHasNoRateLimitHeaders: the charge of a request that the queue rejects is refunded,
// so the headers would be wrong.
func TestARefundedAnswerHasNoRateLimitHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(limited, "auth:", "queue: { max_wait: { interactive: 20ms } }\nauth:", 1)
		digest := fmt.Sprintf(yaml, digestOfKey, "limits: { rpm: 60, burst: 10, tpm: 100000 }", startServer(t, bigEngine()))
		r := newRig(t,
			strings.Replace(digest, "[ %s ]", `[ { name: w0, url: "`+startServer(t, fakeEngine())+`", max_inflight: 1 } ] # %s`,
				1))
		before := r.sendChat("cheap")
		if before.header.Get("X-Ratelimit-Remaining-Requests") == "" {
			t.Fatalf("%d %v: no headers of limits", before.status, before.header)
		}
		free := r.occupyWorkers()
		a := r.sendChat("cheap")
		for name := range a.header {
			if a.status != http.StatusServiceUnavailable || strings.HasPrefix(name, "X-Ratelimit-") {
				t.Errorf("%d with %s", a.status, name)
			}
		}
		free()
		after := r.sendChat("cheap")
		if b, _ := strconv.Atoi(before.header.Get("X-Ratelimit-Remaining-Requests")); after.header.Get(
			"X-Ratelimit-Remaining-Requests") < strconv.Itoa(b-1) {
			t.Errorf("%d requests were left before, %s are after one more", b,
				after.header.Get("X-Ratelimit-Remaining-Requests"))
		}
	})
}

// TestExplainReportsTheQueuesDecision: wait, or reject with a reason.
func TestExplainReportsTheQueuesDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := fmt.Sprintf(chatOf, "hi")
		for _, c := range []struct {
			queue, note string
			status      int
		}{
			{", max_depth: 0", "the queue would reject the request (depth); 0 requests wait now", http.StatusServiceUnavailable},
			{", max_bytes: 10", "the queue would reject the request (bytes)", http.StatusServiceUnavailable},
			{"", "the request would wait in the queue; 0 requests wait now", 0},
		} {
			r := narrowRig(t, newBlockingEngine(engines.Config{}), c.queue)
			free := r.occupyWorkers()
			e := r.explained("/v1/chat/completions", body, "Authorization", "Bearer key")
			if e.Status != c.status || !strings.Contains(strings.Join(e.Notes, "\n"), c.note) {
				t.Errorf("%s: %d %q, want %d and %q", c.queue, e.Status, e.Notes, c.status, c.note)
			}
			if v := r.control.Snapshot().Pools[0].WaitQueue.View(time.Now()).Classes[0]; v.Entered != 0 || v.Depth != 0 {
				t.Errorf("%s: an explanation is counted: %+v", c.queue, v)
			}
			free()
		}
	})
}

// TestExplainConsidersBackoffAndEngineWait: a request waits for a backoff that is shorter than its wait
// limit, and with engine_wait for a worker that is down.
func TestExplainConsidersBackoffAndEngineWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := fmt.Sprintf(chatOf, "hi")
		for _, c := range []struct {
			queue, note string
			backoff     time.Duration
			status      int
		}{
			{"", "every worker is in backoff: the request would wait", 2 * time.Second, 0},
			{"", "", 20 * time.Second, http.StatusServiceUnavailable}, // longer than max_wait
			{", engine_wait: 5s", "no worker is up: the request would wait", 0, 0},
			{"", "", 0, http.StatusServiceUnavailable},
		} {
			r := narrowRig(t, newBlockingEngine(engines.Config{}), c.queue)
			r.stopControl() // a check would report the worker as up again
			p := r.control.Snapshot().Pools[0].Routing
			w := p.Snapshot(time.Now())[0]
			if c.backoff > 0 {
				l, err := p.Acquire(&routing.Request{Now: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				p.SetBackoff(l.Worker(), time.Now().Add(c.backoff))
				l.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
			} else {
				p.Observe(w.ID, w.Ref, routing.Status{})
			}
			e := r.explained("/v1/chat/completions", body, "Authorization", "Bearer key")
			if e.Status != c.status || !strings.Contains(strings.Join(e.Notes, "\n"), c.note) {
				t.Errorf("%+v: %d %q", c, e.Status, e.Notes)
			}
		}
	})
}
