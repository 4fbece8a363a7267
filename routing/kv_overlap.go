package routing

// The defaults of kv_overlap.
const (
	defaultOverlapWeight = 0.6
	defaultLoadWeight    = 0.3
	defaultHealthWeight  = 0.1
	defaultMinScore      = 0.3

	overlapTerm, loadTerm, healthTerm = "overlap", "load", "health"
)

// kvOverlap is the scorer of Continuum Router. A worker's score is
//
//	overlap_weight · overlap + load_weight · (1 − load) + health_weight · health
//
// where overlap is the share of the prompt that the worker has, load its requests in flight divided by the
// most requests of a worker, and health the recent share of its requests that succeeded. Requests count
// per unit of weight. It has no memory.
type kvOverlap struct {
	overlap, load, health, minScore float64
	terms                           *[maxTerms]string
}

func newKVOverlap(c Config) *kvOverlap {
	p := &kvOverlap{overlap: defaultOverlapWeight, load: defaultLoadWeight, health: defaultHealthWeight,
		minScore: defaultMinScore, terms: &[maxTerms]string{overlapTerm, loadTerm, healthTerm}}
	for _, o := range []struct{ to, from *float64 }{
		{&p.overlap, c.OverlapWeight}, {&p.load, c.LoadWeight}, {&p.health, c.HealthWeight}, {&p.minScore, c.MinScore},
	} {
		if o.from != nil {
			*o.to = *o.from
		}
	}
	return p
}

func (*kvOverlap) facts() facts { return usesSuccess | usesCaches }

func (*kvOverlap) Name() string { return "kv_overlap" }

// Pick returns the worker of the highest score; of equals, the least loaded one. It abstains if no
// worker has any of the prompt, or if the highest score does not exceed min_score.
func (p *kvOverlap) Pick(r *Request, ws []View) (int, Reason) {
	weight, maxLoad := meanWeight(ws), 1.0
	for i := range ws {
		maxLoad = max(maxLoad, requestsByWeight(&ws[i], weight))
	}
	best, highest, match := 0, 0.0, false
	for i := range ws {
		v := &ws[i]
		load := requestsByWeight(v, weight) / maxLoad
		overlap := matched(v, r)
		terms := [maxTerms]float64{p.overlap * overlap, p.load * (1 - load), p.health * v.Success}
		score := terms[0] + terms[1] + terms[2]
		match = match || overlap > 0
		if i == 0 || score > highest || score == highest && compareLoad(v, &ws[best]) < 0 {
			best, highest = i, score
		}
		if r.assessments != nil {
			r.assessments[i] = assessment{score: -score, terms: Terms{names: p.terms, values: terms}}
		}
	}
	if !match || highest <= p.minScore {
		return -1, ""
	}
	return best, ReasonKVOverlap
}
