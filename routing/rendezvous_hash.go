package routing

import "math"

// rendezvousHash sends all requests with one key to one worker: the one with the highest score for
// the key, which is a hash of key and worker (highest random weight, Thaler and Ravishankar, 1998).
// If a worker leaves, only its own keys move. It has no memory and needs no ring. Load is not
// considered. A session that had to go elsewhere stays there: see pins.
type rendezvousHash struct {
	keys keySource
}

func newRendezvousHash(c Config) *rendezvousHash { return &rendezvousHash{newKeySource(c)} }

func (*rendezvousHash) facts() facts { return usesPins }

func (*rendezvousHash) Name() string { return "rendezvous_hash" }

// Pick returns the worker with the lowest rank for the request's key. It abstains if the request has
// no key.
func (p *rendezvousHash) Pick(r *Request, ws []View) (int, Reason) {
	of, key := p.keys.find(p, r)
	if of == "" {
		return -1, ""
	}
	r.recordKey(of, key)
	chosen, lowest := -1, 0.0
	for i := range ws {
		rank := rendezvousRank(key, &ws[i])
		r.assess(i, rank, "")
		if chosen < 0 || rank < lowest {
			chosen, lowest = i, rank
		}
	}
	if r.pinned > 0 && of == r.KeyOf {
		return r.pinned - 1, ReasonSessionPin
	}
	return chosen, homeReason(of)
}

// rendezvousRank is −ln(u)/weight, where u in (0, 1) is a hash of the key and the worker. The lowest
// of such ranks belongs to a worker with the probability of its share of the weights.
func rendezvousRank(key uint64, v *View) float64 {
	const half = 0x1p-54 // keeps u above 0
	u := Unit(Mix(Mix(key)^HashText(v.ID))) + half
	return -math.Log(u) / v.weight()
}
