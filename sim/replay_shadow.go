package sim

import (
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// shadow is one worker as the requests of a side have left it: what is in flight
// there, and what its cache holds.
type shadow struct {
	inflight        int
	pending, output int64
	rate            float64 // prefill as the records said last, tokens/s; 0 before any did
	cache           promptCache
}

// of returns the shadow of a worker.
func (p *sidePool) of(worker string) *shadow {
	s := p.workers[worker]
	if s == nil {
		s = &shadow{cache: promptCache{most: p.most, at: map[uint64]*cached{}}}
		p.workers[worker] = s
	}
	return s
}

// stay is a request at a worker: it comes, is answered and goes.
type stay struct {
	chain          []routing.Link
	prompt, output int64         // tokens, as counted by the engine, else as estimated
	expected       int64         // tokens of the answer, as they are booked
	at, first, end time.Duration // end is at or after first
}

// newStay returns the stay of a recorded attempt. It lasts as long as it did,
// whoever serves it: how fast another worker would have been is not known.
func newStay(d *decisions.Decision, a *decisions.Attempt, at time.Duration) stay {
	s := stay{chain: d.Features.Chain, prompt: d.PromptTokens, at: at, first: at, end: at}
	if a.Choice != nil {
		s.prompt, s.expected = a.Choice.PromptTokens, a.Choice.OutputTokens
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
func (s *side) place(p *sidePool, worker string, v stay) (hit int64) {
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
	s.events.plan(v.first, func() { w.pending -= prefill })
	s.events.plan(v.end, func() { w.inflight--; w.output -= v.expected })
	return hit
}

// promptCache is a worker's prefix cache as records can tell of it: the blocks that
// they hold, each standing for the tokens between the one before it and itself; the
// one that was longest not touched makes room, as in an Engine.
//
// Of long prompts a record holds only some blocks, and of answers none. What is
// between two blocks, or came after the last, is told by who was there last: if a
// prompt ended there, one that goes on from the block before is taken to be the next
// turn of its chat, which finds the rest of that prompt and its answer too.
type promptCache struct {
	touches
	most, has int64 // tokens
	at        map[uint64]*cached
}

type cached struct {
	entry
	tokens int64
	ended  bool  // a prompt ended here, or before the next block that records hold
	beyond int64 // tokens of that prompt after this block, its answer's included
	gap    bool  // it ended after this block
}

// contiguous is up to which place in a record's chain the blocks follow each other
// without gaps: see routing.AppendChain.
const contiguous = 16

// upTo is how many of a prompt's tokens there are to the end of its i-th block, if
// characters and tokens keep their ratio.
func upTo(chain []routing.Link, i int, prompt int64) int64 {
	whole := chain[len(chain)-1].End
	if whole <= 0 {
		return prompt * int64(i+1) / int64(len(chain))
	}
	return int64(float64(prompt) * float64(chain[i].End) / float64(whole))
}

// hit returns how many tokens at the prompt's beginning are there. The last token of
// a prompt is computed in any case.
func (c *promptCache) hit(chain []routing.Link, prompt int64) int64 {
	var deepest *cached
	n := 0
	for ; n < len(chain); n++ {
		e := c.at[chain[n].Hash]
		if e == nil {
			break
		}
		deepest = e
	}
	if deepest == nil || prompt <= 0 {
		return 0
	}
	tokens := upTo(chain, n-1, prompt)
	if n < len(chain) && deepest.ended && (!deepest.gap || n > contiguous) {
		tokens += deepest.beyond
	}
	return max(0, min(tokens, prompt-1))
}

// store touches the blocks of a prompt in their order, and takes in those that are
// new; the last one with the answer.
func (c *promptCache) store(chain []routing.Link, prompt, output int64) {
	if len(chain) == 0 || prompt <= 0 {
		return
	}
	before := int64(0)
	for i := range chain {
		e := c.at[chain[i].Hash]
		if e == nil {
			e = &cached{entry: entry{hash: chain[i].Hash}}
			c.at[e.hash] = e
		} else {
			c.unlink(&e.entry)
		}
		to := upTo(chain, i, prompt)
		c.has -= e.tokens
		e.tokens = to - before
		switch i {
		case len(chain) - 1:
			e.tokens += output
			e.ended, e.gap, e.beyond = true, false, output
		case len(chain) - 2:
			if !e.ended || e.gap {
				e.ended, e.gap, e.beyond = true, true, prompt-to+output
			}
		}
		c.has += e.tokens
		before = to
		c.push(&e.entry)
	}
	for c.has > c.most && c.first != nil {
		e := c.at[c.first.hash]
		c.unlink(&e.entry)
		delete(c.at, e.hash)
		c.has -= e.tokens
	}
}
