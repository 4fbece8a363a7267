package server

import (
	"io"
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
	for name, engine := range map[string]http.Handler{"at once": fakeEngine(), "with a pause": pausedStream(time.Second)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plain, engine)
				for _, m := range r.control.Snapshot().ByName["small"].Members {
					m.Series.Prompt = nil // a fault of the program where usage is counted
				}
				a := r.post("/v1/chat/completions", strings.Replace(hello, "{", `{"stream":true,`, 1))
				if a.status != 200 || a.err == nil || r.counter("tierway_panics_total") != 1 {
					t.Errorf("%d %q, %v, %d panics", a.status, a.body, a.err, r.counter("tierway_panics_total"))
				}
			})
		})
	}
}

// pausedStream answers with a stream that pauses after its first content.
func pausedStream(pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush() // a client that left shows at the end
		time.Sleep(pause)
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":9,"completion_tokens":2}}`+"\n\ndata: [DONE]\n\n")
	}
}
