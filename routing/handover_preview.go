package routing

import "slices"

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
	v.handover = &handover{Handover: Handover{policyCopy(p.policy, r), h.Threshold}, transfer: h.transfer}
	h.swap(p)
}

// pickPrefill picks the worker of the prefill stage beside the answer's worker, which is i in views.
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
