package routing

import (
	"slices"
	"time"
)

// captureHandoverLocked copies what a preview needs of the prefill stage.
func (v *poolView) captureHandoverLocked(p *Pool, r *Request, tried []*Worker) {
	h := p.handover
	if h == nil {
		return
	}
	v.prefill.request = r.prefillRequest(nil)
	h.swap(p)
	ws, err := p.showLocked(&v.prefill.request, tried)
	v.prefill.views, v.prefill.err = slices.Clone(ws), err
	v.prefillExcluded = p.allExcludedLocked(&v.prefill.request, ws, tried)
	v.handover = &handover{Handover: Handover{policyCopy(p.policy, r), h.Threshold}, transfer: h.transfer}
	h.swap(p)
}

// pickPrefill picks the worker of the prefill stage beside the decode worker, which is i in views.
func (v *poolView) pickPrefill(i int) prefillPick {
	at := v.prefill
	at.views = slices.DeleteFunc(slices.Clone(at.views), func(w View) bool { return w.Index == v.views[i].Index })
	if at.err == nil && len(at.views) == 0 {
		at.err = ErrNoWorker
	}
	if at.err != nil {
		return at
	}
	at.request.Record = &Choice{}
	detached := Pool{policy: v.handover.Policy, assessments: make([]assessment, len(at.views))}
	at.index, at.reason = detached.pickLocked(&at.request, at.views)
	return at
}

// RedecideHandover decides again which worker computes the prompt of a recorded pick, whose decode worker is now
// the candidate i of c. The transfer takes the recorded time, or its prior if the record has none. known is false if
// the decision needs a pick of a prefill worker that c does not have. The other arguments are those of [Redecide];
// h.Policy learns nothing and must not be used meanwhile.
func RedecideHandover(h *Handover, c *Choice, i int, model, prefix Hash, chain []Link,
	at time.Time) (d HandoverChoice, known bool) {
	r, ws := c.recorded(model, prefix, chain, at)
	r.Record = &Choice{}
	now, known := handover{Handover: *h}, true
	r.Whole = c.Handover != nil && c.Handover.Why == HandoverWhole
	if c.Handover != nil && c.Handover.Transfer > 0 {
		now.transfer = transferTime{tokens: float64(max(1, c.PromptTokens)), took: c.Handover.Transfer}
	}
	d, pick := now.decide(&r, ws, i, func(Request) (pick prefillPick) {
		pick.err = ErrIncomplete
		if c.Handover == nil || c.Handover.Prefill.check() != nil {
			return pick
		}
		return redecidePrefill(h.Policy, c.Handover.Prefill, ws[i].Index, model, prefix, chain, at)
	})
	if pick.err != nil {
		known = c.Handover != nil && c.Handover.Why == HandoverNoPrefill
	}
	d.Prefill = pick.request.Record
	return d, known
}

// redecidePrefill repeats the recorded selection c of a prefill worker, without the candidate whose index is excluded.
func redecidePrefill(p Policy, c *Choice, excluded int, model, prefix Hash, chain []Link,
	at time.Time) (pick prefillPick) {
	pick.request, pick.views = c.recorded(model, prefix, chain, at)
	pick.views = slices.DeleteFunc(pick.views, func(v View) bool { return v.Index == excluded })
	if len(pick.views) == 0 {
		pick.err = ErrIncomplete
		return pick
	}
	pick.request.prefill = true
	pick.request.Record, pick.request.recorded = &Choice{}, c
	detached := Pool{policy: policyCopy(p, &pick.request), assessments: make([]assessment, len(pick.views))}
	pick.index, pick.reason = detached.pickLocked(&pick.request, pick.views)
	return pick
}

// RedecidePrefill repeats the selection c of a prefill worker that RetryPrefill has recorded. The other arguments and
// the errors are those of [Redecide].
func RedecidePrefill(p Policy, c *Choice, model, prefix Hash, chain []Link, at time.Time) (worker string, err error) {
	if err := c.check(); err != nil {
		return "", err
	}
	pick := redecidePrefill(p, c, -1, model, prefix, chain, at)
	return pick.views[pick.index].ID, nil
}
