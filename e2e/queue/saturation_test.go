package queue

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// fixedMetrics serves an engine with fixed metrics instead of its own.
type fixedMetrics struct {
	http.Handler
	metrics string
}

func (r fixedMetrics) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.URL.Path == "/metrics" {
		io.WriteString(w, r.metrics) // the test fails without it
		return
	}
	r.Handler.ServeHTTP(w, q)
}

// TestMetricsAloneDoNotShedRequestsBesideIdleWorkers: the metrics of two idle engines look full.
// The gateway still serves all requests.
func TestMetricsAloneDoNotShedRequestsBesideIdleWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		metrics  string
		together int // requests at once
	}{
		"full cache": {
			"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.97\n", 20},
		"full cache and queue": {
			"vllm:num_requests_running 0\nvllm:num_requests_waiting 9\nvllm:kv_cache_usage_perc 0.97\n", 1},
	} {
		bubble.Run(t, name, func(t *testing.T) {
			r := newRigNotListening(t, 2, engines.Config{})
			for _, w := range r.Workers {
				w.Front = fixedMetrics{w.Engine, c.metrics}
				w.Listen()
			}
			r.Serve(rig.Settings{
				"tiers":      r.Tiers("max_inflight: 64", ""),
				"queue":      "{ max_wait: { interactive: 30s } }",
				"health":     "{ interval: 1s, timeout: 1s, down_after: 10 }",
				"saturation": "{ waiting: 5, kv_usage: 0.9, stale_after: 5s }",
			})
			rig.Eventually(t, func() error {
				if usage := r.Sum("tierway_worker_kv_usage_ratio"); usage < 1.9 {
					return fmt.Errorf("the gateway has read a cache usage of %v of two engines, want 1.94", usage)
				}
				return nil
			})
			for range 100 / c.together {
				r.checkServed(r.startMany(c.together, plain))
			}
			if shed := r.Sum("tierway_queue_shed_total"); shed != 0 {
				t.Errorf("%v requests were shed, want none", shed)
			}
		})
	}
}
