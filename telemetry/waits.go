package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// waitSeconds are the buckets of queue times. A request below 1 ms did not wait; 600 s is
// the longest default of queue.max_wait.
var waitSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

// Waits holds the resolved series of tierway_queue_wait_seconds of one tier or pool, by class.
type Waits []prometheus.Observer

// Waits resolves the queue times of a tier for the names of all classes. Dispatched takes
// indexes into classes.
func (m *Metrics) Waits(tier string, classes []string) (w Waits) {
	for _, class := range classes {
		w = append(w, m.waits.WithLabelValues(tier, class))
	}
	return w
}

// Dispatched counts a request that reached a worker. wait is the sum of all its waits; 0 if
// it did not wait. Call it once per request.
func (w Waits) Dispatched(class int, wait time.Duration) { w[class].Observe(wait.Seconds()) }
