package server

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/queue"
	"tierway/routing"
)

// oneSlotRig is a rig with one worker that has one slot.
func oneSlotRig(t *testing.T, engine http.Handler) *adminRig {
	t.Helper()
	worker := newServer(t, engine)
	yaml := strings.Replace(adminYAML(""), "%s", "{ name: w0, url: "+worker.URL+", max_inflight: 1 }", 1)
	return adminRigOf(newRig(t, yaml+"queue: { max_depth: 3 }\n# %s"))
}

// enqueue enters a request into the queue as if it had arrived secondsAgo. The first one occupies the
// worker, the next ones wait. The test's end removes it.
func (r *adminRig) enqueue(tenant, id string, class int, tokens int64, secondsAgo int) {
	r.t.Helper()
	q, now := r.control.Snapshot().ByName["small"].WaitQueue, time.Now()
	ticket := &queue.Ticket{Request: &routing.Request{PromptTokens: tokens, OutputTokens: 1}, Class: class, Tenant: tenant,
		Tokens: tokens, Bytes: 1000, ID: id, Ref: noopWaiter{}}
	lease, err := q.Enter(ticket, now.Add(time.Duration(-secondsAgo)*time.Second))
	switch {
	case err == nil:
		r.t.Cleanup(func() { lease.Release(routing.Result{At: time.Now()}) })
	case errors.Is(err, queue.ErrWaiting):
		r.t.Cleanup(func() { q.Leave(ticket, queue.Cancelled, time.Now()) })
	default:
		var shed *queue.ShedError
		if !errors.As(err, &shed) {
			r.t.Fatal(err)
		}
	}
}

// line is a waiting request without its times.
type line struct {
	Position      int
	ID, Tenant    string
	Class         string
	Tokens        int64
	SecondsWaited int
}

// listWaiting returns the waiting requests as a viewer sees them.
func (r *adminRig) listWaiting(query string) (v queueShown, lines []line) {
	r.t.Helper()
	got := r.callAdmin("eyes", http.MethodGet, "/admin/queues/small"+query, "")
	if got.status != http.StatusOK {
		r.t.Fatalf("%s: %d: %s", query, got.status, got.body)
	}
	v = decode[queueShown](r.t, got)
	for _, w := range v.Waiting {
		if w.Estimated == nil || *w.Estimated <= 0 {
			r.t.Errorf("%s has no estimate", w.RequestID)
		}
		lines = append(lines, line{w.Position, w.RequestID, w.Tenant, w.Class, w.Tokens, int(w.Waited / 1000)})
	}
	return v, lines
}

// TestQueueListsRequestsInDispatchOrder: classes are strict, tenants alternate, and filters do not
// change positions.
func TestQueueListsRequestsInDispatchOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneSlotRig(t, fakeEngine())
		if v, _ := r.listWaiting(""); v.Depth != 0 || len(v.Waiting) != 0 || v.Drain == nil || *v.Drain != 0 {
			t.Errorf("an empty queue is %+v", v)
		}
		r.enqueue("acme", "r0", 0, 100, 9) // occupies the worker
		r.enqueue("acme", "r1", 2, 300, 8)
		r.enqueue("acme", "r2", 2, 300, 7)
		r.enqueue("umbrella", "r3", 2, 200, 6)
		r.enqueue("umbrella", "r4", 0, 400, 1)
		all := []line{{1, "r4", "umbrella", "interactive", 400, 1}, {2, "r1", "acme", "batch", 300, 8},
			{3, "r3", "umbrella", "batch", 200, 6}, {4, "r2", "acme", "batch", 300, 7}}
		for _, tt := range []struct {
			query   string
			matched int
			want    []line
		}{
			{"", 4, all},
			{"?limit=2", 4, all[:2]},
			{"?class=batch", 3, all[1:]},
			{"?class=batch&limit=1", 3, all[1:2]},
			{"?tenant=acme", 2, []line{all[1], all[3]}},
			{"?tenant=umbrella&class=batch&limit=1", 1, all[2:3]},
			{"?tenant=unknown", 0, nil},
		} {
			v, got := r.listWaiting(tt.query)
			if diff := cmp.Diff(tt.want, got); diff != "" || v.Matched != tt.matched || v.Depth != 4 {
				t.Errorf("%s: %d match of %d (-want +got):\n%s", tt.query, v.Matched, v.Depth, diff)
			}
		}
		r.ops(http.StatusNotFound, http.MethodGet, "/admin/queues/none", "")
		for _, query := range []string{"?limit=0", "?limit=1001", "?class=urgent", "?limt=1"} {
			r.ops(http.StatusUnprocessableEntity, http.MethodGet, "/admin/queues/small"+query, "")
		}
		if got := r.callAdmin("", http.MethodGet, "/admin/queues", ""); got.status != http.StatusUnauthorized {
			t.Errorf("without a key: %d", got.status)
		}
	})
}

// TestQueueCountersAgreeInAPIAndMetrics, by class.
func TestQueueCountersAgreeInAPIAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneSlotRig(t, fakeEngine())
		r.enqueue("acme", "r0", 0, 100, 0)
		for range 4 { // max_depth is 3
			r.enqueue("acme", "r", 2, 300, 5)
		}
		list := decode[pageOf[queueShown]](t, r.callAdmin("eyes", http.MethodGet, "/admin/queues", ""))
		if list.Total != 1 || len(list.Items) != 1 {
			t.Fatalf("the queues are %+v", list)
		}
		q := list.Items[0]
		batch := q.Classes["batch"]
		if q.Name != "small" || !q.Tier || q.Depth != 3 || q.MaxDepth != 3 || q.Bytes != 3000 || q.MaxBytes != 256<<20 ||
			len(q.Classes) != 3 ||
			q.Throughput.PerSecond <= 0 || q.Throughput.Sure || q.Drain == nil || *q.Drain <= 0 {
			t.Errorf("the queue is %+v", q)
		}
		if batch.Depth != 3 || batch.Oldest < 5000 || batch.Oldest > 60_000 || batch.MaxWait != 600_000 ||
			batch.Tokens != 900 || batch.Drain == nil || *batch.Drain != *q.Drain ||
			batch.Entered != 3 || batch.Dispatched != 0 || batch.Abandoned != 0 || batch.Expired != 0 ||
			batch.Shed["depth"] != 1 ||
			len(batch.Shed) != len(queue.ShedReasons()) {
			t.Errorf("its batch class is %+v", batch)
		}
		if k := q.Classes["interactive"]; k.Depth != 0 || k.Oldest != 0 || k.Drain == nil || *k.Drain != 0 || k.Entered != 0 {
			t.Errorf("its interactive class is %+v", k)
		}
		text := r.scrape()
		for _, want := range []string{
			`tierway_queue_depth{class="batch",tier="small"} 3`,
			`tierway_queue_depth{class="background",tier="small"} 0`,
			`tierway_queue_bytes{tier="small"} 3000`,
			`tierway_queue_oldest_age_seconds{class="batch",tier="small"} 5`,
			`tierway_queue_entered_total{class="batch",tier="small"} 3`,
			`tierway_queue_shed_total{class="batch",reason="depth",tier="small"} 1`,
			`tierway_queue_shed_total{class="interactive",reason="engine",tier="small"} 0`,
			`tierway_metrics_stale_seconds_total{tier="small"} 0`,
			`tierway_worker_concurrency_limit{tier="small",worker="w0"} 1`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the metrics have no %s", want)
			}
		}
	})
}

// TestStalledQueueHasNoEstimate: a pool without throughput reports no drain time, instead of 0.
func TestStalledQueueHasNoEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneSlotRig(t, fakeEngine())
		p := r.control.Snapshot().ByName["small"]
		p.Routing.Observe("w0", p.Routing.Snapshot(time.Now())[0].Ref, routing.Status{Up: true, Saturated: true})
		r.enqueue("acme", "r0", 0, 100, 1)
		if w := r.worker("w0"); !w.Saturated || w.Stale ||
			!strings.Contains(r.scrape(), `tierway_worker_saturated{tier="small",worker="w0"} 1`) {
			t.Errorf("the worker is %+v", w)
		}
		v := decode[queueShown](t, r.callAdmin("eyes", http.MethodGet, "/admin/queues/small", ""))
		if v.Depth != 1 || v.Drain != nil || v.Classes["interactive"].Drain != nil || *v.Classes["batch"].Drain != 0 ||
			v.Waiting[0].Estimated != nil {
			t.Errorf("the queue is %+v", v)
		}
	})
}

// TestARequestIsShownWhileItWaits, by its ID and without its text.
func TestARequestIsShownWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached, hold := make(chan struct{}), make(chan struct{})
		r := oneSlotRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			reached <- struct{}{}
			<-hold
			fakeEngine().ServeHTTP(w, q)
		}))
		done := make(chan httpAnswer, 2)
		send := func(id, class string) {
			done <- r.post("/v1/chat/completions", chatBody("small", "a secret", ""), "Authorization", "Bearer filed",
				"X-Request-ID",
				id, "X-Request-Priority", class)
		}
		go send("first", "interactive")
		<-reached
		go send("second", "background")
		waitUntil(t, "the second to wait",
			func() bool { return r.control.Snapshot().ByName["small"].WaitQueue.Waiting() == 1 })
		text := r.callAdmin("eyes", http.MethodGet, "/admin/queues/small", "").body
		v, lines := r.listWaiting("")
		if len(lines) != 1 || lines[0].ID != "second" || lines[0].Tenant != "filed" || lines[0].Class != "background" ||
			lines[0].Tokens == 0 || v.Bytes == 0 || v.Drain == nil || *v.Drain <= 0 || strings.Contains(text, "secret") {
			t.Errorf("the queue is %s", text)
		}
		if tiers := decode[pageOf[tierShown]](t,
			r.ops(http.StatusOK, http.MethodGet, "/admin/tiers", "")); tiers.Items[0].Queued != 1 {
			t.Errorf("the tier has %d in its queue", tiers.Items[0].Queued)
		}
		if w := r.worker("w0"); w.Bound != 1 || w.BoundLearned || w.Tokens == 0 || w.Saturated || w.Stale {
			t.Errorf("the worker is %+v", w)
		}
		close(hold)
		<-reached
		for range 2 {
			if a := <-done; a.status != http.StatusOK {
				t.Errorf("%d: %s", a.status, a.body)
			}
		}
		v, lines = r.listWaiting("")
		if k := v.Classes["background"]; len(lines) != 0 || v.Depth != 0 || v.Bytes != 0 || k.Entered != 1 ||
			k.Dispatched != 1 {
			t.Errorf("afterwards the queue is %+v", v)
		}
		text = r.scrape()
		for _, want := range []string{
			`tierway_queue_wait_seconds_bucket{class="interactive",tier="small",le="0.001"} 1`,
			`tierway_queue_wait_seconds_count{class="background",tier="small"} 1`,
			`tierway_queue_dispatched_total{class="background",tier="small"} 1`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the metrics have no %s", want)
			}
		}
	})
}

// noopWaiter ignores its wakeup.
type noopWaiter struct{}

// OnWake is part of control.Waiter.
func (noopWaiter) OnWake() {}
