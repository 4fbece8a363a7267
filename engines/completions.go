package engines

import "net/http"

// completions serves POST /v1/completions: text, or token ids, for one prompt or a
// list of them.
func (e *Engine) completions(w http.ResponseWriter, r *request) error {
	var req struct {
		sampling
		Prompt   input `json:"prompt"`
		Logprobs *int  `json:"logprobs"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if len(req.Prompt) == 0 {
		return badRequest("prompt", "the field prompt is missing or empty")
	}
	wish, err := req.wishes()
	if err != nil {
		return err
	}
	if wish.maxTokens == 0 {
		wish.maxTokens = 16 // default of OpenAI's legacy endpoint
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
	for _, prompt := range req.Prompt {
		if err := e.add(p, prompt, nil, wish); err != nil {
			return err
		}
	}
	return e.writeChoices(w, r, p, &req.sampling, false)
}
