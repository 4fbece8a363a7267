package replay

import (
	"errors"
	"hash/fnv"

	"tierway/decisions"
	"tierway/tiers"
)

// tierOf decides the request's tier again and returns where the draft has it, which is
// empty when it refuses the request; false when that cannot be told.
func (r *Replay) tierOf(d *decisions.Decision) (tier string, ok bool) {
	if d.Tier == "" {
		r.sums.skip(reasonWithoutTier(d))
		return "", false
	}
	if d.Rule == "path" || d.Rule == "stored" { // no catalogue decides: the path does, or what it asks about
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
	if draft.foreign {
		r.sums.Unknown.Rights++
	}
	switch {
	case !draft.known:
		r.sums.skip(SkippedKeywords)
		return "", false
	case now.target == draft.target:
		tier = d.Tier // by whatever it came there
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

// told is what a configuration says of a recorded request.
type told struct {
	target    string // empty where it refuses the request
	known     bool   // it does not depend on keyword groups of which the record says nothing
	uncounted bool   // it would have had the prompt counted, which nobody had
	foreign   bool   // what its caller may use is not known
}

// resolve says where a configuration has a recorded request, if groups are those of
// which the record says nothing.
//
// All tiers count as available. A record does not hold which ones had workers up: of a
// request that was moved for want of them it has the rule, and the tiers that were passed
// over only in words. Such a request is not reproduced; it stays where it was, unless
// the draft resolves it to another tier, and then it is left out as SkippedTier.
func (r *Replay) resolve(s *replaySide, d *decisions.Decision, groups []string) (is told) {
	q := tiers.Query{Model: d.RequestedModel, Header: d.Features.Header, Chats: s.chats, Fits: func(target string) bool {
		p := s.pools[target]
		return p == nil || p.Context == 0 || d.PromptTokens+d.MaxTokens <= p.Context
	}}
	if s.setup.Rights != nil {
		tier, model, known := s.setup.Rights(d)
		if is.foreign = !known; known {
			q.Allowed, q.AllowedModel = tier, model
		}
	}
	f := &d.Features
	estimate := f.Estimate
	if estimate == 0 {
		estimate = d.PromptTokens
	}
	q.Features = &tiers.Features{Now: d.Time, PromptTokens: estimate, Session: uint64(f.Session), Turns: turnsOf(d),
		MaxTokens: d.MaxTokens, LimitRequired: f.LimitRequired, Tools: f.Tools,
		Count: func() (int64, bool) { is.uncounted = true; return 0, false }}
	was := tiers.Evidence{Classified: f.Classified, Counted: f.Counted, UserBytes: f.UserTextBytes, Groups: f.Groups}
	v, known, err := s.setup.Catalog.ResolveRecorded(q, &was, groups)
	// Too long by an estimate is not refused: the gateway asks the engine unless it is sure.
	if is.known = known; err == nil || errors.Is(err, tiers.ErrTooLong) {
		is.target = v.Target
	}
	return is
}

// turnsOf stands for the message ends by which a chat is known again: the blocks of
// the prompt, one of which is where the turn before ended.
func turnsOf(d *decisions.Decision) []uint64 {
	tenant := fnv.New64a()
	tenant.Write([]byte(d.Tenant))
	turns := make([]uint64, len(d.Features.Chain))
	for i, l := range d.Features.Chain {
		turns[i] = l.Hash ^ tenant.Sum64()
	}
	return turns
}
