package proxy

import (
	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tiers"
)

// resolution is where a request goes and why.
type resolution struct {
	tiers.Verdict
	pool      *control.Pool  // nil where none was found; without a rule the one that refuses the request
	requested string         // the model's name as the client wrote it; "other" for one that no pool serves
	model     string         // the name that the worker is asked for
	stored    bool           // it is about a stored response, at the worker that holds it
	overlong  bool           // longer than the pool's context by the estimate; the engine decides
	evidence  tiers.Evidence // by which it was classified, if records are kept
	moves     []tiers.Move   // tiers that a rule asked for and did not get
}

// reserve is how many tokens the request may take: its prompt, and of the answer
// what it asks for, or what nine of ten of the pool's answers stay below. Without
// max_tokens the answer's part is a guess, which alone never exceeds what the caller
// may use at once.
func (res *resolution) reserve(p *parsed, c *tenants.Caller) int64 {
	if p.in.dialect == openai.Other || res.free(p.in) {
		return 0
	}
	learned := res.pool.Routing.Learned()
	prompt := learned.PromptTokens(p.rawTokens)
	if !p.in.dialect.Generates() {
		return prompt
	}
	answer := learned.LongAnswer(p.req.MaxTokens) * max(1, p.req.N) * p.req.Prompts()
	if p.req.MaxTokens == 0 {
		for _, s := range c.Subjects {
			if s.Limits.TPM > 0 {
				answer = min(answer, max(0, s.Limits.TokensAtOnce()-prompt))
			}
		}
	}
	return prompt + answer
}

// free reports whether no model reads anything for the request: it counts tokens, or
// asks for what was paid for when it was made.
func (res *resolution) free(in *inbound) bool {
	return in.counts || res.stored
}

// knownModel is the model that the request went to, as the configuration names
// it: a client's own words would make rows without end in the roll-up.
func (res *resolution) knownModel() string {
	switch {
	case res.pool == nil:
		return ""
	case res.Model != "":
		return res.Model
	}
	return res.pool.Model
}

// unreported is how many tokens of output a whole answer of so many bytes stands
// for that reports no usage. One that is made in the background has not begun: it
// is taken for as long as nine of ten answers of its pool.
func (res *resolution) unreported(p *parsed, bytes int) int64 {
	if p.req.Background {
		return res.pool.Routing.Learned().LongAnswer(p.req.MaxTokens)
	}
	return wholeEstimate(p.in.dialect, bytes)
}

// wholeEstimate is how many tokens a whole answer of generated text may hold that
// reports no usage: its bytes without those around the text, at six bytes for
// each token, quotes and names of fields included.
func wholeEstimate(d openai.Dialect, bytes int) int64 {
	const envelope, perToken = 300, 6
	if !d.Generates() {
		return 0
	}
	return int64(max(1, (bytes-envelope)/perToken))
}
