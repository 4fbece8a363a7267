package routing

// defaultHashPoints is the number of points of vLLM Router.
const defaultHashPoints = 160

// consistentHash sends all requests with one key to one worker: the first eligible one clockwise of
// the key's hash on a ring, where each worker has points in proportion to its weight. If that worker
// leaves, its keys go to the next workers on the ring, and come back with it; all other keys stay.
// Load is not considered. A session that had to go elsewhere stays there: see pins.
type consistentHash struct {
	keys  keySource
	ring  *ring
	terms *[maxTerms]string
}

func newConsistentHash(c Config) *consistentHash {
	p := &consistentHash{keys: newKeySource(c), ring: newRing(defaultHashPoints), terms: &[maxTerms]string{stepTerm}}
	if c.VirtualNodes > 0 {
		p.ring.units = c.VirtualNodes
	}
	return p
}

func (*consistentHash) facts() facts { return usesPins }

func (*consistentHash) Name() string { return "consistent_hash" }

// Pick returns the home of the request's key. It abstains if the request has no key.
func (p *consistentHash) Pick(r *Request, ws []View) (int, Reason) {
	of, key := p.keys.find(p, r)
	if of == "" || !p.ring.update(r.Now, ws) {
		return -1, ""
	}
	if c := r.recalled(p); c != nil && p.ring.halved != c.Halved {
		p.ring = p.ring.halvedBy(c.Halved)
		p.ring.update(r.Now, ws)
	}
	s, at := p.ring.next(p.ring.first(Mix(key)))
	r.recordKey(of, key)
	if r.assessments != nil {
		r.Record.Halved = p.ring.halved
		p.ring.eachWorker(ws, s, at, func(i, step int) {
			r.assessments[i] = assessment{score: float64(step),
				terms: Terms{names: p.terms, values: [maxTerms]float64{float64(step)}}}
		})
	}
	if r.pinned > 0 && of == r.KeyOf {
		return r.pinned - 1, ReasonSessionPin
	}
	return int(s.view), homeReason(of)
}

// clone shares the ring for a recorded pick: it depends on the workers' IDs and weights only.
func (p *consistentHash) clone(r *Request) Policy {
	q := *p
	if r.recorded == nil {
		q.ring = p.ring.clone()
	}
	return &q
}

// stepTerm is a candidate's place clockwise from the home.
const stepTerm = "step"
