package queue

import (
	"fmt"

	"tierway/e2e/rig"
	"tierway/engines"
)

// waiting waits until so many requests are in the queues.
func (r *queueRig) waiting(n int) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.Sum("tierway_queue_depth"); got != float64(n) {
			return fmt.Errorf("%v requests wait, not %d", got, n)
		}
		return nil
	})
}

// running waits until the engines work on so many requests.
func (r *queueRig) running(n int) {
	r.T.Helper()
	rig.Eventually(r.T, func() error {
		if got := r.engines(func(s engines.Stats) int { return s.Running }); got != n {
			return fmt.Errorf("the engines work on %d requests, not %d", got, n)
		}
		return nil
	})
}

// asked is how many requests for answers the engines have got.
func (r *queueRig) asked() int {
	return r.engines(func(s engines.Stats) int { return int(s.Requests["/v1/chat/completions"]) })
}

// engines adds up a figure of all engines.
func (r *queueRig) engines(figure func(engines.Stats) int) (n int) {
	for _, w := range r.Workers {
		n += figure(w.Engine.Stats())
	}
	return n
}

// inflight says whether so many requests are booked on workers.
func (r *queueRig) inflight(n int) error {
	if got := r.Sum("tierway_worker_inflight"); got != float64(n) {
		return fmt.Errorf("%v requests are booked on workers, not %d", got, n)
	}
	return nil
}
