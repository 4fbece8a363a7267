package traces

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// The load that a bad collector must not disturb.
const (
	askers   = 8
	perAsker = 25
)

// load sends many requests at once and fails the test unless all succeed.
func (r *traceRig) load() {
	r.T.Helper()
	var asked sync.WaitGroup
	for i := range askers {
		asked.Go(func() {
			for j := range perAsker {
				if status, _ := r.ask(fmt.Sprintf("load-%d-%d", i, j),
					body(fmt.Sprintf("%d %d %s", i, j, prompt), j%2 == 0)); status != http.StatusOK {
					r.T.Errorf("status %d", status)
				}
			}
		})
	}
	asked.Wait()
}

// spans returns the gateway's counts of spans by result.
func (r *traceRig) spans() (exported, failed, dropped, queued float64) {
	s, err := r.Metrics()
	if err != nil {
		return -1, -1, -1, -1
	}
	const name = "tierway_trace_spans_total"
	return s.Sum(name, `result="exported"`), s.Sum(name, `result="failed"`), s.Sum(name, `result="dropped"`),
		s.Sum("tierway_trace_queue")
}

// perRequest is the number of spans of a request with one attempt and no wait.
const perRequest = 3

// RS-13: an unreachable collector does not affect requests and causes one log line.
func TestUnreachableCollectorDoesNotAffectRequests(t *testing.T) {
	r := newRig(t, 1)
	r.serve("otlp: http://"+gateway.Address(t), "")
	r.load()
	rig.Eventually(t, func() error {
		exported, failed, dropped, queued := r.spans()
		if exported != 0 || queued != 0 || failed+dropped != askers*perAsker*perRequest {
			return fmt.Errorf("exported %v, failed %v, dropped %v, queued %v", exported, failed, dropped, queued)
		}
		return nil
	})
	if n := strings.Count(r.Log(), "spans lost"); n != 1 {
		t.Errorf("%d lines tell of the lost spans:\n%s", n, r.Log())
	}
	r.Stop()
}

// RS-13: a collector that never responds does not affect requests. Spans beyond the queue are
// dropped and counted, and a stop does not wait for the collector.
func TestHangingCollectorDoesNotAffectRequests(t *testing.T) {
	r := newRig(t, 1)
	hung := newReceiver(t)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	hung.before = func(req *http.Request) {
		select {
		case <-end:
		case <-req.Context().Done():
		}
	}
	r.serve("otlp: "+hung.URL, "", "OTEL_BSP_MAX_QUEUE_SIZE=50", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=30")
	r.load()
	exported, failed, dropped, queued := r.spans()
	if made := exported + failed + dropped + queued; made != askers*perAsker*perRequest || exported != 0 || dropped == 0 {
		t.Errorf("exported %v, failed %v, dropped %v, queued %v of %d", exported, failed, dropped, queued,
			askers*perAsker*perRequest)
	}
	if most := 50.0*perRequest + 30 + perRequest; queued > most {
		t.Errorf("%v spans are kept for a collector that hangs, more than %v", queued, most)
	}
	r.Stop()
}

// RS-13: a collector that is slow or sometimes rejects exports does not affect requests, and every
// span is counted once.
func TestSlowCollectorDoesNotAffectRequests(t *testing.T) {
	r := newRig(t, 1)
	slow := newReceiver(t)
	var posts atomic.Int64
	proxy := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		<-time.After(50 * time.Millisecond) // a collector's own slowness
		if posts.Add(1)%3 == 0 {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		slow.ServeHTTP(w, req)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = proxy.Serve(l) }() // it ends with Close
	t.Cleanup(func() { _ = proxy.Close() })
	r.serve("otlp: http://"+l.Addr().String(), "", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=60")
	r.load()
	rig.Eventually(t, func() error {
		exported, failed, dropped, queued := r.spans()
		if queued != 0 {
			return errors.New("spans wait")
		}
		if exported+failed+dropped != askers*perAsker*perRequest || int(exported) != len(slow.all()) || failed == 0 {
			return fmt.Errorf("exported %v of which %d came, failed %v, dropped %v", exported, len(slow.all()), failed, dropped)
		}
		return nil
	})
	r.Stop()
}

func TestAStopExportsQueuedSpans(t *testing.T) {
	r := newRig(t, 1)
	r.serve("otlp: "+r.collector.URL, "", "OTEL_BSP_SCHEDULE_DELAY=600000")
	r.load()
	r.Stop()
	roots, children := map[string]string{}, map[string]int{} // a request by its span, and how many are below it
	for _, s := range r.collector.all() {
		switch {
		case s.service != gatewayService:
		case s.kind == "server":
			roots[s.id] = s.attrs["tierway.request_id"]
		default:
			children[s.parent]++
		}
	}
	requests := map[string]bool{}
	for id, request := range roots {
		requests[request] = true
		if n := children[id]; n != perRequest-1 {
			t.Errorf("%d spans are below %s", n, request)
		}
	}
	if len(requests) != askers*perAsker || len(roots) != askers*perAsker || len(children) != askers*perAsker {
		t.Errorf("%d requests were exported as %d spans with %d families, of %d", len(requests), len(roots), len(children),
			askers*perAsker)
	}
}

// OB-01: a collector's password in the environment reaches only the collector, even if the variable
// is invalid.
func TestCollectorPasswordReachesOnlyTheCollector(t *testing.T) {
	r := newRig(t, 1)
	var sent atomic.Value
	locked := newReceiver(t)
	locked.before = func(req *http.Request) { sent.Store(req.Header.Get("Authorization")) }
	r.serve("otlp: "+locked.URL, "", "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20sesame")
	r.ask("unlocked", body(prompt, false))
	locked.request("unlocked", 0)
	if got := sent.Load(); got != "Bearer sesame" {
		t.Errorf("the collector was sent %v", got)
	}
	first := r.Process
	r.serve("otlp: "+locked.URL, "", "OTEL_EXPORTER_OTLP_HEADERS=Authorization: Bearer sesame")
	if !strings.Contains(r.Log(), "parse headers") {
		t.Errorf("nothing is said of headers that cannot be read:\n%s", r.Log())
	}
	if strings.Contains(first.Log()+r.Log(), "sesame") {
		t.Error("the log has the password")
	}
}
