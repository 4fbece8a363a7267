package sim

import (
	"time"

	"tierway/routing"
)

// BlockTokens is how many tokens a block of a chain stands for.
const BlockTokens = 64

// charactersAToken is what a block's End counts by: the usual length of a token
// of English text.
const charactersAToken = 4

// Request is one request of a client.
type Request struct {
	Kind         string // names it for whoever reads the results; nothing else looks at it
	Tenant       string
	Weight       int             // the tenant's share in its class; 0 is 1
	Class        int             // of priority, 0 to queue.Classes-1
	Model        uint64          // as routing.Request has it; 0 without one
	Prefix       uint64          // as routing.Request has it: the hash of the prompt's first turn; 0 without one
	Chain        []routing.Block // the prompt's blocks and after them the answer's; nil shares nothing with anybody
	PromptTokens int64
	OutputTokens int64 // what the engine will answer, which the gateway does not know
	MaxTokens    int64 // the client's own bound of the answer, which the gateway does know; 0 is none
	Bytes        int64 // of the body, which a queue may be bounded by

	Deadline time.Duration // how long after its coming anybody listens; 0 is for ever
	Patience time.Duration // how long the client waits for its place before it leaves; 0 is for ever
	Retries  int           // how often the client comes again when it was shed, as the official SDKs do

	// Done is called when the request has ended in any way, nil for nobody. It may
	// ask again.
	Done func(*Record)
}

// Prompt returns the blocks of the prompt.
func (r *Request) Prompt() []routing.Block {
	return r.Chain[:min(len(r.Chain), blocksOf(r.PromptTokens))]
}

// answer returns the blocks of the answer.
func (r *Request) answer() []routing.Block { return r.Chain[len(r.Prompt()):] }

func blocksOf(tokens int64) int { return int((tokens + BlockTokens - 1) / BlockTokens) }

// RoundUp returns the tokens that whole blocks have in which so many fit.
func RoundUp(tokens int64) int64 { return int64(blocksOf(tokens)) * BlockTokens }

// Extend returns the chain with blocks for so many tokens more, rounded up, of a
// text that the seed stands for: chains have a beginning in common as far as they
// are extended by the same seeds and lengths in the same order. The chain given
// stays as it is.
func Extend(chain []routing.Block, seed uint64, tokens int64) []routing.Block {
	longer := make([]routing.Block, len(chain), len(chain)+blocksOf(tokens))
	copy(longer, chain)
	last := routing.Block{}
	if len(chain) > 0 {
		last = chain[len(chain)-1]
	}
	for i := range blocksOf(tokens) {
		last.Hash = routing.Draw(last.Hash ^ routing.Draw(seed+uint64(i)))
		last.End += BlockTokens * charactersAToken
		longer = append(longer, last)
	}
	return longer
}
