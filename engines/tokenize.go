package engines

import (
	"cmp"
	"net/http"
)

// tokenize serves POST /tokenize in vLLM's form: a prompt, or messages rendered as a chat.
func (e *Engine) tokenize(w http.ResponseWriter, r *request) error {
	var req struct {
		Model    string        `json:"model"`
		Prompt   *string       `json:"prompt"`
		Messages []chatMessage `json:"messages"`
		Tools    []tool        `json:"tools"`
	}
	if err := decode(r.body, &req); err != nil {
		return err
	}
	if err := e.checkModel(cmp.Or(req.Model, e.c.Model)); err != nil {
		return err
	}
	var ids []uint32
	switch {
	case len(req.Messages) > 0:
		ids = render(req.Tools, chatTurns(req.Messages))
	case req.Prompt != nil:
		ids = appendIDs([]uint32{}, *req.Prompt)
	default:
		return badRequest("prompt", "prompt or messages is needed")
	}
	return writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": e.c.Context, "tokens": ids,
		"token_strs": nil})
}
