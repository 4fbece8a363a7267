package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// waitSeconds are the bounds of the histogram of waits in a queue: below 1 ms
// nobody waited, 600 s is the longest default of max_wait.
var waitSeconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600}

// Waits is the resolved tierway_queue_wait_seconds of one tier or pool, by class.
type Waits []prometheus.Observer

// Waits resolves the histogram of a tier for the names of all classes; Dispatched
// takes indexes into them.
func (m *Metrics) Waits(tier string, classes []string) (w Waits) {
	for _, class := range classes {
		w = append(w, m.waits.WithLabelValues(tier, class))
	}
	return w
}

// Dispatched counts a request that had a worker, once, with all its waits together:
// 0 for one that had its workers at once.
func (w Waits) Dispatched(class int, wait time.Duration) { w[class].Observe(wait.Seconds()) }
