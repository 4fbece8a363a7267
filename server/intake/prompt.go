package intake

import (
	"hash/maphash"

	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/tiers"
	"tierway/tierscore"
	"tierway/workers/prompttokens"
)

// Prompt is the parsed prompt of a request, in pooled buffers.
type Prompt struct {
	chain        []prompt.Block
	first        int // number of blocks up to the end of the first turn
	blocks       []routing.Block
	turns        []uint64
	found        prompttokens.Prompt // of the last look-up in the workers' caches
	cached       []routing.CachedPrefix
	ids          []uint32 // tokens of the last look-up in LMCache's controller
	user, system []byte
	input        tiers.ClassifierInput
	features     *tierscore.Features  // nil before the first request that needs them
	extractor    *tierscore.Extractor // that has set features; nil: none has

	hasUser, hasSystem bool // user and system are set

	resolver resolver // pooled with the prompt
}

// Session returns the hash of the session that the classifier used, or 0 without one.
func (p *Prompt) Session() uint64 { return p.input.Session }

// UserTextBytes returns the length of the classified part of the user's text.
func (p *Prompt) UserTextBytes() int { return len(p.user) }

// PromptHash returns a hash of the caller's tenant and all turns of a prompt, which is the same for each request with
// them. ok is false without a prompt, and for prompts that the hash does not cover: several ones in a request, and one
// with a full chain.
func (it *Intake) PromptHash(c *Caller, p *Parsed) (hash uint64, ok bool) {
	if p.Prompt == nil || len(p.Prompt.chain) == 0 || len(p.Prompt.chain) >= prompt.MaxBlocks || p.Req.Prompts() > 1 {
		return 0, false
	}
	chain := p.Prompt.chain
	return routing.Mix(routing.Mix(maphash.String(it.seed, c.Tenant)) + chain[len(chain)-1].Hash), true
}

// Bounds of pooled buffers, in blocks, keys and bytes: the chain of a prompt of 1 MB, the keys of
// 128,000 tokens in blocks of 16, and the two ends of a text.
const (
	blocksKept = 2048
	keysKept   = 8192
	textKept   = 4 * tiers.TextLimit
	idsKept    = 16 * keysKept
)

// DropPrompt returns the buffers of a request's prompt to the pool. Nothing may refer to them.
func (it *Intake) DropPrompt(of *Parsed) {
	p := of.Prompt
	of.Prompt = nil
	if p == nil || cap(p.chain) > blocksKept || cap(p.user) > textKept || cap(p.system) > textKept {
		return
	}
	if cap(p.found.Keys) > keysKept {
		p.found.Keys = nil
	}
	if cap(p.ids) > idsKept {
		p.ids = nil
	}
	clear(p.cached) // its references to workers
	*p = Prompt{chain: p.chain[:0], blocks: p.blocks[:0], turns: p.turns[:0],
		found: prompttokens.Prompt{Keys: p.found.Keys[:0]}, cached: p.cached[:0], ids: p.ids[:0],
		user: p.user[:0], system: p.system[:0], features: p.features,
		resolver: resolver{methods: p.resolver.methods}}
	it.prompts.Put(p)
}

// Features returns the features of a request with a prompt, or nil without learning.hash_key. They are extracted once
// and belong to the prompt: they are valid until DropPrompt. The first call reads the body.
func (p *Parsed) Features(in *Inbound, c *Caller) *tierscore.Features {
	by, to := in.Snap.Extractor, p.Prompt
	if by == nil || to == nil {
		return nil
	}
	if to.extractor != by {
		if to.features == nil {
			to.features = new(tierscore.Features)
		}
		by.Extract(to.features, &tierscore.Input{Tenant: c.Tenant, System: p.systemText(), User: p.userText(),
			Turns: prompt.CountTurns(p.Req), Tools: p.Req.Tools})
		to.extractor = by
	}
	return to.features
}

// userText returns the ends of the last user turn, which are extracted once.
func (p *Parsed) userText() []byte {
	to := p.Prompt
	if !to.hasUser {
		to.user, to.hasUser = prompt.AppendUserText(to.user[:0], p.Req, tiers.TextLimit), true
	}
	return to.user
}

// systemText returns the ends of the system text, which are extracted once.
func (p *Parsed) systemText() []byte {
	to := p.Prompt
	if !to.hasSystem {
		to.system, to.hasSystem = prompt.AppendSystemText(to.system[:0], p.Req, tiers.TextLimit), true
	}
	return to.system
}
