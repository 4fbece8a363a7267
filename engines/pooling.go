package engines

import (
	"cmp"
	"net/http"
	"strings"
)

// pooling serves POST /pooling in vLLM's form: the vectors of POST /v1/embeddings.
func (e *Engine) pooling(w http.ResponseWriter, r *request) error {
	var req struct {
		Model      string   `json:"model"`
		Input      input    `json:"input"`
		Dimensions *int     `json:"dimensions"`
		Priority   priority `json:"priority"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	size := usualDimensions
	if req.Dimensions != nil {
		size = min(max(1, *req.Dimensions), mostDimensions)
	}
	data := make([]map[string]any, len(req.Input))
	for i, ids := range req.Input {
		data[i] = map[string]any{"object": "pooling", "index": i,
			"data": unit(hashIDs(hashIDs(0, []byte(e.modelName(req.Model))), ids), size)}
	}
	return e.writePooled(w, r, req.Input, req.Priority, req.Model, "pool-", data)
}

// classify serves POST /classify in vLLM's form. The class of a prompt depends on its first token.
func (e *Engine) classify(w http.ResponseWriter, r *request) error {
	var req struct {
		Model    string   `json:"model"`
		Input    input    `json:"input"`
		Priority priority `json:"priority"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	data := make([]map[string]any, len(req.Input))
	for i, ids := range req.Input {
		label, probs := "LABEL_0", []float64{0.75, 0.25}
		if len(ids) > 0 && ids[0]%2 == 1 {
			label, probs = "LABEL_1", []float64{0.25, 0.75}
		}
		data[i] = map[string]any{"index": i, "label": label, "probs": probs, "num_classes": len(probs)}
	}
	return e.writePooled(w, r, req.Input, req.Priority, req.Model, "classify-", data)
}

// writePooled reads the prompts and writes one result for each.
func (e *Engine) writePooled(w http.ResponseWriter, r *request, prompts input, asked priority, model, id string,
	data []map[string]any) error {
	if len(prompts) == 0 {
		return badRequest("input", "the field input is missing or empty")
	}
	return e.writeRead(w, r, prompts, asked, map[string]any{"id": e.newID(id), "object": "list",
		"created": e.c.Clock().Unix(), "model": e.modelName(model), "data": data})
}

// detokenize serves POST /detokenize in vLLM's form. The vocabulary has no inverse; equal tokens have equal words.
func (e *Engine) detokenize(w http.ResponseWriter, r *request) error {
	var req struct {
		Model  string   `json:"model"`
		Tokens []uint32 `json:"tokens"`
	}
	if err := decode(r.body, &req); err != nil {
		return err
	}
	if err := e.checkModel(cmp.Or(req.Model, e.c.Model)); err != nil {
		return err
	}
	text := make([]string, len(req.Tokens))
	for i, id := range req.Tokens {
		text[i] = words[id%uint32(len(words))]
	}
	return writeJSON(w, http.StatusOK, map[string]any{"prompt": strings.Join(text, " ")})
}
