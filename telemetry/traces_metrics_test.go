package telemetry

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestSpansAreCountedByResult(t *testing.T) {
	m := New("v")
	Observe(m, func() TraceCounts { return TraceCounts{Exported: 1, Failed: 2, Dropped: 3, Queued: 4} })
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`tierway_trace_spans_total{result="exported"} 1`,
		`tierway_trace_spans_total{result="failed"} 2`,
		`tierway_trace_spans_total{result="dropped"} 3`, `tierway_trace_queue 4`} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}
