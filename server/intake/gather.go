package intake

import (
	"tierway/routing"
	"tierway/server/control"
)

// Gather collects the facts that the policy decides by.
func (it *Intake) Gather(p *Parsed, res *Resolution) routing.Request {
	learned := res.Pool.Routing.Learned()
	facts := routing.Request{Rand: it.rand(), Stream: p.GeneratesStream(), Model: control.NameHash(res.ModelName),
		PromptTokens: learned.PromptTokens(p.RawTokens), OutputTokens: learned.OutputTokens(p.Req.MaxTokens)}
	if p.Prompt != nil {
		p.Prompt.setBlocks(&facts)
	}
	return facts
}

// setBlocks gives the chain to the policy, with the model in every hash: one
// prompt has another cache for each model, and for each adapter.
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
