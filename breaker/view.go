package breaker

import "time"

// View is a breaker as metrics and the admin API show it.
type View struct {
	State State
	Since time.Time // of the last transition, or when it was made
	Until time.Time // when an open breaker is to become half-open; zero otherwise
	Cause string    // of the last transition; "" before the first

	Failures, Requests  int // verdicts within the window; 0 unless closed
	ConsecutiveFailures int // since the last success
	Probes              int // under way, of a half-open breaker

	Median    float64 // of observed by predicted time to first token; 0 without enough samples
	SlowRatio float64 // median of the last moments' comparisons with its peers; 0 when they are too few
	Samples   int     // streams of the last five minutes, at most 64
}

// View returns what the breaker is and knows now. It changes nothing: what is
// open stays so until Poll or Allow.
func (b *Breaker) View() View {
	if b == nil {
		return View{}
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{State: b.state, Since: b.since, Until: b.until, Cause: b.cause, ConsecutiveFailures: b.row, Probes: len(b.probes)}
	if b.state == Closed {
		v.Failures, v.Requests = totals(b.core)
	}
	b.group.mu.Lock()
	defer b.group.mu.Unlock()
	p := &b.seat.pace
	p.prune(now)
	v.Samples, v.SlowRatio = p.n, p.slowRatio()
	v.Median, _ = p.median(time.Time{}, time.Time{}, b.config.Slow.MinSamples)
	return v
}

// State returns the state, which is Closed of a nil Breaker. Like View it
// changes nothing.
func (b *Breaker) State() State {
	if b == nil {
		return Closed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
