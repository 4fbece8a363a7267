package proxy

import (
	"hash/maphash"
	"net/http"

	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// parsed is a request as its body reads.
type parsed struct {
	in         *inbound
	req        *openai.Request // nil before it was read
	upload     *upload         // the body, if that streams; else nil
	class      tenants.Class
	askedClass string       // that its caller may not have; else empty
	prompt     *promptFacts // nil where no prompt is read
	salt       string       // of the engine's prefix cache; "" for the one that all share
	rawTokens  int64        // of the prompt, estimated by its characters alone
	estimate   int64        // of the prompt, by the default tier's learned scale
}

// wholeText tells whether the engine reads what the gateway has read and nothing
// else, so that its count of the prompt says what the estimate is worth.
func (p *parsed) wholeText() bool {
	r := p.req
	if r == nil || r.Media || r.PreviousResponseID != "" || r.ConversationID != "" || r.N > 1 {
		return false
	}
	return p.in.dialect.Generates()
}

// generatesStream tells whether the answer comes token by token.
func (p *parsed) generatesStream() bool {
	if p.req == nil || !p.req.Stream {
		return false
	}
	return p.in.dialect.Generates()
}

// tokensMax is the most tokens of a prompt, beyond its bytes, and of a choice that an
// engine's report is taken for: ten times the longest context of any model.
const tokensMax = 10_000_000

// mostUsage returns the most tokens that an answer to the request can have. Engines
// that count further tokens, such as a template's, may exceed max_tokens; twice as
// many and 64 are a fault of the report.
func (p *parsed) mostUsage() openai.Usage {
	output := int64(tokensMax)
	if p.req.MaxTokens > 0 {
		output = min(output, 2*p.req.MaxTokens+64)
	}
	return openai.Usage{Prompt: tokensMax + int64(len(p.req.Body)), Output: output * max(1, p.req.N) * p.req.Prompts()}
}

// once reports whether the request must not reach an engine twice, because it makes
// or keeps something there.
func (p *parsed) once() bool {
	return p.upload != nil || p.stores() || p.req.Store || p.req.Background || p.in.dialect == openai.Audio || p.in.dialect == openai.Images ||
		p.in.dialect == openai.Other && p.in.r.Method != http.MethodGet && p.in.r.Method != http.MethodHead
}

// stores reports whether the request makes a response that its engine keeps, which
// is the default of the endpoint.
func (p *parsed) stores() bool {
	return p.in.pattern == routeResponses && (p.req.Store || !p.req.StoreSet || p.req.Background)
}

// usesEngine reports whether the answer needs the engine. Of a hung engine, the
// server may still count tokens or return stored responses.
func (p *parsed) usesEngine() bool {
	switch p.in.dialect {
	case openai.Chat, openai.Completions, openai.Responses, openai.Messages:
		return p.req != nil && !p.req.Background && p.in.workerPath != "/v1"+routeCountTokens
	case openai.Embeddings, openai.Rerank, openai.Score:
		return true
	}
	return false
}

// failedRequest returns the request as evidence. Its content is the hash of the prompt,
// because a client can vary every other field, or of the whole body if there is no prompt.
// The body of an upload is not kept: its length stands for it.
func (p *parsed) failedRequest(seed maphash.Seed, tenant string) control.FailedRequest {
	r := control.FailedRequest{Tenant: maphash.String(seed, tenant), Content: maphash.String(seed, p.in.r.URL.Path)}
	switch {
	case p.upload != nil:
		r.Content += routing.Mix(uint64(p.in.r.ContentLength))
	case p.prompt != nil && len(p.prompt.chain) > 0:
		r.Content += p.prompt.chain[len(p.prompt.chain)-1].Hash
	default:
		r.Content += maphash.Bytes(seed, p.req.Body)
	}
	return r
}
