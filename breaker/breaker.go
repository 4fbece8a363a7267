package breaker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Errors of Allow, and the one of Pace.
var (
	// ErrOpen means that the worker is out.
	ErrOpen = errors.New("the worker's circuit breaker is open")
	// ErrProbing means that the worker is being tried, by as many requests as
	// may try it.
	ErrProbing = errors.New("the worker's circuit breaker is half-open and all its probes are under way")
	// ErrSlow is the verdict on a good answer of a worker that is too slow.
	ErrSlow = errors.New("the worker is too slow")
)

// State is what a breaker does with requests.
type State int

// The states of a breaker. Their numbers are those of the metric
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

// Breaker keeps requests from one worker while it fails. It is safe for
// concurrent use. A nil Breaker lets everything pass and knows nothing.
type Breaker struct {
	id    string
	ref   any
	group *Group
	seat  seat // guarded by the group's lock

	mu         sync.Mutex // before the group's lock and the core's
	config     Config
	core       *core
	state      State
	generation uint64 // grows with each transition
	retired    bool   // its member is gone: nothing changes any more
	since      time.Time
	until      time.Time // the end of an open state
	cause      string    // of the last transition
	slow       bool      // was opened for slowness, of which health checks know nothing, and not closed since
	row        int       // failures since the last success
	ended      int       // the row that the last success ended
	refuted    int       // probes that failed, and hangs found, since it was closed
	kept       bool      // the rules of leave keep in what should be left, which is to be told
	tried      time.Time // when it was half-open last, or began; requests since then counted
	failing    outing    // what the failure being counted shows
	ripeFor    string    // why the failure being counted opens
	probes     map[*permit]struct{}
	spare      []permit // for the next requests
	news       []Change // not yet told
	telling    bool     // somebody tells news
}

func newBreaker(g *Group, c Config, m Member) *Breaker {
	b := &Breaker{id: m.ID, ref: m.Ref, group: g, config: c, since: time.Now(), tried: time.Now(), probes: map[*permit]struct{}{}}
	b.core = newClosed(c, b.ripeLocked)
	return b
}

// Allow asks whether the worker may be used. It returns an error when not, else
// the function for the verdict on this one request, nil for success. Only its
// first call counts, and none once the breaker has changed its state since. A
// probe of a half-open breaker without a verdict fails after ProbeTimeout.
//
// A stream that breaks off after a good verdict gets its second one by Cut.
func (b *Breaker) Allow() (done func(error), err error) { return b.AllowFor(0) }

// probePatience is how many times its expected time a probe may take: an answer
// that comes whole gives no sign before its end, and an engine that has just
// come back is no slower than that.
const probePatience = 3

// AllowFor is Allow for a request whose verdict is expected after that time. A
// probe has failed without one after ProbeTimeout, or three times the expected
// time if that is longer.
func (b *Breaker) AllowFor(expected time.Duration) (done func(error), err error) {
	if b == nil {
		return func(error) {}, nil
	}
	p, changed, err := b.admit(expected)
	if changed {
		b.tell()
	}
	if err != nil {
		return nil, err
	}
	return func(err error) { b.done(p, err) }, nil
}

// permit is one request that passed, guarded by its breaker's lock.
type permit struct {
	generation uint64
	settled    bool
	probe      *probe // nil unless it tries a half-open worker
}

// probe is what one place of a half-open breaker holds.
type probe struct {
	verdict func(error) // the core's
	timer   *time.Timer // ends it
}

// permitBatch is how many permits are allocated at a time, so that a request
// costs two allocations: one function here and one in gobreaker. A batch is
// 768 bytes, which the longest stream of its requests keeps.
const permitBatch = 32

// permitLocked makes a permit.
func (b *Breaker) permitLocked() *permit {
	if len(b.spare) == 0 {
		b.spare = make([]permit, permitBatch)
	}
	p := &b.spare[0]
	b.spare = b.spare[1:]
	p.generation = b.generation
	return p
}

func (b *Breaker) admit(expected time.Duration) (p *permit, changed bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == Open {
		b.moveLocked(time.Now())
	}
	switch {
	case b.state == Open:
		err = ErrOpen
	case b.state == HalfOpen:
		p, err = b.probeLocked(expected)
	default:
		p = b.permitLocked()
	}
	return p, len(b.news) > 0, err
}

// probeLocked admits a request to a half-open worker, if a place is free.
func (b *Breaker) probeLocked(expected time.Duration) (*permit, error) {
	if b.retired {
		return nil, ErrProbing
	}
	verdict, err := b.core.Allow()
	if err != nil {
		return nil, ErrProbing
	}
	p := b.permitLocked()
	p.probe = &probe{verdict: verdict, timer: time.AfterFunc(b.patienceLocked(expected), func() { b.settle(p, timedOut) })}
	b.probes[p] = struct{}{}
	return p, nil
}

func (b *Breaker) patienceLocked(expected time.Duration) time.Duration {
	return max(b.config.ProbeTimeout, probePatience*expected)
}

// Probing tells whether a request that has just passed tries a half-open worker,
// and how long it may take before it has failed, so that it need not wait for
// longer.
func (b *Breaker) Probing(expected time.Duration) (patience time.Duration, ok bool) {
	if b == nil {
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.patienceLocked(expected), b.state == HalfOpen
}

// verdict is what the end of a request says of its worker.
type verdict int

const (
	good verdict = iota
	excluded
	failed
	unreachable // a failure that is hard
	tooSlow
	timedOut
)

// outing returns what a failure shows.
func (v verdict) outing() outing {
	if v == unreachable {
		return hard
	}
	return soft
}

// done classifies a verdict and counts it.
func (b *Breaker) done(p *permit, err error) {
	v := failed
	switch {
	case err == nil:
		v = good
	case errors.Is(err, ErrSlow):
		v = tooSlow
	case b.group.options.Excluded(err):
		v = excluded
	case b.group.options.Hard(err):
		v = unreachable
	}
	b.settle(p, v)
}

// settle counts the verdict on one request, once.
func (b *Breaker) settle(p *permit, v verdict) {
	if v != good && v != excluded {
		b.group.look()
	}
	b.mu.Lock()
	if !p.settled && !b.retired && p.generation == b.generation {
		if p.probe == nil {
			b.countLocked(v)
		} else {
			b.probedLocked(p, v)
		}
	}
	p.settled = true
	changed, isOpen := len(b.news) > 0, b.state == Open
	kept := b.kept
	b.kept = false
	b.mu.Unlock()
	if kept && b.group.options.OnKept != nil {
		b.group.options.OnKept(b.id, b.ref)
	}
	if !changed {
		return
	}
	b.tell()
	if isOpen && v == unreachable {
		b.group.relieve()
	}
}

// countLocked counts a verdict while closed.
func (b *Breaker) countLocked(v verdict) {
	now := time.Now()
	if v == tooSlow {
		if b.group.leave(b, soft, now) {
			b.turnLocked(Open, CauseSlow, now)
			b.slow = true
			return
		}
		b.kept = true
		v = good // it may not be kept out, and its answer was good
	}
	switch v {
	case excluded:
	case good:
		b.ended, b.row = b.row, 0
		report(b.core, nil)
	default:
		b.row++
		b.failing = v.outing()
		report(b.core, errFailed)
		if opened(b.core) {
			b.turnLocked(Open, b.ripeFor, now)
		}
	}
}

// Cut says that a stream which began then and had a good verdict has broken off
// after all. It takes the place of the good verdict: the row of failures that
// that one ended goes on, and of two streams of which one is cut one half has
// failed. The stream may have been the probe that closed the breaker: then that
// opens again at once. It says nothing of a stream that began before.
func (b *Breaker) Cut(began time.Time, err error) {
	if b == nil || err == nil || b.group.options.Excluded(err) {
		return
	}
	b.group.look()
	b.mu.Lock()
	switch {
	case b.state != Closed || b.retired || began.Before(b.tried):
	case began.Before(b.since):
		if now := time.Now(); b.cause == CauseProbeSucceeded && b.group.leave(b, soft, now) {
			b.refuted++
			b.turnLocked(Open, CauseProbeFailed, now)
		}
	default:
		b.row = max(b.row, b.ended)
		b.ended = 0
		b.countLocked(failed)
		if b.state == Closed {
			// gobreaker takes no verdict back: with one success and two failures a
			// stream, half of the verdicts have failed when half of the streams are cut.
			b.row--
			b.countLocked(failed)
		}
	}
	changed, kept := len(b.news) > 0, b.kept
	b.kept = false
	b.mu.Unlock()
	if kept && b.group.options.OnKept != nil {
		b.group.options.OnKept(b.id, b.ref)
	}
	if changed {
		b.tell()
	}
}

// ripeLocked tells gobreaker whether the failure just counted opens. Failures
// in a row are counted here and not by gobreaker, which forgets those that are
// older than the window: five timeouts of five minutes each never meet in one.
func (b *Breaker) ripeLocked(n gobreaker.Counts) bool {
	verdicts := n.TotalFailures + n.TotalSuccesses
	switch {
	case b.row >= b.config.ConsecutiveFailures:
		b.ripeFor = CauseConsecutiveFailures
	case int(verdicts) >= b.config.MinRequests && float64(n.TotalFailures) >= b.config.FailureRatio*float64(verdicts):
		b.ripeFor = CauseFailureRatio
	default:
		return false
	}
	may := b.group.leave(b, b.failing, time.Now())
	b.kept = !may
	return may
}

// probedLocked counts a verdict on a probe.
func (b *Breaker) probedLocked(p *permit, v verdict) {
	p.probe.timer.Stop()
	delete(b.probes, p)
	now := time.Now()
	switch v {
	case good:
		p.probe.verdict(nil)
		if !opened(b.core) {
			b.turnLocked(Closed, CauseProbeSucceeded, now)
		}
	case excluded:
		p.probe.verdict(errExcluded) // gives the place back and decides nothing
	default:
		if !b.group.leave(b, v.outing(), now) {
			// The others died since, or nobody was there when it opened and now
			// somebody is, who may not be kept out for an answer: it is tried on.
			p.probe.verdict(errExcluded)
			return
		}
		b.refuted++
		cause := CauseProbeFailed
		switch v {
		case tooSlow:
			cause = CauseSlow
		case timedOut:
			cause = CauseProbeTimeout
		}
		b.turnLocked(Open, cause, now)
	}
}
