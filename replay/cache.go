package replay

import (
	"container/list"

	"tierway/routing"
)

// promptCache is a worker's prefix cache, reconstructed from the blocks in records. Each block
// stands for the tokens between the previous block and itself; the least recently used block is
// evicted, as in an engine.
//
// Of long prompts a record has only some blocks, and of answers none. The tokens between two
// blocks or after the last one are inferred: if a prompt ended there, a prompt that continues
// from the previous block is assumed to be the next turn of its chat, which finds the rest of
// that prompt and its answer too.
type promptCache struct {
	maxTokens, tokens int64     // capacity and content, in tokens
	lru               list.List // of *cached, the least recently used first
	at                map[uint64]*list.Element
}

type cached struct {
	hash   uint64
	tokens int64
	ended  bool  // a prompt ended here, or before the next recorded block
	beyond int64 // tokens of that prompt after this block, including its answer
	gap    bool  // the prompt ended after this block
}

// contiguous is how many leading blocks of a record's chain follow each other without gaps: see
// routing.AppendChain.
const contiguous = 16

// tokensUpTo returns how many tokens of a prompt there are up to the end of its i-th block, at
// a constant ratio of characters to tokens.
func tokensUpTo(chain []routing.Link, i int, prompt int64) int64 {
	whole := chain[len(chain)-1].End
	if whole <= 0 {
		return prompt * int64(i+1) / int64(len(chain))
	}
	return int64(float64(prompt) * float64(chain[i].End) / float64(whole))
}

// hit returns how many leading tokens of the prompt are cached. The last token of a prompt is
// always computed.
func (c *promptCache) hit(chain []routing.Link, prompt int64) int64 {
	var deepest *cached
	n := 0
	for ; n < len(chain); n++ {
		e := c.at[chain[n].Hash]
		if e == nil {
			break
		}
		deepest = e.Value.(*cached)
	}
	if deepest == nil || prompt <= 0 {
		return 0
	}
	tokens := tokensUpTo(chain, n-1, prompt)
	if n < len(chain) && deepest.ended && (!deepest.gap || n > contiguous) {
		tokens += deepest.beyond
	}
	return max(0, min(tokens, prompt-1))
}

// store marks the blocks of a prompt as used, in their order, and adds the new ones; the last
// one with the answer.
func (c *promptCache) store(chain []routing.Link, prompt, output int64) {
	if len(chain) == 0 || prompt <= 0 {
		return
	}
	before := int64(0)
	for i := range chain {
		at := c.at[chain[i].Hash]
		if at == nil {
			at = c.lru.PushBack(&cached{hash: chain[i].Hash})
			c.at[chain[i].Hash] = at
		}
		c.lru.MoveToBack(at)
		e := at.Value.(*cached)
		to := tokensUpTo(chain, i, prompt)
		c.tokens -= e.tokens
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
		c.tokens += e.tokens
		before = to
	}
	for c.tokens > c.maxTokens && c.lru.Len() > 0 {
		e := c.lru.Remove(c.lru.Front()).(*cached)
		delete(c.at, e.hash)
		c.tokens -= e.tokens
	}
}
