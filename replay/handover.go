package replay

import (
	"slices"

	"tierway/decisions"
	"tierway/routing"
)

// Handover is how the workers of a pool compute prompts for each other.
type Handover struct {
	Policy    routing.Config // of the prefill stage
	Threshold int64          // as in routing.Handover
}

// Handovers counts the decisions which worker computes a prompt, of requests whose worker is decided again.
type Handovers struct {
	Local  Totals `json:"local"`  // the decode worker computes it
	Remote Totals `json:"remote"` // another worker does
	// requests with another decision under the draft
	Changed int `json:"changed"`
	// requests that another prefill worker would get
	ChangedWorker int `json:"changed_worker"`
	// the record lacks what the draft's decision needs: counted as recorded
	Undecided  int  `json:"undecided"`
	Reproduced Part `json:"reproduced"` // the configuration yields the recorded decision
}

// open returns the hand-over as routing uses it; nil without one.
func (h *Handover) open() (*routing.Handover, error) {
	if h == nil {
		return nil, nil
	}
	policy, err := routing.New(h.Policy)
	if err != nil {
		return nil, err
	}
	return &routing.Handover{Policy: policy, Threshold: h.Threshold}, nil
}

// prefillerOf returns the worker that computed the prompt of an attempt for the decode worker; "" without one.
func prefillerOf(a *decisions.Attempt) string {
	if h := a.Handover; h != nil && len(h.Prefills) > 0 && h.Result != "recomputed" {
		return h.Prefills[len(h.Prefills)-1].Worker
	}
	return ""
}

// decideHandover decides again which worker computes the prompt of a request whose decode worker is worker, one of
// the candidates of c. known is false if the record lacks what the decision needs.
func (r *Replay) decideHandover(p *pick, to *sidePool, c *routing.Choice,
	worker string) (d routing.HandoverChoice, known bool) {
	at := slices.IndexFunc(c.Candidates, func(v routing.Candidate) bool { return v.Worker == worker })
	if at < 0 {
		return d, false
	}
	h, seen := r.draftPrefill(p, to)
	in := *c
	in.Handover = &h
	f := &p.d.Features
	d, known = routing.RedecideHandover(to.handover, &in, at, f.Model, f.Prefix, f.Chain, p.pickTime())
	return d, known && (seen || d.Why != routing.HandoverCost)
}

// draftPrefill returns the record of the hand-over as the draft's pool would have shown it. seen is false if it has
// workers whose load the record lacks; their loads are then those of the draft's side.
func (r *Replay) draftPrefill(p *pick, to *sidePool) (h routing.HandoverChoice, seen bool) {
	was, model := p.a.Choice.Handover, uint64(p.d.Features.Model)
	if p.tier != p.d.Tier {
		model = 0 // the pool's own model, not the recorded one
	}
	if was != nil {
		h.Why, h.Transfer = was.Why, was.Transfer
	}
	base := &routing.Choice{Rand: p.a.Choice.Rand, PromptTokens: p.a.Choice.PromptTokens, OutputTokens: 1, Stream: true,
		Key: p.a.Choice.Key, KeyOf: p.a.Choice.KeyOf}
	seen = p.tier == p.d.Tier && was != nil && was.Prefill.Check() == nil
	if seen {
		base = was.Prefill
	}
	// Without a recorded pick, no member is known to have been unusable, unless none took requests.
	every := !seen && h.Why != routing.HandoverNoPrefill
	h.Prefill, _ = r.changedChoice(p, to, base, stage{model: model, prefill: true, every: every})
	if !seen {
		seen = !slices.ContainsFunc(h.Prefill.Candidates, func(v routing.Candidate) bool {
			m, _ := to.was.member(v.Worker)
			return m != nil && m.Prefills(model)
		})
	}
	if len(h.Prefill.Candidates) == 0 && h.Why != routing.HandoverWhole {
		h.Why = routing.HandoverNoPrefill
	}
	return h, seen
}

// draftPrefiller decides which worker computes the prompt under the draft, and counts it. It returns that worker if
// it is another one than the decode worker, else "".
func (r *Replay) draftPrefiller(p *pick, was, to *sidePool, as Placement) string {
	recorded := p.a.Choice.Handover
	if recorded == nil && to.handover == nil {
		return ""
	}
	s := r.sums.handovers()
	var now routing.HandoverChoice
	if recorded != nil {
		count(&s.Local.Now, &s.Remote.Now, recorded)
		if was.handover != nil {
			known := false
			if now, known = r.decideHandover(p, was, p.a.Choice, p.worker); known {
				s.Reproduced.add(sameHandover(&now, recorded))
			}
		}
	}
	if to.handover == nil {
		return ""
	}
	d, known := r.decideHandover(p, to, as.Choice, as.Worker)
	if unchanged := recorded != nil && p.tier == p.d.Tier && as.Worker == p.worker; unchanged {
		switch {
		case known && sameHandover(&d, &now): // both configurations agree
			d = *recorded
		case was.handover != nil && !sameHandover(&now, recorded):
			known = false
		}
	}
	if !known {
		s.Undecided++
		if recorded == nil {
			return ""
		}
		d = *recorded
	}
	count(&s.Local.Draft, &s.Remote.Draft, &d)
	switch {
	case recorded == nil:
	case d.Decision != recorded.Decision:
		s.Changed++
	case d.Decision == routing.HandoverRemote && d.Worker != recorded.Worker:
		s.ChangedWorker++
	}
	if d.Decision != routing.HandoverRemote || d.Worker == as.Worker {
		return ""
	}
	if known && d.Prefill != nil && len(d.Prefill.Candidates) > 0 {
		f := &p.d.Features // the policy sees every prompt that it places
		routing.LearnChoice(to.handover.Policy, d.Prefill, f.Model, f.Prefix, f.Chain, p.pickTime())
	}
	if recorded != nil && d.Worker == recorded.Worker && p.prefiller != "" {
		return r.draftRetry(p, was, to, as.Worker)
	}
	return d.Worker
}

// draftRetry decides which worker computes the prompt under the draft if the first prefill worker has failed, and
// counts it. It returns the recorded one without a failure, or if the record lacks the selection.
func (r *Replay) draftRetry(p *pick, was, to *sidePool, decode string) string {
	retry := p.retry()
	if retry == nil {
		return p.prefiller
	}
	now, known := r.decideRetry(p, was, retry, p.worker)
	if s := r.sums.handovers(); known {
		s.Reproduced.add(now == retry.Worker)
	}
	worker, known := r.decideRetry(p, to, retry, decode)
	switch {
	case !known, was.handover != nil && now != retry.Worker:
		r.sums.handovers().Undecided++
		return p.prefiller
	case worker == now || worker == p.prefiller:
		return p.prefiller
	}
	r.sums.handovers().ChangedWorker++
	return worker
}

// retry returns the last prefill stage of the request if its worker was selected after another one had failed, and the
// record has the selection; nil otherwise.
func (p *pick) retry() *decisions.Prefill {
	if h := p.a.Handover; h != nil && len(h.Prefills) > 1 {
		if last := &h.Prefills[len(h.Prefills)-1]; last.Choice.Check() == nil {
			return last
		}
	}
	return nil
}

// decideRetry decides again which worker of a pool computes the prompt after the first one has failed. known is false
// without a hand-over, or if the pool has no other worker.
func (r *Replay) decideRetry(p *pick, to *sidePool, retry *decisions.Prefill,
	decode string) (worker string, known bool) {
	if to.handover == nil {
		return "", false
	}
	f := &p.d.Features
	c, _ := r.changedChoice(p, to, retry.Choice, stage{model: uint64(f.Model), prefill: true})
	failed := p.a.Handover.Prefills[:len(p.a.Handover.Prefills)-1]
	c.Candidates = slices.DeleteFunc(c.Candidates, func(v routing.Candidate) bool {
		return v.Worker == decode ||
			slices.ContainsFunc(failed, func(of decisions.Prefill) bool { return of.Worker == v.Worker })
	})
	c.Seen = len(c.Candidates)
	worker, err := routing.RedecidePrefill(to.handover.Policy, c, f.Model, f.Prefix, f.Chain, p.pickTime())
	return worker, err == nil
}

// sameHandover reports whether two decisions let the same worker compute the prompt.
func sameHandover(a, b *routing.HandoverChoice) bool {
	return a.Decision == b.Decision && (a.Decision != routing.HandoverRemote || a.Worker == b.Worker)
}

func count(local, remote *int64, d *routing.HandoverChoice) {
	if d.Decision == routing.HandoverRemote {
		*remote++
	} else {
		*local++
	}
}
