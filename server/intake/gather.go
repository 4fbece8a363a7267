package intake

import (
	"tierway/routing"
	"tierway/server/control"
)

// Gather returns the facts about the request that the routing policy uses.
func (it *Intake) Gather(p *Parsed, res *Resolution) routing.Request {
	learned := res.Pool.Routing.Learned()
	facts := routing.Request{Rand: it.rand(), Stream: p.GeneratesStream(), Model: control.NameHash(res.ModelName),
		PromptTokens: learned.PromptTokens(p.RawTokens), OutputTokens: learned.OutputTokens(p.Req.MaxTokens)}
	if p.Prompt != nil {
		p.Prompt.setBlocks(&facts)
	}
	return facts
}

// setBlocks sets the blocks of the prompt. It mixes the model into every hash, because each model and
// adapter has its own cache.
func (p *Prompt) setBlocks(facts *routing.Request) {
	if len(p.chain) == 0 {
		return
	}
	p.blocks = p.blocks[:0]
	for _, b := range p.chain {
		p.blocks = append(p.blocks, routing.Block{Hash: routing.Mix(b.Hash ^ facts.Model), End: b.End})
	}
	facts.Blocks = p.blocks
	if p.first > 0 {
		facts.Prefix = p.blocks[p.first-1].Hash
	}
}
