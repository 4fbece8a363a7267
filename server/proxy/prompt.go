package proxy

import (
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tiers"
)

// promptFacts is what was read of a request's prompt, in buffers that exchanges take
// turns with.
type promptFacts struct {
	chain        []prompt.Block
	first        int // blocks up to the end of the first turn
	blocks       []routing.Block
	turns        []uint64
	user, system []byte
	features     tiers.Features
}

// What is kept between two exchanges: the chain of a prompt of 1 MB, and the two
// ends of a text.
const (
	blocksKept = 2048
	textKept   = 4 * tiers.TextLimit
)

// putPrompt gives a prompt's buffers back. Nothing may point into them.
func (s *scratch) putPrompt(p *promptFacts) {
	if cap(p.chain) > blocksKept || cap(p.user) > textKept || cap(p.system) > textKept {
		return
	}
	*p = promptFacts{chain: p.chain[:0], blocks: p.blocks[:0], turns: p.turns[:0], user: p.user[:0], system: p.system[:0]}
	s.prompts.Put(p)
}

// saltFor is the salt of the prefix cache that a worker is sent: the tenant's own,
// so that nobody's prompts meet those of another tenant there. It is left out only
// for engines that are known to take none, unless a client has sent one itself: an
// engine that is not known yet may refuse it, which is better than sharing.
func (x *exchange) saltFor(m *control.Member) string {
	e := m.Engine()
	known := e != "" && e != openai.EngineAuto
	if x.parsed.salt == "" || x.parsed.req.CacheSalt == "" && known && !e.TakesCacheSalt() {
		return ""
	}
	return x.parsed.salt
}

// setBlocks gives the chain to the policy, with the model in every hash: one
// prompt has another cache for each model, and for each adapter.
func (x *exchange) setBlocks() {
	p := x.parsed.prompt
	if p == nil || len(p.chain) == 0 {
		return
	}
	p.blocks = p.blocks[:0]
	for _, b := range p.chain {
		p.blocks = append(p.blocks, routing.Block{Hash: routing.Mix(b.Hash ^ x.facts.Model), End: b.End})
	}
	x.facts.Blocks = p.blocks
	if p.first > 0 {
		x.facts.Prefix = p.blocks[p.first-1].Hash
	}
}

// maxTokensField is where a dialect's limit of the output stands.
func maxTokensField(d openai.Dialect) string {
	if d == openai.Responses {
		return "max_output_tokens"
	}
	return "max_tokens"
}

// promptField is where a dialect's prompt stands.
func promptField(d openai.Dialect) string {
	switch d {
	case openai.Chat, openai.Messages:
		return "messages"
	case openai.Completions:
		return "prompt"
	}
	return "input"
}
