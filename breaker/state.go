package breaker

import (
	"fmt"
	"time"
)

// State is the state of a breaker.
type State int

// The states of a breaker. Their numbers are those of gobreaker and of the metric
// tierway_worker_breaker.
const (
	Closed   State = iota // all requests pass
	HalfOpen              // a few requests probe the worker
	Open                  // no request passes
)

// String returns closed, half_open or open.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case HalfOpen:
		return "half_open"
	case Open:
		return "open"
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// The causes of transitions.
const (
	CauseConsecutiveFailures = "consecutive_failures" // closed to open: ConsecutiveFailures in a row
	CauseFailureRatio        = "failure_ratio"        // closed to open: FailureRatio within the window
	CauseSlow                = "slow"                 // to open: slower than its peers or than p95_above allows
	CauseHung                = "hung"                 // to open: the server runs, but its engine returns nothing
	CauseOtherGateway        = "other_gateway"        // closed to open: another gateway opened its breaker of the worker
	CauseProbeFailed         = "probe_failed"         // half-open to open
	CauseProbeTimeout        = "probe_timeout"        // half-open to open: a probe had no outcome within its deadline
	CauseTimeout             = "timeout"              // open to half-open: open_for is over
	CauseHealthy             = "healthy"              // open to half-open: a health check was good, or a hang ended
	CauseProbeSucceeded      = "probe_succeeded"      // half-open to closed
)

// Change is one transition of a breaker.
type Change struct {
	To          State
	Cause       string    // one of the Cause constants
	Until       time.Time // end of the open state; zero for other states
	Unreachable bool      // it opened because the server accepted no connection
	Slow        bool      // it was opened for slowness, and not closed since
}

// unlock releases the lock and delivers the transitions that happened under it.
func (b *Breaker) unlock() {
	b.mu.Unlock()
	b.notify()
}

// notify delivers the pending transitions to OnChange, unless another goroutine is delivering
// them. It holds no lock during the call, so OnChange may call the breaker.
func (b *Breaker) notify() {
	for {
		b.mu.Lock()
		if b.notifying || len(b.pendingEvents) == 0 {
			b.mu.Unlock()
			return
		}
		c := b.pendingEvents[0]
		b.pendingEvents, b.notifying = b.pendingEvents[1:], true
		b.mu.Unlock()
		func() {
			defer func() { // also if OnChange panics
				b.mu.Lock()
				b.notifying = false
				b.mu.Unlock()
			}()
			b.options.OnChange(c)
		}()
	}
}

// View is the state of a breaker for metrics and the admin API.
type View struct {
	State State
	Since time.Time // time of the last transition, or of New
	Until time.Time // end of the open state; zero for other states
	Cause string    // of the last transition; "" before the first
	Found time.Time // last opening because this gateway's own requests failed or hung; zero: none

	Hung bool // opened for a hang, and not closed since

	Failures, Requests  int // outcomes within the window; 0 unless closed
	ConsecutiveFailures int // since the last success
}

// View returns the breaker's state and counts. It causes no transition: an open breaker stays
// open until Poll or Allow.
func (b *Breaker) View() View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{State: b.state, Since: b.since, Until: b.until, Cause: b.cause, Found: b.found, Hung: b.hung,
		ConsecutiveFailures: b.consecutiveFailures}
	if b.state == Closed {
		b.circuit.State() // advances the window
		n := b.circuit.Counts()
		v.Failures, v.Requests = int(n.TotalFailures), int(n.TotalFailures+n.TotalSuccesses)
	}
	return v
}
