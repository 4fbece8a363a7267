package breaker

import (
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Outcome is the result of one request to the worker.
type Outcome int

// The outcomes of a request.
const (
	Success     Outcome = iota
	Excluded            // counts neither way: a client's mistake or cancel, backpressure
	Failure             //
	Unreachable         // a failure: no server took the connection
	TooSlow             // a good answer of a worker that is too slow: opens the breaker
)

// Options are the functions that a breaker calls.
type Options struct {
	// Outcome classifies what Report and Cut are given.
	Outcome func(error) Outcome
	// Rand returns a number of [0, 1). It must not call the breaker.
	Rand func() float64
	// OnChange receives every transition, one at a time and in order, outside all
	// locks, from the goroutine that caused it or from one that is delivering an
	// earlier one. It may call the breaker. nil drops them.
	OnChange func(Change)
}

// Breaker keeps requests from one worker while it fails. It is safe for concurrent use.
// Its owner calls Poll once a second: without it an open breaker would become half-open
// with the next request only.
type Breaker struct {
	options Options

	mu         sync.Mutex // before the circuit's own lock
	config     Config
	circuit    *circuit
	openFor    time.Duration // the circuit's timeout, as configured and spread
	outdated   bool          // the circuit has other settings than these; it is replaced when it leaves half-open
	state      State
	generation uint64 // ticket of the requests admitted while closed
	tickets    uint64 // issued so far
	since      time.Time
	until      time.Time // the end of an open state
	cause      string    // of the last transition

	consecutiveFailures int       // since the last success
	interrupted         int       // consecutive failures that the last success ended
	failedProbes        int       // and hangs found, since it was closed
	slow                bool      // it was opened for slowness and not closed since
	unreachable         bool      // the last failure was one of no connection
	tripReason          string    // why the failure being counted opens
	probedSince         time.Time // when it was half-open last, or was made; requests since then count
	probes              map[uint64]*probe

	pendingEvents []Change
	notifying     bool
}

// probe is a request that tries a half-open worker.
type probe struct {
	report func(error) // the circuit's
	timer  *time.Timer // fails it
}

// New makes a closed breaker.
func New(c Config, o Options) *Breaker {
	if o.OnChange == nil {
		o.OnChange = func(Change) {}
	}
	now := time.Now()
	b := &Breaker{options: o, config: c.withDefaults(), since: now, probedSince: now, probes: map[uint64]*probe{}}
	b.renewLocked()
	return b
}

// Configure replaces the configuration and keeps state and consecutive failures. The
// counts within the window start afresh if window, open_for or probes change. A new
// open_for counts from the next opening on.
func (b *Breaker) Configure(c Config) {
	c = c.withDefaults()
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.config
	b.config = c
	switch same := c.Window == old.Window && c.OpenFor == old.OpenFor && c.Probes == old.Probes; {
	case same:
	case b.state == Closed:
		b.renewLocked()
	case b.state == Open:
		b.reopenLocked(max(1, time.Until(b.until)))
	default:
		b.outdated = true
	}
}

// Allow admits a request, or returns an error while the breaker is open (from the return of
// OnChange on) or half-open with all probes in progress. Its caller owes one Report with the
// ticket. A probe fails without one after ProbeTimeout, or three times the expected time if
// that is longer.
func (b *Breaker) Allow(expected time.Duration) (ticket uint64, err error) {
	b.mu.Lock()
	defer b.unlock()
	// Until OnChange has received an opening, the ejection cap may still keep the worker in
	// rotation. Requests pass so long, and their outcomes do not count.
	opening := b.state == Open && (b.notifying || len(b.pendingEvents) > 0)
	if b.state != Closed && !opening {
		return b.probeLocked(expected)
	}
	return b.generation, nil
}

// probeLocked admits a request to a worker that is half-open or about to be.
func (b *Breaker) probeLocked(expected time.Duration) (ticket uint64, err error) {
	report, err := b.circuit.Allow()
	if err != nil {
		return 0, err
	}
	b.tickets++
	ticket = b.tickets
	timer := time.AfterFunc(b.patienceLocked(expected), func() { b.report(ticket, Failure, CauseProbeTimeout) })
	b.probes[ticket] = &probe{report, timer}
	return ticket, nil
}

// probePatience is how many times its expected time a probe may take: a whole answer gives
// no sign before its end.
const probePatience = 3

func (b *Breaker) patienceLocked(expected time.Duration) time.Duration {
	return max(b.config.ProbeTimeout, probePatience*expected)
}

// Probing reports whether the request with that ticket tries a half-open worker, and after
// how long it fails.
func (b *Breaker) Probing(ticket uint64, expected time.Duration) (patience time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.patienceLocked(expected), b.probes[ticket] != nil
}

// Report counts the outcome of an admitted request; nil is a success. Only the first
// report of a probe counts, and none once the breaker has changed its state since. If a
// stream breaks off after a good report, Cut reports that.
func (b *Breaker) Report(ticket uint64, err error) {
	b.report(ticket, b.options.Outcome(err), CauseProbeFailed)
}

// report counts an outcome. cause is the cause of the opening if a failed probe opens.
func (b *Breaker) report(ticket uint64, o Outcome, cause string) {
	b.mu.Lock()
	defer b.unlock()
	if p := b.probes[ticket]; p != nil {
		p.timer.Stop()
		delete(b.probes, ticket)
		b.tripReason, b.unreachable = cause, o == Unreachable
		switch o {
		case TooSlow:
			b.tripReason = CauseSlow
			b.failedProbes++
		case Failure, Unreachable:
			b.failedProbes++
		}
		p.report(circuitErrors[o])
		b.tripReason = ""
	} else if b.state == Closed && ticket == b.generation {
		b.countLocked(o)
	}
}

// countLocked counts an outcome while closed. It asks gobreaker for admission only now,
// because gobreaker drops the result of a request that took longer than the window.
func (b *Breaker) countLocked(o Outcome) {
	switch o {
	case Excluded:
		return
	case Success:
		b.interrupted, b.consecutiveFailures = b.consecutiveFailures, 0
	case TooSlow:
		b.tripReason = CauseSlow
	default:
		b.consecutiveFailures++
	}
	b.unreachable = o == Unreachable
	if report, err := b.circuit.Allow(); err == nil {
		report(circuitErrors[o])
	}
	b.tripReason = ""
}

// readyToTrip is gobreaker's question after each failure while closed. It does not use
// gobreaker's consecutive failures, which forget those that are older than the window.
func (b *Breaker) readyToTrip(n gobreaker.Counts) bool {
	outcomes := n.TotalFailures + n.TotalSuccesses
	switch {
	case b.tripReason != "":
	case b.consecutiveFailures >= b.config.ConsecutiveFailures:
		b.tripReason = CauseConsecutiveFailures
	case int(outcomes) >= b.config.MinRequests && float64(n.TotalFailures) >= b.config.FailureRatio*float64(outcomes):
		b.tripReason = CauseFailureRatio
	}
	return b.tripReason != ""
}

// Cut reports that a stream which began then and had a good report has broken off. The
// consecutive failures that the good report ended continue. If the stream was the probe
// that closed the breaker, the breaker opens again. A stream that began before does not
// count.
func (b *Breaker) Cut(began time.Time, err error) {
	if o := b.options.Outcome(err); o == Success || o == Excluded {
		return
	}
	b.mu.Lock()
	defer b.unlock()
	switch {
	case b.state != Closed || began.Before(b.probedSince):
	case began.Before(b.since):
		b.failedProbes++
		b.tripLocked(CauseProbeFailed)
	default:
		b.consecutiveFailures, b.interrupted = max(b.consecutiveFailures, b.interrupted), 0
		b.countLocked(Failure)
		if b.state == Closed {
			// gobreaker takes no outcome back: with one success and two failures per stream,
			// half of the outcomes are failures if half of the streams are cut.
			b.consecutiveFailures--
			b.countLocked(Failure)
		}
	}
}

// tripLocked opens a breaker that is closed or half-open, by a failure for that reason.
func (b *Breaker) tripLocked(reason string) {
	b.tripReason, b.unreachable = reason, false
	report, err := b.circuit.Allow()
	if err != nil { // all probes are in progress
		for _, p := range b.probes {
			report = p.report
		}
	}
	report(errFailure)
	b.tripReason = ""
}

// SetHung reports once a second whether the worker hangs. The breaker of a worker that
// hangs opens, and becomes half-open as soon as the worker hangs no more. A hang counts
// as a failed probe for Healthy: a health check says little about it.
func (b *Breaker) SetHung(hung bool) {
	b.mu.Lock()
	defer b.unlock()
	switch {
	case hung && b.state != Open:
		b.failedProbes++
		b.tripLocked(CauseHung)
	case !hung && b.state == Open && b.cause == CauseHung:
		b.endOpenLocked()
	}
}

// healthWait is how long a breaker stays open at least after a probe or a hang has
// contradicted a good health check, twice as long after each further one: one check more,
// at the usual interval.
const healthWait = 5 * time.Second

// Healthy reports that an active health check which began at started was good. It moves
// a breaker to half-open that was open before then, unless it was opened for slowness,
// about which a health check says nothing. Failed probes delay that.
func (b *Breaker) Healthy(started time.Time) {
	b.mu.Lock()
	defer b.unlock()
	from := b.since
	if b.failedProbes > 0 {
		from = from.Add(healthWait << min(b.failedProbes-1, 10))
	}
	if b.state == Open && !b.slow && started.After(from) {
		b.endOpenLocked()
	}
}

// Poll makes a breaker half-open that was open for long enough.
func (b *Breaker) Poll() {
	b.mu.Lock()
	defer b.unlock()
	b.circuit.State()
}
