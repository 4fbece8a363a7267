package replay

import (
	"container/list"
	"slices"
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// workerState is the state in which the requests of a side have left a worker: its load in
// flight and its cache.
type workerState struct {
	inflight        int
	pending, output int64
	tokens          int64   // prompts, cached or not, and expected answers
	rate            float64 // last recorded prefill rate, tokens/s; 0: none recorded
	cache           promptCache
}

func (p *sidePool) worker(worker string) *workerState {
	s := p.workers[worker]
	if s == nil {
		s = &workerState{cache: promptCache{maxTokens: p.cacheTokens, at: map[uint64]*list.Element{}}}
		p.workers[worker] = s
	}
	return s
}

// residency is the time of one request at a worker: it arrives, is answered and ends.
type residency struct {
	chain          []routing.Link
	prompt, output int64         // tokens, counted by the engine or else estimated
	expected       int64         // booked tokens of the answer
	booked         int64         // booked tokens of prompt and answer
	at, first, end time.Duration // end is at or after first
}

// newResidency returns the residency of a recorded attempt. It has the recorded duration at
// every worker: the speed of other workers is unknown.
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
		s.chain = nil // nothing was computed that could be cached
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

// longest is the longest assumed residency. A longer one is a broken record, and would count as
// load to the end.
const longest = 24 * time.Hour

// usageOf returns the usage that the engine reported for an attempt; for a single attempt, the
// request's.
func usageOf(d *decisions.Decision, a *decisions.Attempt) decisions.Usage {
	if a.Usage == (decisions.Usage{}) && len(d.Attempts) == 1 {
		return d.Usage
	}
	return a.Usage
}

// placeRequest puts a request on a worker and returns how many tokens of its prompt the worker has
// cached. Prompts are prefilled in the order of arrival: each one finds the blocks of those
// before it, also of those at the same moment. If another worker, prefiller, computes the prompt, it has the prompt
// until the first content of the answer, and its cache counts.
func (s *replaySide) placeRequest(p *sidePool, worker, prefiller string, v residency) (hit int64) {
	w, prefill := p.worker(worker), int64(0)
	if prefiller != "" {
		stage := v
		stage.output, stage.expected, stage.booked, stage.end = 0, 0, v.booked-v.expected, v.first
		hit = s.placeRequest(p, prefiller, "", stage)
	} else {
		hit = w.cache.hit(v.chain, v.prompt)
		prefill = v.prompt - hit
	}
	w.cache.store(v.chain, v.prompt, v.output)
	if v.end <= v.at {
		return hit // never in flight according to the record
	}
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

// events are functions to call at moments of recorded time, the next one first.
type events []event

// event is a function and its moment. Events of one moment are called in the order of planning.
type event struct {
	at time.Duration
	do func()
}

// plan adds an event. Most belong near the end, so that few others move.
func (e *events) plan(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(*e, at, func(v event, at time.Duration) int {
		if v.at <= at {
			return -1
		}
		return 1
	})
	*e = slices.Insert(*e, i, event{at, do})
}

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
