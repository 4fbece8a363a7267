package routing_test

import (
	"math"

	"pgregory.net/rapid"

	"tierway/routing"
)

// checkOverlaps compares the views' Overlap with the prompts in flight and the prefilled ones. It is at
// least four fifths of what is in flight. It is at most what they share; a prompt that continues a
// whole earlier one may repeat the answer to that too.
func (m *machine) checkOverlaps(r *routing.Request, ws []routing.View) {
	prompt := float64(min(max(0, r.PromptTokens), maxBooked))
	for _, v := range ws {
		w, flying, cached, answered := m.members[v.Index], 0, 0, false
		for _, h := range m.leases {
			if !h.unbooked && h.on == w {
				flying = max(flying, common(h.blocks, r.Blocks))
			}
		}
		for _, blocks := range w.prefilled {
			shared := common(blocks, r.Blocks)
			cached = max(cached, shared)
			answered = answered || shared > 0 && shared == len(blocks)
		}
		tokens := func(shared int) float64 {
			return prompt * float64(shared) / float64(max(1, len(r.Blocks)))
		}
		least, maxTokens := 0.8*tokens(flying), tokens(max(flying, cached))
		if answered {
			maxTokens = prompt
		}
		if got := float64(v.Overlap); got > maxTokens*1.000001 || got < least-1 {
			m.policy.t.Fatalf("%v of a prompt's tokens are in flight and %v were prefilled, and the policy saw %v",
				tokens(flying), tokens(cached), got)
		}
	}
}

// checkLoads compares the views' loads with the booked load and the backlog.
func (m *machine) checkLoads(r *routing.Request, ws []routing.View) {
	prompt, output := tokensOf(r)
	for _, v := range ws {
		w := m.members[v.Index]
		want := backlog{w.inflight + w.backlog.requests, m.pending(w) + w.backlog.prefill, w.output + w.backlog.output}
		if got := (backlog{v.Inflight, v.PendingTokens, v.OutputTokens}); got != want || v.Full != w.full(prompt+output) {
			m.policy.t.Fatalf("the policy saw %+v of %s (full: %v), not %+v", got, v.ID, v.Full, want)
		}
	}
}

// common returns how many leading blocks two prompts share.
func common(a, b []routing.Block) int {
	n := 0
	for n < min(len(a), len(b)) && a[n].Hash == b[n].Hash {
		n++
	}
	return n
}

// snapshot returns the pool's snapshot, and copies the learned limits into the model.
func (m *machine) snapshot() []routing.WorkerView {
	views := m.pool.Snapshot(m.now)
	for i := range views {
		if m.members[i].concurrencyLimit = m.members[i].MaxInflight; views[i].LimitLearned {
			m.members[i].concurrencyLimit = views[i].ConcurrencyLimit
		}
	}
	return views
}

// checkBookings compares the pool's bookings with the model's.
func (m *machine) checkBookings(rt *rapid.T) {
	got := m.snapshot()
	if len(got) != len(m.members) {
		rt.Fatalf("the pool has %d members, not %d", len(got), len(m.members))
	}
	m.checkEstimates(rt)
	up := false
	for i, w := range m.members {
		up = up || w.status.Up && w.Weight > 0 && !m.now.Before(w.openUntil)
		if got[i].LimitLearned && (w.MaxInflight > 0 || w.MaxTokensInflight > 0) {
			rt.Fatalf("a bound was learned beside the configured one: %+v", got[i])
		}
		want := routing.WorkerView{
			ID:                w.ID,
			Ref:               got[i].Ref,
			Weight:            w.Weight,
			Group:             w.Group,
			Up:                w.status.Up,
			Saturated:         w.status.Saturated,
			Inflight:          w.inflight,
			MaxInflight:       w.MaxInflight,
			TokensInflight:    w.tokens,
			MaxTokensInflight: w.MaxTokensInflight,
			PendingTokens:     m.pending(w),
			OutputTokens:      w.output,
			Waiting:           w.status.Waiting,
			KVUsage:           w.status.KVUsage,
			Backoff:           max(0, w.backoffUntil.Sub(m.now)),
			Open:              max(0, w.openUntil.Sub(m.now)),
			Share:             got[i].Share,
			SuccessRatio:      got[i].SuccessRatio,
			WeightLoss:        got[i].WeightLoss,
			Rate:              got[i].Rate,
			ConcurrencyLimit:  w.concurrencyLimit,
			LimitLearned:      got[i].LimitLearned,
			SlowRatio:         got[i].SlowRatio,
			Samples:           got[i].Samples,
			EventsCredit:      got[i].EventsCredit,
			HistoryCredit:     got[i].HistoryCredit,
			LookupCredit:      got[i].LookupCredit,
			HistoryTokens:     got[i].HistoryTokens,
		}
		if got[i] != want || math.Abs(got[i].Share-w.share(m.now)) > 1e-9 {
			rt.Fatalf("the books show\n%+v, not\n%+v", got[i], want)
		}
		if got[i].SuccessRatio < 0 || got[i].SuccessRatio > 1 || got[i].WeightLoss < 0 ||
			got[i].WeightLoss > 1-healthFactor*healthFactor {
			rt.Fatalf("a success ratio or a loss of weight is out of its bounds: %+v", got[i])
		}
	}
	if m.pool.Up(m.now) != up {
		rt.Fatalf("the pool says %v when asked whether it is up", !up)
	}
}

// checkEstimates checks that every learned number is within its bounds.
func (m *machine) checkEstimates(rt *rapid.T) {
	e := m.pool.Estimates()
	all := []routing.Estimate{e.OutputTokens, e.PromptScale, e.ResidenceTime}
	for _, w := range e.Workers {
		all = append(all, w.Rate, w.TokenTime)
	}
	for _, one := range all {
		if !(one.Floor > 0 && one.Floor <= one.Value && one.Value <= one.Ceiling && one.Floor <= one.Prior &&
			one.Prior <= one.Ceiling) {
			rt.Fatalf("an estimate is out of its bounds: %+v", one)
		}
	}
	if !(e.Rate > 0) || m.pool.Learned().OutputTokens(0) < 1 || m.pool.Learned().OutputTokens(1) != 1 ||
		m.pool.Learned().PromptTokens(0) != 0 || m.pool.Learned().PromptTokens(1<<62) < 1 {
		rt.Fatalf("the pool expects the impossible: %+v", e)
	}
}
