package queue

import (
	"errors"
	"fmt"
	"strings"

	"tierway/e2e/gateway"
	"tierway/engines"
)

// sum is the sum of a metric's series at this moment, -1 when it cannot be had.
func (r *rig) sum(name string, pairs ...string) float64 {
	m, err := r.Metrics()
	if err != nil {
		return -1
	}
	return m.Sum(name, pairs...)
}

// waiting waits until so many requests are in the queues.
func (r *rig) waiting(n int) {
	r.t.Helper()
	eventually(r.t, func() error {
		if got := r.sum("tierway_queue_depth"); got != float64(n) {
			return fmt.Errorf("%v requests wait, not %d", got, n)
		}
		return nil
	})
}

// running waits until the engines work on so many requests.
func (r *rig) running(n int) {
	r.t.Helper()
	eventually(r.t, func() error {
		if got := r.engines(func(s engines.Stats) int { return s.Running }); got != n {
			return fmt.Errorf("the engines work on %d requests, not %d", got, n)
		}
		return nil
	})
}

// asked is how many requests for answers the engines have got.
func (r *rig) asked() int {
	return r.engines(func(s engines.Stats) int { return int(s.Requests["/v1/chat/completions"]) })
}

// engines adds up a figure of all engines.
func (r *rig) engines(figure func(engines.Stats) int) (n int) {
	for _, w := range r.workers {
		n += figure(w.Stats())
	}
	return n
}

// quiet waits until nobody waits and nothing is in flight anywhere, and checks
// that what was begun has ended and been counted once.
func (r *rig) quiet() {
	r.t.Helper()
	eventually(r.t, func() error {
		if !r.Alive() {
			return nil // the test has ended it
		}
		m, err := r.Metrics()
		if err != nil {
			return err
		}
		if n := m.Sum("tierway_panics_total"); n != 0 {
			return fmt.Errorf("%v handlers panicked", n)
		}
		if _, there := find(m, "tierway_queue_depth"); !there {
			return errors.New("there is no tierway_queue_depth")
		}
		for _, name := range []string{"tierway_inflight", "tierway_queue_depth", "tierway_queue_bytes", "tierway_worker_inflight",
			"tierway_worker_pending_tokens", "tierway_worker_output_tokens"} {
			if series, v := busiest(m, name); v != 0 {
				return fmt.Errorf("%s is %v and nobody asks any more", series, v)
			}
		}
		if begun, ended := m.Sum("tierway_requests_started_total"), m.Sum("tierway_requests_total"); begun != ended {
			return fmt.Errorf("%v requests began and %v ended", begun, ended)
		}
		if in, out := m.Sum("tierway_queue_entered_total"), m.Sum("tierway_queue_granted_total")+m.Sum("tierway_queue_left_total")+m.Sum("tierway_queue_put_out_total"); in != out {
			return fmt.Errorf("%v requests entered a queue and %v were granted, left or were put out", in, out)
		}
		if n := r.engines(func(s engines.Stats) int { return s.Open }); n != 0 {
			return fmt.Errorf("the engines still serve %d requests", n)
		}
		return nil
	})
}

// find returns a series of a name.
func find(m gateway.Samples, name string) (series string, there bool) {
	for series := range m {
		if series == name || strings.HasPrefix(series, name+"{") {
			return series, true
		}
	}
	return "", false
}

// busiest returns a series of a name that is not 0, if there is one.
func busiest(m gateway.Samples, name string) (string, float64) {
	for series, v := range m {
		if (series == name || strings.HasPrefix(series, name+"{")) && v != 0 {
			return series, v
		}
	}
	return "", 0
}

// inflight says whether so many requests are booked on workers.
func (r *rig) inflight(n int) error {
	if got := r.sum("tierway_worker_inflight"); got != float64(n) {
		return fmt.Errorf("%v requests are booked on workers, not %d", got, n)
	}
	return nil
}
