package replay

import (
	"errors"
	"hash/fnv"

	"tierway/decisions"
	"tierway/openai"
	"tierway/tiers"
)

// tierOf decides the request's tier again. It returns the draft's tier, empty if the draft
// refuses the request, and false if the tier cannot be decided.
func (r *Replay) tierOf(d *decisions.Decision) (tier string, ok bool) {
	if d.Tier == "" {
		r.sums.skip(reasonWithoutTier(d))
		return "", false
	}
	if d.Rule == "path" || d.Rule == "stored" { // the catalog does not decide
		if r.draft.pools[d.Tier] == nil {
			r.sums.skip(SkippedTier)
			return "", false
		}
		r.countTier(d, d.Tier)
		return d.Tier, true
	}
	now, draft := r.resolve(&r.now, d, nil), r.resolve(&r.draft, d, r.sums.Groups)
	reproduced := now.target == d.Tier
	r.sums.TiersReproduced.add(reproduced)
	if draft.uncounted && !now.uncounted {
		r.sums.Unknown.Counts++
	}
	if draft.unknownCaller {
		r.sums.Unknown.Rights++
	}
	switch {
	case draft.missing != tiers.MissingNothing:
		r.sums.skip(skippedFor(draft.missing))
		return "", false
	case now.target == draft.target:
		tier = d.Tier // both configurations agree, even if another rule selected the tier
	case !reproduced:
		r.sums.skip(SkippedTier)
		return "", false
	default:
		tier = draft.target
	}
	r.countTier(d, tier)
	return tier, true
}

// reasonWithoutTier returns why a record without a tier is left out.
func reasonWithoutTier(d *decisions.Decision) string {
	if d.Result == decisions.Refused || d.Result == decisions.Failed {
		return SkippedRefused
	}
	return SkippedUnrouted // a list of models, or the client left first
}

// recordedTier is a configuration's decision on a recorded request.
type recordedTier struct {
	target        string        // empty: refused
	missing       tiers.Missing // what the target depends on and the record lacks
	uncounted     bool          // the prompt would be counted, but the record has no count
	unknownCaller bool          // the caller's permissions are unknown
}

// skippedFor returns the reason for which a record is left out, by what it lacks.
func skippedFor(missing tiers.Missing) string {
	switch missing {
	case tiers.MissingScore:
		return SkippedScore
	case tiers.MissingScores:
		return SkippedShare
	case tiers.MissingModel:
		return SkippedModel
	}
	return SkippedKeywords
}

// resolve returns the tier decision of a configuration for a recorded request. groups are the
// keyword groups that the record lacks.
//
// All tiers count as available, because a record does not have the tiers without workers. For a
// request that was moved for that reason, it has the rule, and the overridden tiers only as
// text. Such a request is not reproduced. It stays where it was; if the draft resolves it to
// another tier, it is left out as SkippedTier. An explored request stays at its tier too, because no rule
// selected it. Targets of a list that the request passed over are in
// the record. They count as blocked, unless the catalog decides itself why.
func (r *Replay) resolve(s *replaySide, d *decisions.Decision, groups []string) (decided recordedTier) {
	q := tiers.Query{Model: d.RequestedModel, Header: d.Features.Header, Chats: s.chats, Recent: s.recent,
		Fits: func(target string) bool {
			p := s.pools[target]
			return p == nil || p.Context == 0 || d.PromptTokens+d.MaxTokens <= p.Context
		},
		Blocked: func(target string) string { return passedOver(d, target) }}
	if d.Rule == tiers.RuleExploration {
		q.Explore.Tier = d.Tier
	}
	if s.setup.Rights != nil {
		tier, model, known := s.setup.Rights(d)
		if decided.unknownCaller = !known; known {
			q.Allowed, q.AllowedModel = tier, model
		}
	}
	f := &d.Features
	estimate := f.Estimate
	if estimate == 0 {
		estimate = d.PromptTokens
	}
	q.Input = &tiers.ClassifierInput{Now: d.Time, PromptTokens: estimate, Session: uint64(f.Session), Turns: turnsOf(d),
		Tenant: tenantOf(d), MaxTokens: d.MaxTokens, LimitRequired: f.LimitRequired, Tools: f.Tools,
		Count: func() (int64, bool) { decided.uncounted = true; return 0, false }}
	was := tiers.Evidence{Classified: f.Classified, Counted: f.Counted, UserBytes: f.UserTextBytes, Groups: f.Groups,
		Score: f.Score, Model: f.ModelScore}
	var score tiers.PendingScore
	q.Pending = &score
	v, missing, err := s.setup.Catalog.ResolveRecorded(q, &was, groups)
	if s.recent != nil && addsScore(d) {
		s.recent.Add(score)
	}
	// A prompt that is too long by an estimate is not refused: the gateway lets the engine
	// decide unless it is sure.
	if decided.missing = missing; err == nil || errors.Is(err, tiers.ErrTooLong) {
		decided.target = v.Target
	}
	return decided
}

// addsScore reports whether the gateway added the request's score to those of its tenant and alias: it was not
// refused by a limit, and generates text.
func addsScore(d *decisions.Decision) bool {
	dialect, _ := openai.ParseDialect(d.Dialect)
	return dialect.Generates() && d.Route != decisions.RouteCountTokens && d.Route != decisions.RouteInputTokens &&
		d.Limit == ""
}

// passedOver returns why a recorded request passed over a target, if the catalog cannot decide it again;
// else "".
func passedOver(d *decisions.Decision, target string) string {
	for _, m := range d.Passed {
		if m.Tier == target && m.Why != tiers.WhyNotAllowed && m.Why != tiers.WhyContext {
			return m.Why
		}
	}
	return ""
}

// turnsOf returns substitutes for the message ends that identify a chat: the blocks of the
// prompt, one of which is the end of the previous turn.
func turnsOf(d *decisions.Decision) []uint64 {
	tenant := tenantOf(d)
	turns := make([]uint64, len(d.Features.Chain))
	for i, l := range d.Features.Chain {
		turns[i] = l.Hash ^ tenant
	}
	return turns
}

// tenantOf returns a hash of the tenant's name.
func tenantOf(d *decisions.Decision) uint64 {
	h := fnv.New64a()
	h.Write([]byte(d.Tenant))
	return h.Sum64()
}
