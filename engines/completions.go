package engines

import (
	"bytes"
	"net/http"
)

// defaultCompletion is the output limit without max_tokens, as of OpenAI's legacy endpoint.
const defaultCompletion = 16

// prompts are the prompts of a completions request.
type prompts struct {
	input
	text bool // they were no token ids
}

func (p *prompts) UnmarshalJSON(b []byte) error {
	p.text = bytes.IndexByte(b, '"') >= 0
	return p.input.UnmarshalJSON(b)
}

// completions serves POST /v1/completions: text, or token ids, for one prompt or a
// list of them.
func (e *Engine) completions(w http.ResponseWriter, r *request) error {
	var req struct {
		sampling
		Prompt   prompts `json:"prompt"`
		Logprobs *int    `json:"logprobs"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if len(req.Prompt.input) == 0 {
		return badRequest("prompt", "the field prompt is missing or empty")
	}
	wish, err := req.wishes()
	if err != nil {
		return err
	}
	if wish.maxTokens == 0 {
		wish.maxTokens = defaultCompletion
	}
	if req.Logprobs != nil {
		if err := wish.wantLogprobs("logprobs", *req.Logprobs); err != nil {
			return err
		}
	}
	p, err := e.newPlan(r, wish.stream, wish.priority)
	if err != nil {
		return err
	}
	if p.handover, err = e.readHandover(r); err != nil {
		return err
	}
	if req.Prompt.text {
		e.counts.change(func(c *counters) { c.Tokenized += int64(len(req.Prompt.input)) })
	}
	for _, prompt := range req.Prompt.input {
		if err := e.add(p, prompt, nil, wish); err != nil {
			return err
		}
	}
	return e.writeChoices(w, r, p, &req.sampling, false)
}
