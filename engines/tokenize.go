package engines

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
)

// tokenize serves POST /tokenize in vLLM's form: a prompt, or messages rendered as a chat.
func (e *Engine) tokenize(w http.ResponseWriter, r *request) error {
	var req struct {
		Model               string        `json:"model"`
		Prompt              *string       `json:"prompt"`
		Messages            []chatMessage `json:"messages"`
		Tools               []tool        `json:"tools"`
		AddGenerationPrompt *bool         `json:"add_generation_prompt"`
	}
	if err := decode(r.body, &req); err != nil {
		return err
	}
	if err := e.checkModel(cmp.Or(req.Model, e.c.Model)); err != nil {
		return err
	}
	var ids []uint32
	switch {
	case len(req.Messages) > 0 && req.AddGenerationPrompt != nil && !*req.AddGenerationPrompt:
		ids = renderTurns(req.Tools, chatTurns(req.Messages))
	case len(req.Messages) > 0:
		ids = render(req.Tools, chatTurns(req.Messages))
	case req.Prompt != nil:
		ids = appendIDs([]uint32{}, *req.Prompt)
	default:
		return badRequest("prompt", "prompt or messages is needed")
	}
	return writeJSON(w, http.StatusOK, map[string]any{"count": len(ids), "max_model_len": e.c.Context,
		"tokens": listOf(ids), "token_strs": nil})
}

// listOf returns ids as a JSON array.
func listOf(ids []uint32) json.RawMessage {
	b := make([]byte, 1, 7*len(ids)+2)
	b[0] = '['
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	return append(b, ']')
}

// renderChat serves POST /v1/chat/completions/render in vLLM's form: the tokens of the request's
// prompt.
func (e *Engine) renderChat(w http.ResponseWriter, r *request) error {
	var req chatRequest
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if len(req.Messages) == 0 {
		return badRequest("messages", "messages must hold at least one message")
	}
	return writeJSON(w, http.StatusOK, e.rendered("chatcmpl-", req.Model, render(req.Tools, chatTurns(req.Messages))))
}

// renderCompletions serves POST /v1/completions/render: a list, with one element for each prompt.
func (e *Engine) renderCompletions(w http.ResponseWriter, r *request) error {
	var req struct {
		Model  string `json:"model"`
		Prompt input  `json:"prompt"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	prompts := make([]map[string]any, len(req.Prompt))
	for i, ids := range req.Prompt {
		prompts[i] = e.rendered("cmpl-", req.Model, ids)
	}
	return writeJSON(w, http.StatusOK, prompts)
}

func (e *Engine) rendered(id, model string, ids []uint32) map[string]any {
	return map[string]any{"request_id": e.newID(id), "token_ids": listOf(ids), "features": nil, "model": model}
}
