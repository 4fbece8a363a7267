package sim

import "tierway/routing"

// lookUp finds the engines that have the beginning of the prompt in the index, for the peer or, without one,
// for the pool.
func (w *Simulation) lookUp(f *inflight) {
	if w.index == nil {
		return
	}
	r := &f.record.Request
	numbers := r.promptNumbers()
	if w.config.NewPolicy != nil {
		f.hits = append(f.hits[:0], w.index.lookUp(numbers, true)...)
		return
	}
	f.route.Cached = f.route.Cached[:0]
	for i, blocks := range w.index.lookUp(numbers, false) {
		f.route.Cached = append(f.route.Cached, routing.CachedPrefix{
			Ref: w.engines[i], Tokens: min(int64(blocks)*w.config.BlockTokens, r.PromptTokens),
		})
	}
}

// match returns how many leading blocks of the prompt the engine has by the index, and the other tokens,
// which it must prefill. Without an index, no block is cached.
func (f *inflight) match(e *engineState) (blocks int, uncached int64) {
	r := &f.record.Request
	if f.hits != nil {
		blocks = f.hits[e.at]
	}
	return blocks, r.PromptTokens - e.hitTokens(r, blocks)
}

// booking is a request that is counted for its engine.
type booking struct {
	simulation *Simulation
	engine     *engineState
	request    *Request
	uncached   int64
}

// book counts a request for its engine.
func (w *Simulation) book(f *inflight, e *engineState) *booking {
	b := &booking{simulation: w, engine: e, request: &f.record.Request}
	_, b.uncached = f.match(e)
	e.unanswered++
	e.pending += b.uncached
	numbers := b.request.promptNumbers()
	if w.knowledge.active {
		e.addActive(numbers, len(w.numbers))
	}
	if w.knowledge.index {
		w.index.addRouted(numbers, b.engine.at)
		if !w.knowledge.untilFirstToken {
			w.After(routedFor, b.forget)
		}
	}
	return b
}

// forget ends the time in which the prompt counts as cached before its events have arrived.
func (b *booking) forget() { b.simulation.index.removeRouted(b.request.promptNumbers(), b.engine.at) }

// answered is called at the first token.
func (b *booking) answered() {
	b.engine.unanswered--
	b.engine.pending -= b.uncached
	if b.simulation.knowledge.index && b.simulation.knowledge.untilFirstToken {
		b.simulation.After(eventDelay, b.forget)
	}
}

// ended is called at the end of the answer.
func (b *booking) ended() {
	if b.simulation.knowledge.active {
		b.engine.removeActive(b.request.promptNumbers())
	}
}
