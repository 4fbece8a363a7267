package sim

import (
	"time"

	"tierway/routing"
)

// BlockTokens is the number of tokens of a block in the chains of Extend.
const BlockTokens = 64

// charactersAToken converts tokens to the characters of a block's End: the usual length of a
// token of English text.
const charactersAToken = 4

// Request is one request of a client.
type Request struct {
	Kind         string // label in the results; otherwise unused
	Tenant       string
	Weight       int             // the tenant's weight in its class; 0 means 1
	Class        int             // priority class, 0 to queue.Classes-1
	Model        uint64          // as in routing.Request; 0: none
	Session      uint64          // hash of a session key; 0: none
	Prefix       uint64          // as in routing.Request: the hash of the prompt's first turn; 0: none
	Chain        []routing.Block // blocks of the prompt and then of the answer; nil: nothing is shared
	PromptTokens int64
	OutputTokens int64 // real length of the answer, which the gateway cannot read
	MaxTokens    int64 // the client's limit, which the gateway reads; 0: none
	Bytes        int64 // size of the body, for the bounds of a queue

	Deadline time.Duration // time from arrival until the answer is useless; 0: never
	Patience time.Duration // how long the client waits for a dispatch before it leaves; 0: no limit
	Retries  int           // retries after a shed, as in the official SDKs

	numbers []int32 // of the blocks of Chain

	// Done, unless nil, is called when the request has ended, with or without an answer. It may submit
	// further requests.
	Done func(*Record)
}

// Prompt returns the blocks of the prompt.
func (r *Request) Prompt() []routing.Block {
	return r.Chain[:min(len(r.Chain), blocksOf(r.PromptTokens))]
}

// promptNumbers returns the numbers of the prompt's blocks, and answerNumbers those of the answer's.
func (r *Request) promptNumbers() []int32 { return r.numbers[:len(r.Prompt())] }
func (r *Request) answerNumbers() []int32 { return r.numbers[len(r.Prompt()):] }

func blocksOf(tokens int64) int { return int((tokens + BlockTokens - 1) / BlockTokens) }

// RoundUp returns tokens rounded up to whole blocks.
func RoundUp(tokens int64) int64 { return int64(blocksOf(tokens)) * BlockTokens }

// Extend returns the chain with blocks for that number of further tokens, rounded up. The seed stands for
// the text: chains share a beginning as far as they are extended by the same seeds and lengths
// in the same order. The given chain is not changed.
func Extend(chain []routing.Block, seed uint64, tokens int64) []routing.Block {
	longer := make([]routing.Block, len(chain), len(chain)+blocksOf(tokens))
	copy(longer, chain)
	return appendBlocks(longer, seed, tokens)
}

// appendBlocks is Extend without a copy: it may write behind the end of the chain.
func appendBlocks(chain []routing.Block, seed uint64, tokens int64) []routing.Block {
	last := routing.Block{}
	if len(chain) > 0 {
		last = chain[len(chain)-1]
	}
	for i := range blocksOf(tokens) {
		last.Hash = routing.Draw(last.Hash ^ routing.Draw(seed+uint64(i)))
		last.End += BlockTokens * charactersAToken
		chain = append(chain, last)
	}
	return chain
}
