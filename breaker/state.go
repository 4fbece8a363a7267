package breaker

import (
	"fmt"
	"time"
)

// State is what a breaker does with requests.
type State int

// The states of a breaker. Their numbers are those of gobreaker and of the metric
// tierway_worker_breaker.
const (
	Closed   State = iota // all pass
	HalfOpen              // a few pass to try the worker
	Open                  // none passes
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
	CauseConsecutiveFailures = "consecutive_failures" // closed to open: that many failures in a row
	CauseFailureRatio        = "failure_ratio"        // closed to open: that share within the window
	CauseSlow                = "slow"                 // to open: slower than its peers or than p95_above allows
	CauseHung                = "hung"                 // to open: its server runs, and its engine answers nothing
	CauseProbeFailed         = "probe_failed"         // half-open to open
	CauseProbeTimeout        = "probe_timeout"        // half-open to open: a probe had no outcome in time
	CauseTimeout             = "timeout"              // open to half-open: open_for is over
	CauseHealthy             = "healthy"              // open to half-open: a health check was good, or a hang is over
	CauseProbeSucceeded      = "probe_succeeded"      // half-open to closed
)

// Change is one transition.
type Change struct {
	From, To    State
	Cause       string    // one of the Cause constants
	Until       time.Time // when an open breaker becomes half-open; zero otherwise
	Unreachable bool      // it opened because no server took a connection
	Slow        bool      // it was opened for slowness and not closed since
}

// unlock releases the lock and delivers the transitions that happened under it.
func (b *Breaker) unlock() {
	b.mu.Unlock()
	b.notify()
}

// notify delivers the pending transitions to OnChange, unless another call of notify
// does. It holds no lock meanwhile, so that OnChange may call the breaker and cause the
// next transition.
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

// View is a breaker as metrics and the admin API show it.
type View struct {
	State State
	Since time.Time // of the last transition, or when it was made
	Until time.Time // when an open breaker becomes half-open; zero otherwise
	Cause string    // of the last transition; "" before the first

	Failures, Requests  int // outcomes within the window; 0 unless closed
	ConsecutiveFailures int // since the last success
	Probes              int // in progress, of a half-open breaker
}

// View returns the breaker's state. It changes nothing: an open breaker stays open until
// Poll or Allow.
func (b *Breaker) View() View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{State: b.state, Since: b.since, Until: b.until, Cause: b.cause,
		ConsecutiveFailures: b.consecutiveFailures, Probes: len(b.probes)}
	if b.state == Closed {
		b.circuit.State() // moves the window on
		n := b.circuit.Counts()
		v.Failures, v.Requests = int(n.TotalFailures), int(n.TotalFailures+n.TotalSuccesses)
	}
	return v
}

// State returns the state. Like View it changes nothing.
func (b *Breaker) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
