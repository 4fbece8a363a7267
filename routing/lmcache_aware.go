package routing

// The modes of lmcache_aware.
const (
	ModeOccupancy    = "occupancy"     // by the numbers of keys that LMCache's controller states
	ModePrefixLookup = "prefix_lookup" // by what the controller says of the prompt
)

const (
	lmcacheAwareName = "lmcache_aware"

	defaultCacheWeight = 0.7
	keysTerm           = "keys"
)

func newLMCacheAware(c Config) Policy {
	if c.Mode == ModePrefixLookup {
		return lmcacheLookup{newKVAware()}
	}
	p := &lmcacheOccupancy{cache: defaultCacheWeight, terms: &[maxTerms]string{keysTerm, loadTerm}}
	if c.CacheWeight != nil {
		p.cache = *c.CacheWeight
	}
	return p
}

// lmcacheOccupancy is the policy lmcache_aware of vLLM Router's fork in its first mode. A worker's score is
//
//	cache_weight · keys + (1 − cache_weight) · (1 − load)
//
// where keys are the worker's keys in LMCache divided by the most keys of a worker, and load its requests in flight
// divided by the most requests of a worker, per unit of weight. It has no memory.
type lmcacheOccupancy struct {
	cache float64
	terms *[maxTerms]string
}

func (*lmcacheOccupancy) facts() facts { return usesStoredKeys }

func (*lmcacheOccupancy) Name() string { return lmcacheAwareName }

// Pick returns the worker of the highest score; of equals, the least loaded one. It abstains if no worker has keys,
// as while the controller is down.
func (p *lmcacheOccupancy) Pick(r *Request, ws []View) (int, Reason) {
	weight, maxLoad, keys := meanWeight(ws), 1.0, int64(0)
	for i := range ws {
		maxLoad, keys = max(maxLoad, requestsByWeight(&ws[i], weight)), max(keys, ws[i].StoredKeys)
	}
	if keys <= 0 {
		return -1, ""
	}
	best, highest := 0, 0.0
	for i := range ws {
		v := &ws[i]
		terms := [maxTerms]float64{p.cache * float64(max(0, v.StoredKeys)) / float64(keys),
			(1 - p.cache) * (1 - requestsByWeight(v, weight)/maxLoad)}
		score := terms[0] + terms[1]
		if i == 0 || score > highest || score == highest && compareLoad(v, &ws[best]) < 0 {
			best, highest = i, score
		}
		if r.assessments != nil {
			r.assessments[i] = assessment{score: -score, terms: Terms{names: p.terms, values: terms}}
		}
	}
	return best, ReasonLMCacheOccupancy
}

// lmcacheLookup is kv_aware with another source of what is cached: look-ups in LMCache's controller.
type lmcacheLookup struct{ *kvAware }

func (lmcacheLookup) facts() facts { return usesCosts | usesLookups }

func (lmcacheLookup) Name() string { return lmcacheAwareName }

// Pick returns the worker that kv_aware picks.
func (p lmcacheLookup) Pick(r *Request, ws []View) (int, Reason) {
	i, reason := p.kvAware.Pick(r, ws)
	if ws[i].byLookup() {
		reason = ReasonLMCacheLookup
	}
	return i, reason
}

// byLookup reports whether Overlap comes from a look-up.
func (v *View) byLookup() bool { return v.Overlap > 0 && v.Overlap == v.predicted[fromLookup] }

// StoredKeys is the number of keys that a worker has in LMCache.
type StoredKeys struct {
	Ref  any // the member's Ref
	Keys int64
}

// setStoredKeysLocked sets the workers' keys in LMCache.
func (p *Pool) setStoredKeysLocked(r *Request, ws []View) {
	next := 0 // of r.Stored: usually both are in the order of the members
	for i := range ws {
		ref := p.workers[ws[i].Index].ref
		for k := range r.Stored {
			if at := (next + k) % len(r.Stored); r.Stored[at].Ref == ref {
				ws[i].StoredKeys, next = r.Stored[at].Keys, at+1
				break
			}
		}
	}
}
