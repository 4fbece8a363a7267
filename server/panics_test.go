package server

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, fakeEngine())
		for _, m := range r.control.Snapshot().ByName["small"].Members {
			m.Series.Prompt = nil // a fault of the program where usage is counted
		}
		a := r.post("/v1/chat/completions", strings.Replace(hello, "{", `{"stream":true,`, 1))
		if a.status != 200 || a.err == nil || r.counter("tierway_panics_total") != 1 {
			t.Errorf("%d %q, %v, %d panics", a.status, a.body, a.err, r.counter("tierway_panics_total"))
		}
	})
}
