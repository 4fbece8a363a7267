package control

import (
	"sync"
	"time"
)

// Pairs has the workers of the other stage with which a worker has failed since it last served a request. It is safe
// for concurrent use; the zero Pairs has no failure.
type Pairs struct {
	mu      sync.Mutex
	since   time.Time // the first failure; zero: none
	partner string    // of that failure
	several bool      // it has failed with another one too
}

// add records a failure at now with a partner. before reports whether the worker had failed before the request began.
func (p *Pairs) add(partner string, began, now time.Time) (before, several bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since, p.partner = now, partner
		return false, false
	}
	p.several = p.several || p.partner != partner
	return began.After(p.since), p.several
}

// succeed records that the worker has served a request with a partner.
func (p *Pairs) succeed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since, p.partner, p.several = time.Time{}, "", false
}

// PairFault is which worker of a pair is at fault.
type PairFault int

// The values of PairFault.
const (
	FaultUnknown PairFault = iota // the first failure
	FaultOfPrefill
	FaultOfDecode
	FaultOfEither // both fail, but only with each other or with all
)

// PairFailed records that a decode worker failed a request that began at began, while it needed the prefill worker,
// and returns which of them is at fault: the one that has failed before, and with more partners.
func PairFailed(prefill, decode *Member, began, now time.Time) PairFault {
	p, pSeveral := prefill.Pairs.add(decode.Name, began, now)
	d, dSeveral := decode.Pairs.add(prefill.Name, began, now)
	switch {
	case p && d && pSeveral == dSeveral:
		return FaultOfEither
	case p && (!d || pSeveral):
		return FaultOfPrefill
	case d:
		return FaultOfDecode
	}
	return FaultUnknown
}

// PairSucceeded records that the decode worker has the prompt of the prefill worker.
func PairSucceeded(prefill, decode *Member) {
	prefill.Pairs.succeed()
	decode.Pairs.succeed()
}
