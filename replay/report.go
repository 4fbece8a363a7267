package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// The reasons for which Report.Skipped leaves out a record.
const (
	// SkippedUnrouted is for requests that need no tier, such as a list of models, and for
	// clients that leave before a tier is chosen.
	SkippedUnrouted = "not_routed"
	// SkippedRefused is for requests that are refused or fail before a tier is chosen.
	SkippedRefused = "refused_before_tier"
	// SkippedKeywords is for tiers that depend on keyword groups that the draft adds or changes.
	SkippedKeywords = "keywords_not_recorded"
	// SkippedScore is for tiers that depend on the score of a request that was not classified, so that its record
	// has no length of the text.
	SkippedScore = "score_not_recorded"
	// SkippedShare is for tiers that depend on shares of the draft that have not started: the first 200 requests
	// of each tenant and alias.
	SkippedShare = "share_not_started"
	// SkippedModel is for tiers that depend on the draft's model, if the record has no score of that model.
	SkippedModel = "model_score_not_recorded"
	// SkippedTier is for tiers that the configuration does not reproduce and the draft changes.
	SkippedTier = "tier_not_reproduced"
	// SkippedLimited is for requests that have a tier and are refused by a limit.
	SkippedLimited = "refused_by_limit"
	// SkippedUnplaced is for requests that have a tier, but no worker that a policy chose.
	SkippedUnplaced = "no_worker_chosen"
	// SkippedPool is for pools that the configuration or the draft no longer has.
	SkippedPool = "pool_unknown"
	// SkippedIncomplete is for records that do not hold all candidates.
	SkippedIncomplete = "candidates_missing"
	// SkippedWorkers is for requests that no worker of the draft can take.
	SkippedWorkers = "no_worker_in_draft"
	// SkippedWorker is for workers that the configuration does not reproduce and the draft changes.
	SkippedWorker = "worker_not_reproduced"
)

// Report is the result of a replay. Now is the real traffic as far as it is measured, and
// otherwise estimated by the same model as the draft. Compare estimates with each other, and
// judge them by the measured values beside them.
type Report struct {
	Records     int       `json:"records"` // records read
	Decided     int       `json:"n"`       // records with a tier that was decided again
	Skipped     []Count   `json:"skipped" nullable:"false"`
	From        time.Time `json:"from,omitzero"`
	To          time.Time `json:"to,omitzero"`
	Generations int       `json:"config_generations"` // configurations that made the records
	Late        int       `json:"late,omitempty"`     // decided out of order
	Groups      []string  `json:"keyword_groups_not_recorded" nullable:"false"`
	Unknown     Unknown   `json:"unknown"`
	ByTier      []Tier    `json:"tiers" nullable:"false"`

	TiersReproduced   Part         `json:"tiers_reproduced"` // the configuration yields the recorded tier
	ChangedTier       []TierMove   `json:"changed_tier" nullable:"false"`
	Redecided         int          `json:"redecided"` // picks of requests that stay in their tier
	WorkersReproduced Part         `json:"reproduced"`
	ChangedWorker     int          `json:"changed_worker"`
	ChangedBy         []Count      `json:"changed_worker_by" nullable:"false"` // the draft's reason
	WorkerMoves       []WorkerMove `json:"worker_moves" nullable:"false"`      // at most 100

	Handovers *Handovers `json:"handovers,omitempty"` // absent if neither a record nor the draft has a hand-over

	// cached ÷ prompt tokens; absent if no record has the blocks of a prompt
	Hit *Estimates `json:"est_prefix_hit,omitempty"`
	// as the engines reported; absent if none reported a cached token, which some never do
	RealHit   *float64 `json:"real_prefix_hit,omitempty"`
	Predicted *float64 `json:"predicted_hit,omitempty"` // as the gateway predicted at the pick
	Regret    Regrets  `json:"regret"`                  // against the best candidate
	// Realised is the share of streams with a measured time to the first token that exceeds the
	// best other candidate's estimate by 20 %.
	Realised   *float64   `json:"realised_wrong,omitempty"`
	RealisedOf int        `json:"realised_n,omitempty"` // streams counted in Realised
	Cost       *Estimates `json:"cost,omitempty"`       // in units of the price list; absent without prices
}

// Unknown counts requests for which the records lack something that the draft may need. They
// are decided without it.
type Unknown struct {
	Rights int `json:"rights"`       // tenant or key no longer known: decided as if everything were allowed
	Counts int `json:"token_counts"` // the draft would count the tokens: the estimate decides
	// placed by another policy than the configuration's: left where they were
	OtherPolicy int `json:"other_policy"`
	// a changed bound or saturation needs loads or workers that the record lacks: decided as
	// far as known
	Bounds int `json:"bounds"`
}

// Count is a number of requests with a name.
type Count struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// Part is a share: N of Of.
type Part struct {
	N  int `json:"n"`
	Of int `json:"of"`
}

// TierMove is requests that the draft sends to another tier; To is empty if it refuses them.
type TierMove struct {
	From     string   `json:"from"`
	To       string   `json:"to"`
	N        int      `json:"n"`
	Examples []string `json:"examples" nullable:"false"` // request ids
}

// WorkerMove is requests of a tier that the draft sends to another worker.
type WorkerMove struct {
	Tier     string   `json:"tier"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	N        int      `json:"n"`
	Examples []string `json:"examples" nullable:"false"`
}

// Estimates is an estimated value of both sides.
type Estimates struct {
	Now   float64 `json:"now"`
	Draft float64 `json:"draft"`
}

// Totals is a number of both sides.
type Totals struct {
	Now   int64 `json:"now"`
	Draft int64 `json:"draft"`
}

// Tier is the traffic of one tier or pool; the name is empty for requests that the draft
// refuses.
type Tier struct {
	Tier     string     `json:"tier"`
	Requests Totals     `json:"requests"`
	Prompt   Totals     `json:"prompt_tokens"`
	Cost     *Estimates `json:"cost,omitempty"`
}

// Regret is the loss of the picks: the estimated time to the first token at the chosen worker,
// (pending tokens + uncached tokens of the prompt) ÷ prefill rate, minus that of the best
// candidate.
type Regret struct {
	N     int     `json:"n"`
	Mean  float64 `json:"mean_ms"`
	P95   float64 `json:"p95_ms"` // within 2 %
	Wrong float64 `json:"wrong"`  // share of picks that cost over 20 % more, and over 1 ms more, than the best
}

// Regrets is the regret of both sides.
type Regrets struct {
	Now   Regret `json:"now"`
	Draft Regret `json:"draft"`
}

func (r *Replay) report() *Report {
	s, now, draft := &r.sums, &r.now, &r.draft
	out := s.Report
	out.Skipped, out.ChangedBy, out.ByTier = counts(s.skipped), counts(s.reasons), r.tierTotals()
	out.ChangedTier, out.WorkerMoves = []TierMove{}, []WorkerMove{}
	out.Generations = len(s.generations)
	out.Predicted = share(s.predicted.hit, s.predicted.prompt)
	out.Realised, out.RealisedOf = share(int64(s.realised.N), int64(s.realised.Of)), s.realised.Of
	out.Regret = Regrets{Now: now.regret.report(), Draft: draft.regret.report()}
	if s.real.hit > 0 {
		out.RealHit = share(s.real.hit, s.real.prompt)
	}
	if now.hits.prompt > 0 {
		out.Hit = &Estimates{Now: ratio(now.hits.hit, now.hits.prompt), Draft: ratio(draft.hits.hit, draft.hits.prompt)}
	}
	if len(now.cost)+len(draft.cost) > 0 {
		out.Cost = &Estimates{Now: total(now.cost), Draft: total(draft.cost)}
	}
	for _, k := range byCount(s.tiers, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		out.ChangedTier = append(out.ChangedTier, TierMove{From: k[0], To: k[1], N: s.tiers[k].n,
			Examples: s.tiers[k].examples})
	}
	for _, k := range byCount(s.workers, func(a, b [3]string) int { return slices.Compare(a[:], b[:]) }) {
		if len(out.WorkerMoves) < moveCount {
			out.WorkerMoves = append(out.WorkerMoves, WorkerMove{Tier: k[0], From: k[1], To: k[2], N: s.workers[k].n,
				Examples: s.workers[k].examples})
		}
	}
	return &out
}

func (r *Replay) tierTotals() []Tier {
	names := maps.Clone(r.now.requests)
	maps.Copy(names, r.draft.requests)
	totals := []Tier{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := Tier{Tier: name, Requests: Totals{r.now.requests[name], r.draft.requests[name]},
			Prompt: Totals{r.now.prompts[name], r.draft.prompts[name]}}
		now, priced := r.now.cost[name]
		draft, too := r.draft.cost[name]
		if priced || too {
			t.Cost = &Estimates{Now: now, Draft: draft}
		}
		totals = append(totals, t)
	}
	return totals
}

func (g *regret) report() Regret {
	if g.n == 0 {
		return Regret{}
	}
	return Regret{N: g.n, Mean: g.sum / float64(g.n), P95: g.quantile(0.95), Wrong: float64(g.wrong) / float64(g.n)}
}

func counts(all map[string]int) []Count {
	list := []Count{}
	for name, n := range all {
		list = append(list, Count{name, n})
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return list
}

func total(all map[string]float64) float64 {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(all)) { // in a fixed order, so that the last digits are reproducible
		sum += all[name]
	}
	return sum
}

func ratio(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// share returns part ÷ whole; nil if whole is 0.
func share(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	return new(ratio(part, whole))
}
