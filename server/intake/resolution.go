package intake

import (
	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tiers"
)

// Resolution is where a request goes and why.
type Resolution struct {
	tiers.Resolution
	Pool      *control.Pool  // nil where none was found; without a rule the one that refuses the request
	Requested string         // the model's name as the client wrote it; "other" for one that no pool serves
	ModelName string         // the name that the worker is asked for
	Stored    bool           // it is about a stored response, at the worker that holds it
	Overlong  bool           // longer than the pool's context by the estimate; the engine decides
	Evidence  tiers.Evidence // by which it was classified, if records are kept
	Moves     []tiers.Move   // tiers that a rule asked for and did not get
}

// reserve is how many tokens the request may take: its prompt, and of the answer
// what it asks for, or what nine of ten of the pool's answers stay below. Without
// max_tokens the answer's part is a guess, which alone never exceeds what the caller
// may use at once.
func (res *Resolution) reserve(p *Parsed, c *tenants.Caller) int64 {
	if p.in.Dialect == openai.Other || res.Free(p.in) {
		return 0
	}
	learned := res.Pool.Routing.Learned()
	prompt := learned.PromptTokens(p.RawTokens)
	if !p.in.Dialect.Generates() {
		return prompt
	}
	answer := learned.OutputP90(p.Req.MaxTokens) * max(1, p.Req.N) * p.Req.Prompts()
	if p.Req.MaxTokens == 0 {
		for _, s := range c.Subjects {
			if s.Limits.TPM > 0 {
				answer = min(answer, max(0, s.Limits.TokensAtOnce()-prompt))
			}
		}
	}
	return prompt + answer
}

// Free reports whether no model reads anything for the request: it counts tokens, or
// asks for what was paid for when it was made.
func (res *Resolution) Free(in *Inbound) bool {
	return in.counts || res.Stored
}

// KnownModel is the model that the request went to, as the configuration names
// it: a client's own words would make rows without end in the roll-up.
func (res *Resolution) KnownModel() string {
	switch {
	case res.Pool == nil:
		return ""
	case res.Model != "":
		return res.Model
	}
	return res.Pool.Model
}

// Unreported is how many tokens of output a whole answer of so many bytes stands
// for that reports no usage. One that is made in the background has not begun: it
// is taken for as long as nine of ten answers of its pool.
func (res *Resolution) Unreported(p *Parsed, bytes int) int64 {
	if p.Req.Background {
		return res.Pool.Routing.Learned().OutputP90(p.Req.MaxTokens)
	}
	return wholeEstimate(p.in.Dialect, bytes)
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
