package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// circuit is gobreaker's state machine. It is used under the breaker's lock only, and its
// callbacks run under that lock.
type circuit = gobreaker.TwoStepCircuitBreaker[struct{}]

var (
	errFailure  = errors.New("failed")
	errExcluded = errors.New("excluded")
	// circuitErrors maps outcomes to the errors that a circuit counts.
	circuitErrors = [...]error{
		Success: nil, Excluded: errExcluded, Failure: errFailure, Unreachable: errFailure, TooSlow: errFailure,
	}
)

// windowBuckets is the number of steps in which the rolling window moves: a failure is
// forgotten at most a tenth of the window late.
const windowBuckets = 10

// newCircuitLocked returns a circuit. The breaker follows its transitions while the circuit
// is b.circuit.
func (b *Breaker) newCircuitLocked(timeout time.Duration, readyToTrip func(gobreaker.Counts) bool) *circuit {
	var c *circuit
	c = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(b.config.Probes),
		Interval:     b.config.Window,
		BucketPeriod: max(1, b.config.Window/windowBuckets),
		Timeout:      timeout,
		ReadyToTrip:  readyToTrip,
		IsExcluded:   func(err error) bool { return errors.Is(err, errExcluded) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if b.circuit == c {
				b.followLocked(State(to))
			}
		},
	})
	return c
}

// renewLocked gives the breaker a closed circuit. The open timeout is spread by a tenth, so
// that workers that fail together are not all probed at the same moment.
func (b *Breaker) renewLocked() {
	b.openFor = time.Duration(float64(b.config.OpenFor) * (0.9 + 0.2*b.options.Rand()))
	b.circuit, b.outdated = b.newCircuitLocked(b.openFor, b.readyToTrip), false
}

// reopenLocked gives an open breaker a circuit that stays open for timeout.
func (b *Breaker) reopenLocked(timeout time.Duration) {
	c := b.newCircuitLocked(timeout, func(gobreaker.Counts) bool { return true })
	if report, err := c.Allow(); err == nil {
		report(errFailure)
	}
	b.circuit, b.outdated = c, true
}

// endOpenLocked makes an open breaker half-open. gobreaker has no call for that, so a circuit
// with a timeout of one nanosecond replaces the current one.
func (b *Breaker) endOpenLocked() {
	b.reopenLocked(1)
	b.circuit.State()
}

// followLocked applies a transition of the circuit to the breaker. Outcomes of requests in
// progress no longer count.
func (b *Breaker) followLocked(to State) {
	now := time.Now()
	c := Change{To: to, Cause: b.tripReason, Unreachable: b.unreachable}
	for _, p := range b.probes {
		p.timer.Stop()
	}
	clear(b.probes)
	outdated := b.outdated
	switch to {
	case Open:
		b.slow, b.hung = b.slow || c.Cause == CauseSlow, b.hung || c.Cause == CauseHung
		if c.Cause != CauseSlow && c.Cause != CauseOtherGateway {
			b.found = now
		}
		b.consecutiveFailures, b.interrupted = 0, 0
		if outdated {
			b.renewLocked()
			b.reopenLocked(b.openFor)
		}
		c.Until = now.Add(b.openFor)
	case HalfOpen:
		b.probedSince = now
		if c.Cause = CauseTimeout; now.Before(b.until) {
			c.Cause = CauseHealthy
		}
	case Closed:
		c.Cause = CauseProbeSucceeded
		b.slow, b.hung, b.failedProbes = false, false, 0
		if outdated {
			b.renewLocked()
		}
	}
	c.Slow = b.slow
	b.tickets++
	b.state, b.generation, b.cause, b.since, b.until = to, b.tickets, c.Cause, now, c.Until
	b.pendingEvents = append(b.pendingEvents, c)
}
