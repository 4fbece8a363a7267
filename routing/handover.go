package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Stages are the parts of a request that a worker can serve. Its text is a list of words, such as "whole,decode".
type Stages uint8

const (
	// StageWhole means that the worker computes the prompt and generates the answer.
	StageWhole Stages = 1 << iota
	// StagePrefill means that it computes prompts for other workers.
	StagePrefill
	// StageDecode means that it generates answers from prompts that other workers have computed.
	StageDecode
)

// Answer reports whether a worker with these stages generates answers.
func (s Stages) Answer() bool { return cmp.Or(s, StageWhole)&(StageWhole|StageDecode) != 0 }

var stageWords = [...]string{"whole", "prefill", "decode"}

// MarshalText returns the words of the stages.
func (s Stages) MarshalText() ([]byte, error) {
	var words []string
	for i, word := range stageWords {
		if s&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return []byte(strings.Join(words, ",")), nil
}

// UnmarshalText reads the words of stages. Its error names a word that is none.
func (s *Stages) UnmarshalText(text []byte) error {
	*s = 0
	for word := range strings.SplitSeq(string(text), ",") {
		at := slices.Index(stageWords[:], word)
		if at < 0 && word != "" {
			return fmt.Errorf("unknown stage %q (known: %s)", word, strings.Join(stageWords[:], ", "))
		}
		if at >= 0 {
			*s |= 1 << at
		}
	}
	return nil
}

// Handover configures a pool whose workers can compute prompts for each other (disaggregated serving). A request
// then has two stages on two workers, or both on one.
type Handover struct {
	Policy Policy // selects the worker of the prefill stage
	// Threshold is the number of uncached prompt tokens from which another worker computes the prompt. 0: never,
	// AutoThreshold: if the predicted cost is lower.
	Threshold int64
}

// AutoThreshold is the Threshold of a pool that decides by the predicted cost.
const AutoThreshold = -1

// HandoverChoice is the record of the decision which worker computes a prompt.
type HandoverChoice struct {
	Decision string `json:"decision"` // HandoverLocal or HandoverRemote
	Why      string `json:"why"`      // one word, see HandoverCost
	Uncached int64  `json:"uncached_tokens"`
	// predicted costs in seconds, if the decode worker computes the prompt or another one; 0 if not compared
	Local    float64 `json:"local_s,omitempty"`
	Remote   float64 `json:"remote_s,omitempty"`
	Transfer float64 `json:"transfer_s,omitempty"` // part of Remote
	Worker   string  `json:"prefill_worker,omitempty"`
	Reason   Reason  `json:"prefill_reason,omitempty"` // for Worker
	Prefill  *Choice `json:"prefill,omitempty"`        // the pick of the prefill worker; nil without one
}

const (
	// HandoverLocal means that the decode worker computes the prompt.
	HandoverLocal = "local"
	// HandoverRemote means that another worker does.
	HandoverRemote = "remote"
)

// The reasons of a HandoverChoice.
const (
	HandoverCost      = "cost"              // the lower predicted cost
	HandoverThreshold = "threshold"         // the uncached tokens and the configured threshold
	HandoverWhole     = "whole"             // the request must stay on one worker
	HandoverOnlyWay   = "only_way"          // the decode worker can do nothing else
	HandoverNoPrefill = "no_prefill_worker" // none takes requests
)

// handover is the state of a pool with a hand-over.
type handover struct {
	Handover
	views       []View       // buffer of one pick
	assessments []assessment // buffer of one recorded pick
	transfer    transferTime
}

// SetHandover sets the hand-over between the pool's workers; nil ends it. What was learned about transfers stays
// until it ends.
func (p *Pool) SetHandover(h *Handover) {
	p.mu.Lock()
	defer p.unlockChanged()
	switch {
	case h == nil:
		p.handover = nil
	case p.handover == nil:
		p.handover = &handover{Handover: *h}
	default:
		p.handover.Handover = *h
	}
	p.usePoliciesLocked()
}

// usePoliciesLocked prepares the pool for its policies and the number of its workers.
func (p *Pool) usePoliciesLocked() {
	n := len(p.workers)
	p.facts = factsOf(p.policy)
	blocks, every := treeLimit(p.policy)
	if h := p.handover; h != nil {
		p.facts |= h.facts()
		if own, interval := treeLimit(h.Policy); own > blocks {
			blocks, every = own, interval
		}
		if p.facts&usesCosts != 0 {
			blocks, every = 0, 0 // costs need the model of the whole cache
		}
		if len(h.assessments) != n {
			h.views, h.assessments = make([]View, 0, n), make([]assessment, n)
		}
	}
	p.caches.limitTrees(blocks, every)
	if len(p.assessments) != n {
		p.views, p.assessments = make([]View, 0, n), make([]assessment, n)
	}
}

// facts returns the parts of a View that the hand-over uses.
func (h *Handover) facts() facts {
	if h.Threshold == AutoThreshold {
		return factsOf(h.Policy) | usesCosts
	}
	return factsOf(h.Policy)
}

// swap exchanges the pool's policy and buffers with those of the prefill stage.
func (h *handover) swap(p *Pool) {
	p.policy, h.Policy = h.Policy, p.policy
	p.views, h.views = h.views, p.views
	p.assessments, h.assessments = h.assessments, p.assessments
}

// stages returns the stages of which a worker must serve one to take the request.
func (r *Request) stages() Stages {
	switch {
	case r.prefill:
		return StagePrefill
	case r.Computed:
		return StageDecode
	case r.staysWhole():
		return StageWhole
	}
	return StageWhole | StageDecode
}

// staysWhole reports whether one worker must serve both stages.
func (r *Request) staysWhole() bool { return r.Whole || r.Only != nil }

func (w *Worker) servesAny(s Stages) bool { return cmp.Or(w.stages, StageWhole)&s != 0 }

func (w *Worker) answers() bool { return w.stages.Answer() }

// prefillRequest returns the request of the prefill stage: its answer is one token.
func (r *Request) prefillRequest(record *Choice) Request {
	q := *r
	q.prefill, q.Stream, q.Timed, q.Wait, q.OutputTokens, q.MaxTokens = true, true, true, false, 1, 1
	q.Record = record
	return q
}

// prefillPick is the worker selected for a prefill stage.
type prefillPick struct {
	request Request
	views   []View
	index   int // in views
	reason  Reason
	err     error // no worker; then the other fields are not set
}

// bookStagesLocked decides which worker computes the prompt of a request whose decode worker is selected, and books
// both workers, or the one that serves both stages.
func (p *Pool) bookStagesLocked(l *Lease, r *Request, tried []*Worker, ws []View, i int, reason Reason) error {
	if r.Computed {
		return p.bookDecodeLocked(l, r, ws, i, reason)
	}
	h, w, reuse := p.handover, p.workers[ws[i].Index], p.reuse
	d, at := h.decide(r, ws, i, func(q Request) prefillPick {
		h.swap(p)
		defer h.swap(p)
		return p.pickPrefillLocked(q, append(slices.Clone(tried), w))
	})
	p.reuse = reuse
	if at.err != nil && d.Decision == HandoverRemote {
		// The worker takes computed prompts only. One that serves whole requests may be free.
		whole := *r
		whole.Whole = true
		if p.bookLocked(l, &whole, tried) != nil {
			return at.err
		}
		whole.Record.whyWhole()
		return nil
	}
	if r.Record != nil {
		record := d
		r.Record.Handover = &record
	}
	if d.Decision == HandoverLocal {
		return p.bookPickLocked(l, r, ws, i, reason)
	}
	if err := p.bookDecodeLocked(l, r, ws, i, reason); err != nil {
		return err
	}
	l.decode.prefill = &Lease{}
	if err := p.bookPrefillPickLocked(l.decode.prefill, &at); err != nil {
		return err
	}
	l.expected += l.decode.prefill.expected
	return nil
}

// bookDecodeLocked books the decode stage of a request on its selected worker.
func (p *Pool) bookDecodeLocked(l *Lease, r *Request, ws []View, i int, reason Reason) error {
	decode := *r
	decode.decode = true
	if err := p.bookPickLocked(l, &decode, ws, i, reason); err != nil {
		return err
	}
	l.handOverLocked(&decode)
	return nil
}

// whyWhole records that one worker serves both stages because no prefill worker takes requests.
func (c *Choice) whyWhole() {
	if c != nil && c.Handover != nil {
		c.Handover.Why = HandoverNoPrefill
	}
}

// pickPrefillLocked picks the worker of a prefill stage. The pool's policy is that of the stage.
func (p *Pool) pickPrefillLocked(q Request, tried []*Worker) (at prefillPick) {
	at.request = q
	if at.views, at.err = p.showLocked(&at.request, tried); at.err == nil {
		at.index, at.reason = p.pickLocked(&at.request, at.views)
	}
	return at
}

// bookPrefillPickLocked books the prefill stage on its selected worker.
func (p *Pool) bookPrefillPickLocked(l *Lease, at *prefillPick) error {
	p.handover.swap(p)
	defer p.handover.swap(p)
	p.reuse = -1 // the decode worker counts the conversation
	return p.bookPickLocked(l, &at.request, at.views, at.index, at.reason)
}

// decide decides which worker computes the prompt of a request whose decode worker is i in ws. pick picks the
// prefill worker. With an error of pick the decision is HandoverRemote only if nothing else is possible.
func (h *handover) decide(r *Request, ws []View, i int, pick func(Request) prefillPick) (d HandoverChoice,
	at prefillPick) {
	can := cmp.Or(ws[i].stages, StageWhole)
	d = HandoverChoice{Decision: HandoverLocal, Why: HandoverCost, Uncached: uncached(booked(r.PromptTokens), &ws[i])}
	switch {
	case r.staysWhole():
		d.Why = HandoverWhole
		return d, at
	case can&(StageWhole|StageDecode) == StageWhole:
		d.Why = HandoverOnlyWay
		return d, at
	case can&StageWhole == 0:
		d.Decision, d.Why = HandoverRemote, HandoverOnlyWay
	case h.Threshold != AutoThreshold:
		d.Why = HandoverThreshold
		if h.Threshold == 0 || d.Uncached < h.Threshold {
			return d, at
		}
		d.Decision = HandoverRemote
	}
	var record *Choice
	if r.Record != nil {
		record = &Choice{}
	}
	if at = pick(r.prefillRequest(record)); at.err != nil {
		if can&StageWhole != 0 {
			d.Decision, d.Why = HandoverLocal, HandoverNoPrefill
		}
		return d, at
	}
	d.Worker, d.Reason, d.Prefill = at.views[at.index].ID, at.reason, record
	if d.Why == HandoverCost || record != nil && can&StageWhole != 0 {
		d.Transfer = h.transfer.seconds(booked(r.PromptTokens))
		d.Local, d.Remote = handoverCosts(r, ws, i, &at, d.Transfer)
	}
	if d.Why == HandoverCost && d.Remote < d.Local {
		d.Decision = HandoverRemote
	}
	return d, at
}

const (
	// stallWeight is the number of seconds to first token that count as much as one second for which a prefill stops a
	// running answer: readers wait for a beginning, but notice a pause. With less, pauses reach the p99 between tokens.
	stallWeight = 4
	// stalledMost is the maximum of stopped answers that count. Without it, prompts wait up to 30 s for prefill workers
	// that are 90 % busy, while decode workers compute prompts 8 % of the time. With fewer, the pauses of local prompts
	// reach the p99 between tokens of the conversation trace at its full speed (41 ms with 8, 24 ms with 16).
	stalledMost = 16
)

// handoverCosts returns the predicted costs in seconds of a prompt that the decode worker computes, and of one that
// the prefill worker computes. With the terms of kv_aware's cost,
//
//	local  = Σ terms(decode worker, its uncached tokens) + stalls + min(uncached, cached)·perToken
//	remote = Σ terms(decode worker, no tokens) + Σ terms(prefill worker, its uncached tokens) + transfer + stalls
//	stalls = stallWeight·min(answers, stalledMost)·uncached·perToken, of the worker that computes the prompt
//
// answers are those in flight. An engine is assumed to stop them for a prefill: a pool that has never computed prompts
// beside answers has not learned it. A prompt that is handed over is in both caches afterwards, one that is not is
// missing in the prefill worker's. The next turn of the conversation then computes it again, as far as requests find
// their prompts cached in the mean.
func handoverCosts(r *Request, ws []View, i int, at *prefillPick, transfer float64) (local, remote float64) {
	b := newCostBasis(r, ws)
	computed := ws[i]
	computed.Overlap, computed.Cost.Load = booked(r.PromptTokens), 0
	local, remote = b.total(&ws[i]), b.total(&computed)+transfer
	local += min(b.uncached(&ws[i]), b.cached) * ws[i].costFacts().PerToken
	b = newCostBasis(&at.request, at.views)
	return local, remote + b.total(&at.views[at.index])
}

// total returns the sum of the terms on one worker, and of the answers that its prefill stops.
func (b *costBasis) total(v *View) (all float64) {
	for _, term := range b.terms(v) {
		all += term
	}
	if v.stages.Answer() {
		f := v.costFacts()
		all += stallWeight * float64(min(v.Inflight, stalledMost)) * b.uncached(v) * f.PerToken
	}
	return all
}
