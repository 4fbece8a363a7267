package queue

import (
	"fmt"

	"tierway/e2e/rig"
	"tierway/engines"
)

// waitForQueued waits until n requests are in the queues.
func (r *queueRig) waitForQueued(n int) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.Sum("tierway_queue_depth"); got != float64(n) {
			return fmt.Errorf("%v requests wait, want %d", got, n)
		}
		return nil
	})
}

// waitForRunning waits until the engines run n requests.
func (r *queueRig) waitForRunning(n int) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.sumEngines(func(s engines.Stats) int { return s.Running }); got != n {
			return fmt.Errorf("the engines run %d requests, want %d", got, n)
		}
		return nil
	})
}

// received returns how many chat requests the engines have received.
func (r *queueRig) received() int {
	return r.sumEngines(func(s engines.Stats) int { return int(s.Requests["/v1/chat/completions"]) })
}

// sumEngines returns the sum of a figure over all engines.
func (r *queueRig) sumEngines(figure func(engines.Stats) int) (n int) {
	for _, w := range r.Workers {
		n += figure(w.Engine.Stats())
	}
	return n
}

// checkInflight returns an error unless n requests are booked on workers.
func (r *queueRig) checkInflight(n int) error {
	if got := r.Sum("tierway_worker_inflight"); got != float64(n) {
		return fmt.Errorf("%v requests are booked on workers, want %d", got, n)
	}
	return nil
}
