package breaker

import (
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Outcome classifies the end of one request.
type Outcome int

// The outcomes of a request.
const (
	Success     Outcome = iota
	Excluded            // not counted: a client error, a cancellation, backpressure
	Failure             // counts as a failure
	Unreachable         // a failure: the server accepted no connection
	TooSlow             // a good answer of a worker that is too slow; opens the breaker
)

// Options are the functions that a Breaker calls.
type Options struct {
	// Outcome classifies the error given to Report or ReportCut.
	Outcome func(error) Outcome
	// Rand returns a random number in [0, 1). It must not call the breaker.
	Rand func() float64
	// OnChange receives every transition, one at a time and in order. It runs outside all
	// locks, in the goroutine that caused the transition or in one that is delivering an
	// earlier transition. It may call the breaker. nil ignores transitions.
	OnChange func(Change)
}

// Breaker is the circuit breaker of one worker. It is safe for concurrent use. Its owner
// calls Poll once a second; otherwise only the next request moves it from open to half-open.
type Breaker struct {
	options Options

	mu         sync.Mutex // taken before the circuit's own lock
	config     Config
	circuit    *circuit
	openFor    time.Duration // the circuit's timeout: configured, then spread
	outdated   bool          // the circuit was made with other settings; it is replaced after half-open
	state      State
	generation uint64 // ticket of all requests that were admitted while closed
	tickets    uint64 // the last ticket that was issued
	since      time.Time
	until      time.Time // end of the open state
	cause      string    // of the last transition

	consecutiveFailures int       // since the last success
	interrupted         int       // length of the run of failures that the last success ended
	failedProbes        int       // failed probes and hangs since it was last closed
	slow, hung          bool      // opened for slowness, for a hang; and not closed since
	unreachable         bool      // the last failure was a connection failure
	tripReason          string    // why the failure that is being counted opens the breaker
	probedSince         time.Time // when it last became half-open, or was made; earlier requests do not count
	probes              map[uint64]*probe
	nextSuspicion       time.Time // earlier suspicions have no effect
	found               time.Time // see View.Found

	pendingEvents []Change
	notifying     bool
}

// probe is a request that tries a half-open worker.
type probe struct {
	report func(error) // reports to the circuit
	timer  *time.Timer // fails the probe
}

// New returns a closed breaker.
func New(c Config, o Options) *Breaker {
	if o.OnChange == nil {
		o.OnChange = func(Change) {}
	}
	now := time.Now()
	b := &Breaker{options: o, config: c.withDefaults(), since: now, probedSince: now, probes: map[uint64]*probe{}}
	b.renewLocked()
	return b
}

// Configure replaces the configuration and keeps the state and the consecutive failures. If
// window, open_for or probes change, the counts within the window start again at zero. A new
// open_for applies from the next opening.
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

// Allow admits a request and returns its ticket. The caller owes one Report with that ticket.
// Allow returns an error while the breaker is open (once OnChange has returned) or is
// half-open with all probes in progress. Without a Report a probe fails after
// Config.ProbeTimeout or three times expected, whichever is longer.
func (b *Breaker) Allow(expected time.Duration) (ticket uint64, err error) {
	b.mu.Lock()
	defer b.unlock()
	// The ejection cap may keep the worker in rotation until OnChange has received the opening.
	// Until then requests pass, and their outcomes do not count.
	opening := b.state == Open && (b.notifying || len(b.pendingEvents) > 0)
	if b.state != Closed && !opening {
		return b.probeLocked(expected)
	}
	return b.generation, nil
}

// probeLocked admits a request to a worker that is half-open or becomes half-open now.
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

// probePatience is the longest duration of a probe, in multiples of its expected time: an
// answer that is not streamed shows nothing before its end.
const probePatience = 3

func (b *Breaker) patienceLocked(expected time.Duration) time.Duration {
	return max(b.config.ProbeTimeout, probePatience*expected)
}

// Probing reports whether the request with that ticket is a probe in progress, and returns
// the time after which such a probe fails.
func (b *Breaker) Probing(ticket uint64, expected time.Duration) (patience time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.patienceLocked(expected), b.probes[ticket] != nil
}

// Report counts the outcome of an admitted request; a nil err is a success. Only the first
// report of a probe counts, and a report is ignored if the breaker has changed its state
// since Allow. Use ReportCut for a stream that breaks off after a good report.
func (b *Breaker) Report(ticket uint64, err error) {
	b.report(ticket, b.options.Outcome(err), CauseProbeFailed)
}

// report counts an outcome. If a failed probe opens the breaker, cause is the reason.
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

// countLocked counts an outcome while closed. It calls the circuit's Allow only now, because
// gobreaker ignores the result of a request that took longer than the window.
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

// readyToTrip is gobreaker's callback after each failure while closed. It uses its own count
// of consecutive failures, because gobreaker forgets failures that are older than the window.
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

// ReportCut reports that a stream which began at began broke off after a good report. The run of
// consecutive failures that the good report ended continues. If the stream was the probe
// that closed the breaker, the breaker opens again. Earlier streams do not count.
func (b *Breaker) ReportCut(began time.Time, err error) {
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
			// gobreaker cannot take an outcome back. With one success and two failures for each cut
			// stream, the share of failures is one half if half of the streams are cut.
			b.consecutiveFailures--
			b.countLocked(Failure)
		}
	}
}

// tripLocked counts a failure that opens a closed or half-open breaker for that reason.
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

// SetHung reports once a second since when the engine hangs; the zero time means that it does not. A hang opens the
// breaker, unless it was found before the last transition; its end makes the breaker half-open at once. A
// hang counts as a failed probe for Healthy, because a health check of a hung engine may still succeed.
func (b *Breaker) SetHung(found time.Time) {
	b.mu.Lock()
	defer b.unlock()
	switch hung := !found.IsZero(); {
	case hung && b.state != Open && !found.Before(b.since):
		b.failedProbes++
		b.tripLocked(CauseHung)
	case !hung && b.state == Open && b.cause == CauseHung:
		b.endOpenLocked()
	}
}

// healthWait is the shortest open state before a health check can end it, after one failed
// probe or hang: one more check at the usual interval. It doubles with each further failure.
const healthWait = 5 * time.Second

// hungDoublings bounds the doublings after a hang, so that an engine that goes on has requests again within half a
// minute. A probe of an engine that still hangs delays its request, and another worker answers it.
const hungDoublings = 1

// Healthy reports that an active health check which began at started was good. An open
// breaker that opened before then becomes half-open. It stays open if it was opened for
// slowness, which a health check does not measure; failed probes delay the effect.
func (b *Breaker) Healthy(started time.Time) {
	b.mu.Lock()
	defer b.unlock()
	from := b.since
	if b.failedProbes > 0 {
		maxDoublings := 10
		if b.hung {
			maxDoublings = hungDoublings
		}
		from = from.Add(healthWait << min(b.failedProbes-1, maxDoublings))
	}
	if b.state == Open && !b.slow && started.After(from) {
		b.endOpenLocked()
	}
}

// Suspect reports that another gateway has opened its breaker of the same worker. A closed breaker
// then opens with [CauseOtherGateway], and Suspect returns true. As after any opening, a good health
// check that begins afterwards makes it half-open.
//
// Suspect does not change an open or half-open breaker. It has no effect within Config.OpenFor after an
// earlier suspicion with an effect. False suspicions therefore cost a worker one health check and its
// probes for each Config.OpenFor.
func (b *Breaker) Suspect() (opened bool) {
	b.mu.Lock()
	defer b.unlock()
	now := time.Now()
	if b.state != Closed || now.Before(b.nextSuspicion) {
		return false
	}
	b.nextSuspicion = now.Add(b.config.OpenFor)
	b.tripLocked(CauseOtherGateway)
	return true
}

// Poll makes an open breaker half-open if its open state is over.
func (b *Breaker) Poll() {
	b.mu.Lock()
	defer b.unlock()
	b.circuit.State()
}
