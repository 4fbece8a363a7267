package replay

import (
	"container/list"
	"slices"
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// workerState is one worker as the requests of a side have left it: what is in flight
// there, and what its cache holds.
type workerState struct {
	inflight        int
	pending, output int64
	tokens          int64   // of prompts, cached or not, and expected answers
	rate            float64 // prefill as the records said last, tokens/s; 0 before any did
	cache           promptCache
}

func (p *sidePool) of(worker string) *workerState {
	s := p.workers[worker]
	if s == nil {
		s = &workerState{cache: promptCache{maxTokens: p.cacheTokens, at: map[uint64]*list.Element{}}}
		p.workers[worker] = s
	}
	return s
}

// stay is a request at a worker: it comes, is answered and goes.
type residency struct {
	chain          []routing.Link
	prompt, output int64         // tokens, as counted by the engine, else as estimated
	expected       int64         // tokens of the answer, as they are booked
	booked         int64         // tokens of prompt and answer, as they are booked
	at, first, end time.Duration // end is at or after first
}

// newStay returns the stay of a recorded attempt. It lasts as long as it did,
// whoever serves it: how fast another worker would have been is not known.
func newResidency(d *decisions.Decision, a *decisions.Attempt, at time.Duration) residency {
	s := residency{chain: d.Features.Chain, prompt: d.PromptTokens, at: at, first: at, end: at}
	if a.Choice != nil {
		s.prompt, s.expected = a.Choice.PromptTokens, a.Choice.OutputTokens
		s.booked = s.prompt + s.expected
	}
	if u := usageOf(d, a); u.Prompt > 0 {
		s.prompt, s.output = u.Prompt, u.Output
	}
	if a.Status >= 300 || a.ErrorType == decisions.ErrorConnect {
		s.chain = nil // nothing was computed that a cache could hold
	}
	if ended := millis(a.EndAtMs - a.AtMs); ended > 0 {
		s.end += min(ended, longest)
		s.first = s.end
	}
	if first := millis(a.FirstAtMs - a.AtMs); a.FirstAtMs > 0 && first > 0 {
		s.first = min(s.first, at+first)
	}
	return s
}

// longest is how long a request is at a worker at most: what lasts longer is a broken
// record, and would count as load to the end.
const longest = 24 * time.Hour

// usageOf is what the engine reported of an attempt; of one attempt alone the
// request's own.
func usageOf(d *decisions.Decision, a *decisions.Attempt) decisions.Usage {
	if a.Usage == (decisions.Usage{}) && len(d.Attempts) == 1 {
		return d.Usage
	}
	return a.Usage
}

// place puts a request on a worker and returns how many tokens of its prompt the
// worker's cache holds. Prompts are prefilled in the order of their coming, so that
// each finds what those before it have left, also where they came at one moment.
func (s *replaySide) place(p *sidePool, worker string, v residency) (hit int64) {
	w := p.of(worker)
	hit = w.cache.hit(v.chain, v.prompt)
	w.cache.store(v.chain, v.prompt, v.output)
	if v.end <= v.at {
		return hit // it never was in flight, as far as the record tells
	}
	prefill := v.prompt - hit
	w.inflight++
	w.pending += prefill
	w.output += v.expected
	w.tokens += v.booked
	s.events.plan(v.first, func() { w.pending -= prefill })
	s.events.plan(v.end, func() {
		w.inflight--
		w.output -= v.expected
		w.tokens -= v.booked
	})
	return hit
}

// events are functions to be called at moments of recorded time, the next one first.
type events []event

// event is called before the events of the same moment that were planned after it.
type event struct {
	at time.Duration
	do func()
}

// plan adds an event. Most belong near the end, which moves few others.
func (e *events) plan(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(*e, at, func(v event, at time.Duration) int {
		if v.at <= at {
			return -1
		}
		return 1
	})
	*e = slices.Insert(*e, i, event{at, do})
}

// next calls the first event; there must be one.
func (e *events) next() {
	first := (*e)[0]
	*e = slices.Delete(*e, 0, 1)
	first.do()
}

// until calls all events up to a moment.
func (e *events) until(at time.Duration) {
	for len(*e) > 0 && (*e)[0].at <= at {
		e.next()
	}
}
