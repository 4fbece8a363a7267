package intake

import (
	"hash/maphash"
	"net/http"

	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// Parsed is the content of a request.
type Parsed struct {
	in         *Inbound
	Req        *openai.Request // nil before the body is read
	Upload     *Upload         // the body if it streams to the worker; otherwise nil
	Class      tenants.Class
	AskedClass string  // the requested class if the caller may not use it; otherwise empty
	Prompt     *Prompt // nil without a prompt
	Salt       string  // salt of the engine's prefix cache; "" selects the shared cache
	RawTokens  int64   // prompt tokens, estimated by the characters alone
	Estimate   int64   // prompt tokens, estimated with the default tier's learned scale

	stages *openai.StageFields // see StageFields; nil before it
}

// WholeText reports whether the engine reads exactly the text that the gateway has read. Its prompt
// tokens then show the error of the estimate.
func (p *Parsed) WholeText() bool {
	r := p.Req
	if r == nil || r.Media || p.FollowsUp() || r.N > 1 {
		return false
	}
	return p.in.Dialect.Generates()
}

// FollowsUp reports whether the request continues a stored response or conversation, which one engine has.
func (p *Parsed) FollowsUp() bool {
	return p.Req.PreviousResponseID != "" || p.Req.ConversationID != ""
}

// GeneratesStream reports whether the answer is a stream of generated tokens.
func (p *Parsed) GeneratesStream() bool {
	if p.Req == nil || !p.Req.Stream {
		return false
	}
	return p.in.Dialect.Generates()
}

// leastAnswer is the least output, in tokens, to which a limit is lowered: room for one call of a tool. A longer
// prompt does not fit, and agents then shorten their chat.
const leastAnswer = 256

// MaxTokensAt returns the output limit of the request at a pool: the client's, or what fits beside the prompt if that
// is less and the pool lowers limits. The prompt is estimated, so a fifth of it is kept free, and at most half of the
// room.
func (p *Parsed) MaxTokensAt(pool *control.Pool) int64 {
	limit := p.Req.MaxTokens
	if !pool.LowerMaxTokens || pool.Context == 0 || limit <= leastAnswer {
		return limit
	}
	prompt := pool.Routing.Learned().PromptTokens(p.RawTokens)
	maxOutput := pool.Context - prompt
	if limit <= maxOutput {
		return limit
	}
	const template = 64 // tokens that a chat template adds
	return max(maxOutput-prompt/5-template, maxOutput/2, leastAnswer)
}

// fitsContext reports whether a prompt of that many tokens fits into the context of a pool beside the output.
func (p *Parsed) fitsContext(pool *control.Pool, prompt int64) bool {
	answer := p.Req.MaxTokens
	if pool.LowerMaxTokens {
		answer = min(answer, leastAnswer)
	}
	return pool.Context == 0 || prompt+answer <= pool.Context
}

// tokensMax is the largest number of tokens that is accepted from an engine's report, of a prompt
// (plus its bytes) and of each choice: ten times the longest context of any model.
const tokensMax = 10_000_000

// longestAnswer is the largest number of tokens that is accepted for a choice above max_tokens: twice the output
// limit of the models with the longest answers.
const longestAnswer = 1 << 18

// UsageBounds are the bounds of the usage that an engine reports.
type UsageBounds struct {
	Prompt, Output int64 // largest accepted counts
	MaxTokens      int64 // largest output that max_tokens explains
}

// UsageBounds returns the bounds of the answer's usage. It reads the body. The output may exceed max_tokens, because
// some engines ignore it or do not count reasoning against it. Engines may count further tokens, such as a
// template's, so that max_tokens explains twice its value plus 64.
func (p *Parsed) UsageBounds() UsageBounds {
	choices := max(1, p.Req.N) * p.Req.Prompts()
	b := UsageBounds{Prompt: tokensMax + int64(len(p.Req.Body)), Output: tokensMax, MaxTokens: tokensMax}
	if m := min(p.Req.MaxTokens, tokensMax); m > 0 {
		b.Output, b.MaxTokens = max(m, longestAnswer), 2*m+64
	}
	b.Output, b.MaxTokens = b.Output*choices, b.MaxTokens*choices
	return b
}

// AtMostOnce reports whether the request must not reach an engine twice, because it creates or stores an
// object there.
func (p *Parsed) AtMostOnce() bool {
	return p.Upload != nil || p.Stores() || p.Req.Store || p.Req.Background || p.in.Dialect == openai.Audio ||
		p.in.Dialect == openai.Images ||
		p.in.Dialect == openai.Other && p.in.HTTP.Method != http.MethodGet && p.in.HTTP.Method != http.MethodHead
}

// Stores reports whether the engine stores the response to the request, which is the default of the
// endpoint.
func (p *Parsed) Stores() bool {
	return p.in.Pattern == routeResponses && (p.Req.Store || !p.Req.StoreSet || p.Req.Background)
}

// UsesEngine reports whether the answer needs the engine. While an engine hangs, its server may still
// count tokens or return stored responses.
func (p *Parsed) UsesEngine() bool {
	switch p.in.Dialect {
	case openai.Chat, openai.Completions, openai.Responses, openai.Messages:
		return p.Req != nil && !p.Req.Background && p.in.WorkerPath != "/v1"+routeCountTokens
	case openai.Embeddings, openai.Rerank, openai.Score, openai.Pooling:
		return true
	}
	return false
}

// FailedRequest returns the identity of the request as evidence about workers. Its content is the hash
// of the prompt, because a client can vary every other field. Without a prompt it is the hash of the
// body, and for an upload the hash of its length, because the body is not kept.
func (p *Parsed) FailedRequest(seed maphash.Seed, tenant string) control.FailedRequest {
	r := control.FailedRequest{Tenant: maphash.String(seed, tenant), Content: maphash.String(seed, p.in.HTTP.URL.Path)}
	switch {
	case p.Upload != nil:
		r.Content += routing.Mix(uint64(p.in.HTTP.ContentLength))
	case p.Prompt != nil && len(p.Prompt.chain) > 0:
		r.Content += p.Prompt.chain[len(p.Prompt.chain)-1].Hash
	default:
		r.Content += maphash.Bytes(seed, p.Req.Body)
	}
	return r
}
