package intake

import (
	"context"
	"time"

	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/server/control"
	"tierway/workers/prompttokens"
)

// Gather returns the facts about the request that the routing policy uses. If the policy uses what
// the workers have cached and ask is set, an engine may be asked for the tokens of the prompt, and Gather
// waits for them up to the policy's lookup timeout.
func (it *Intake) Gather(ctx context.Context, c *Caller, p *Parsed, res *Resolution, region string,
	ask bool) routing.Request {
	learned := res.Pool.Routing.Learned()
	facts := routing.Request{Rand: it.rand(), Stream: p.GeneratesStream(), Model: control.NameHash(res.ModelName),
		PromptTokens: learned.PromptTokens(p.RawTokens), OutputTokens: learned.OutputTokens(p.MaxTokensAt(res.Pool)),
		Regions: res.Pool.Regions(region), Tenant: control.NameHash(c.Tenant), MaxTokens: p.MaxTokensAt(res.Pool),
		Timed: p.UsesEngine(), Whole: p.mustStayWhole(res.Pool)}
	if !p.in.Dialect.Generates() {
		facts.MaxTokens = 1 // an embedding or a score takes no longer than a token
	}
	if facts.Unplaced = res.Pool.IgnoresRanks(p.in.Dialect); facts.Unplaced {
		facts.Timed = false // silence says nothing about the booked rank
	}
	facts.Rule, facts.Rules = p.rule(c, res, &facts), len(res.Pool.Rules)
	policy := res.Pool.PolicyOf(facts.Rule)
	p.setKey(c, policy, &facts)
	usesLMCache := res.Pool.UsesLMCache(policy)
	if usesLMCache {
		facts.Stored = res.Pool.StoredKeys()
	}
	if p.Prompt != nil {
		p.Prompt.setBlocks(&facts)
		p.Prompt.found = prompttokens.Prompt{Keys: p.Prompt.found.Keys[:0]}
		if res.Pool.UsesEvents(policy) {
			p.Prompt.setCached(ctx, p, res, &facts, ask)
		}
		if usesLMCache && res.Pool.LooksUp() {
			p.Prompt.lookUp(ctx, p, res, &facts, ask)
		}
		if facts.Unplaced {
			facts.Blocks = nil // the prompt does not stay with the booked rank
		}
	}
	return facts
}

// setCached sets what the workers' KV-cache events say about the prompt.
func (p *Prompt) setCached(ctx context.Context, of *Parsed, res *Resolution, facts *routing.Request, ask bool) {
	q := of.tokenQuery(p.chain, res)
	facts.Cached = p.cached[:0]
	p.found = res.Pool.LookupCaches(ctx, &q, facts, p.found.Keys, ask)
	p.cached, facts.CachedAt = facts.Cached, time.Now()
}

// lookUp sets which workers have the prompt by LMCache's controller.
func (p *Prompt) lookUp(ctx context.Context, of *Parsed, res *Resolution, facts *routing.Request, ask bool) {
	q := of.tokenQuery(p.chain, res)
	if facts.Cached == nil {
		facts.Cached = p.cached[:0]
	}
	found, ids := res.Pool.LookUp(ctx, &q, facts, p.ids, ask)
	if p.ids, p.cached, facts.CachedAt = ids, facts.Cached, time.Now(); found.Tokens > 0 {
		p.found.Form, p.found.Tokens = found.Form, found.Tokens
	}
}

// tokenQuery returns the question for the tokens of the prompt.
func (p *Parsed) tokenQuery(chain []prompt.Block, res *Resolution) prompttokens.Query {
	return prompttokens.Query{Request: p.Req, Chain: chain, Model: res.ModelName, Salt: p.Salt,
		Adapter: res.Pool.Adapter(res.ModelName)}
}

// Judge compares the prompt's known length with the prompt tokens that an engine of the pool counted.
func (p *Prompt) Judge(pool *control.Pool, counted int64) {
	if p != nil {
		pool.JudgePrompt(p.found, counted)
	}
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
