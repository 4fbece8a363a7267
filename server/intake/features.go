package intake

import (
	"tierway/openai/prompt"
	"tierway/tiers"
	"tierway/tierscore"
)

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
