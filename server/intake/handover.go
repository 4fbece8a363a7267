package intake

import (
	"slices"

	"tierway/config"
	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
)

// StageFields returns the fields of the body that matter in a pool with a hand-over. The first call scans the body.
func (p *Parsed) StageFields() *openai.StageFields {
	if p.stages == nil {
		p.stages = new(openai.StageFields)
		if p.Req != nil && p.Upload == nil {
			*p.stages = p.Req.StageFields()
		}
	}
	return p.stages
}

// mustStayWhole reports whether one worker of the pool must serve both stages of the request. Without a hand-over
// it is false.
func (p *Parsed) mustStayWhole(pool *control.Pool) bool {
	if pool.Handover == "" {
		return false
	}
	f := p.StageFields()
	switch {
	case !p.generates(), f.Whole != "":
		return true
	case p.MustBeJudged(pool):
		return servesWhole(pool)
	}
	// Without parameters of a hand-over, engines require the budget of thinking to be below an output limit of 1.
	return f.ThinkingBudget && (pool.Handover == config.HandoverShared || pool.Handover == config.HandoverP2PNCCL)
}

// MustBeJudged reports whether an engine of the pool may refuse the request for a field that a prefill stage would
// replace or remove. With SGLang, both stages have all fields.
func (p *Parsed) MustBeJudged(pool *control.Pool) bool {
	f := p.StageFields()
	return pool.Handover != config.HandoverSGLang &&
		(f.Faulty || p.Req.MaxTokens > 0 && f.MinTokens > p.MaxTokensAt(pool))
}

// generates reports whether the answer is generated from a prompt: it has two stages.
func (p *Parsed) generates() bool {
	return p.in.Dialect.Generates() && p.UsesEngine() && p.Upload == nil
}

// CheckHandover returns the error of a request that a pool with a hand-over does not take: one with fields that name
// another engine, and one that must stay on one worker if no worker of the pool serves whole requests.
func CheckHandover(in *Inbound, p *Parsed, pool *control.Pool) error {
	if pool.Handover == "" {
		return nil
	}
	if slices.ContainsFunc(in.HTTP.Header["X-Request-Id"], openai.HasEngineAddress) {
		return notFromClients("X-Request-Id")
	}
	f := p.StageFields()
	switch {
	case f.Forged != "":
		return notFromClients(f.Forged)
	case !p.mustStayWhole(pool) || servesWhole(pool):
		return nil
	case f.Whole == "":
		return &openai.Error{Code: openai.CodeEndpointNotSupported, Param: "model",
			Message: "The engines of " + openai.Quoted(pool.Name) + " serve only one stage of a generated answer each, and not " +
				in.HTTP.URL.Path + ". Use a model of another tier or pool: GET /v1/models lists the models."}
	}
	return &openai.Error{Code: openai.CodeInvalidValue, Param: f.Whole,
		Message: "With this value of " + f.Whole + ", one engine must serve the whole request, and " +
			openai.Quoted(pool.Name) + " has none that does. Send one request for each prompt and answer, without fields that " +
			"need more, or use a model of another tier or pool. The operator can add a worker with role: both."}
}

// notFromClients returns the error of a request with a field by which engines find each other.
func notFromClients(field string) error {
	return &openai.Error{Code: openai.CodeInvalidValue, Param: field,
		Message: field + " steers how engines of this tier hand prompts over, and only the gateway may set it. Remove it."}
}

// servesWhole reports whether a worker of the pool serves whole requests.
func servesWhole(pool *control.Pool) bool {
	for i := range pool.Workers {
		if pool.Stages(&pool.Workers[i])&routing.StageWhole != 0 {
			return true
		}
	}
	return false
}
