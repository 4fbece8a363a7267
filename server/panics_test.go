package server

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// counter returns the value of a counter without labels.
func (r *rig) counter(name string) int {
	r.t.Helper()
	w := httptest.NewRecorder()
	if r.proxy != nil {
		r.proxy.FlushRecords()
	}
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				r.t.Fatal(err)
			}
			return n
		}
	}
	r.t.Fatalf("there is no metric %s", name)
	return 0
}

// TestAPanicInAStreamCutsItAndReleasesEverything: the connection is cut, so that the client does not
// take the answer for complete.
func TestAPanicInAStreamCutsItAndReleasesEverything(t *testing.T) {
	for _, pauses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			paused := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				writeNow(t, w, `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
				time.Sleep(time.Second)
				writeNow(t, w, `data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],`+
					`"usage":{"prompt_tokens":9,"completion_tokens":2}}`+"\n\ndata: [DONE]\n\n")
			}
			engine := http.Handler(fakeEngine())
			if pauses { // then the rest of the stream is relayed after the handler
				engine = http.HandlerFunc(paused)
			}
			r := newRig(t, plain, engine)
			for _, m := range r.control.Snapshot().ByName["small"].Members {
				m.Series.Prompt = nil // a fault of the program where usage is counted
			}
			a := r.post("/v1/chat/completions", strings.Replace(hello, "{", `{"stream":true,`, 1))
			if a.status != 200 || a.err == nil || r.counter("tierway_panics_total") != 1 {
				t.Errorf("pauses %t: %d %q, %v, %d panics", pauses, a.status, a.body, a.err, r.counter("tierway_panics_total"))
			}
			synctest.Wait()
			if n := r.proxy.Inflight(); n != 0 {
				t.Errorf("pauses %t: %d requests are in flight", pauses, n)
			}
			for _, v := range r.control.Snapshot().ByName["small"].Routing.Snapshot(time.Now()) {
				if v.Inflight != 0 {
					t.Errorf("pauses %t: the worker has %d requests", pauses, v.Inflight)
				}
			}
		})
	}
}
