package intake

import (
	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tiers"
)

// Resolution is the tier or pool of a request, with the reason.
type Resolution struct {
	tiers.Resolution
	Pool      *control.Pool // nil if none was found; without a rule, the pool that refuses the request
	Requested string        // the model's name as the client wrote it; "other" for one that no pool serves
	ModelName string        // the model's name in the request to the worker
	Stored    bool          // the request is about a stored response
	Overlong  bool          // the estimate exceeds the pool's context; the engine decides
	// Classified means that the request generates an answer, and the gateway has chosen its tier.
	Classified bool
	Evidence   tiers.Evidence // evidence of the classification, if records are kept
	// Score belongs to the scores of earlier requests, once the request is admitted; see AddScore.
	Score tiers.PendingScore
	Moves []tiers.Move // tiers that a rule selected and that the request could not use
}

// reserve returns the tokens to reserve for the request: its prompt, and max_tokens or else the 90th
// percentile of the pool's answers. Without max_tokens the part of the answer is a guess, which alone
// never exceeds the tokens that the caller may use at once.
func (res *Resolution) reserve(p *Parsed, c *tenants.Caller) int64 {
	if p.in.Dialect == openai.Other || res.Free(p.in) {
		return 0
	}
	learned := res.Pool.Routing.Learned()
	prompt := learned.PromptTokens(p.RawTokens)
	if !p.in.Dialect.Generates() {
		return prompt
	}
	answer := learned.OutputP90(p.MaxTokensAt(res.Pool)) * max(1, p.Req.N) * p.Req.Prompts()
	if p.Req.MaxTokens == 0 {
		for _, s := range c.Subjects {
			if s.Limits.TPM > 0 {
				answer = min(answer, max(0, s.Limits.TokensAtOnce()-prompt))
			}
		}
	}
	return prompt + answer
}

// Free reports whether the request costs no tokens: it counts tokens, or reads a stored response, which
// was charged when it was generated.
func (res *Resolution) Free(in *Inbound) bool {
	return in.counts || res.Stored
}

// KnownModel returns the configured name of the request's model. Names that clients choose would create
// an unlimited number of rows in the roll-up.
func (res *Resolution) KnownModel() string {
	switch {
	case res.Pool == nil:
		return ""
	case res.Model != "":
		return res.Model
	}
	return res.Pool.Model
}

// EstimateOutput returns the estimated output tokens of a whole answer of that many bytes without reported
// usage. A background response has not begun; it counts with the 90th percentile of the pool's answers.
func (res *Resolution) EstimateOutput(p *Parsed, bytes int) int64 {
	if p.Req.Background {
		return res.Pool.Routing.Learned().OutputP90(p.Req.MaxTokens)
	}
	if !p.in.Dialect.Generates() {
		return 0
	}
	const envelope, perToken = 300, 6 // perToken includes quotes and field names
	return int64(max(1, (bytes-envelope)/perToken))
}
