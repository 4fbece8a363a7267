package engines

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
)

// The default size of a vector, as of small sentence encoders, and the maximum.
const (
	usualDimensions = 384
	mostDimensions  = 8192
)

// embeddings serves POST /v1/embeddings. Equal inputs have equal vectors of length 1.
func (e *Engine) embeddings(w http.ResponseWriter, r *request) error {
	var req struct {
		Model      string   `json:"model"`
		Input      input    `json:"input"`
		Encoding   string   `json:"encoding_format"`
		Dimensions *int     `json:"dimensions"`
		Priority   priority `json:"priority"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	if len(req.Input) == 0 {
		return badRequest("input", "the field input is missing or empty")
	}
	size := usualDimensions
	if req.Dimensions != nil {
		if size = *req.Dimensions; size < 1 || size > mostDimensions {
			return badRequest("dimensions", "dimensions must be 1 to %d, not %d", mostDimensions, size)
		}
	}
	if req.Encoding != "" && req.Encoding != "float" && req.Encoding != "base64" {
		return badRequest("encoding_format", "encoding_format %q is not one of float, base64", req.Encoding)
	}
	data := make([]map[string]any, len(req.Input))
	for i, ids := range req.Input {
		v := unit(hashIDs(hashIDs(0, []byte(e.modelName(req.Model))), ids), size) // engines of one model return equal vectors
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": v}
		if req.Encoding == "base64" {
			packed, _ := binary.Append(nil, binary.LittleEndian, v) // numbers of a fixed size
			data[i]["embedding"] = base64.StdEncoding.EncodeToString(packed)
		}
	}
	return e.writeRead(w, r, req.Input, req.Priority,
		map[string]any{"object": "list", "data": data, "model": e.modelName(req.Model)})
}

// writeRead reads the prompts and writes an answer with their tokens.
func (e *Engine) writeRead(w http.ResponseWriter, r *request, prompts [][]uint32, asked priority,
	body map[string]any) error {
	u, err := e.read(r, prompts, asked)
	if err != nil {
		return err
	}
	body["usage"] = map[string]any{"prompt_tokens": u.Prompt, "total_tokens": u.Prompt}
	return writeJSON(w, http.StatusOK, body)
}

// read takes the time of reading the prompts and generates no tokens.
func (e *Engine) read(r *request, prompts [][]uint32, asked priority) (Tokens, error) {
	for _, ids := range prompts {
		if len(ids) == 0 {
			return Tokens{}, badRequest("input", "an input is empty")
		}
		if err := e.checkPrompt(ids); err != nil {
			return Tokens{}, err
		}
	}
	p, err := e.newPlan(r, false, asked)
	if err != nil {
		return Tokens{}, err
	}
	p.prompts = prompts
	return e.generate(r.Context(), p, nowhere{})
}

// unit returns a vector of length 1 that the seed determines.
func unit(seed uint64, size int) []float32 {
	d := rng{seed}
	v := make([]float32, size)
	sum := 0.0
	for i := range v {
		x := float64(d.roll(2001)-1000) + 0.5 // never 0, because the length is a divisor
		v[i] = float32(x)
		sum += x * x
	}
	length := float32(math.Sqrt(sum))
	for i := range v {
		v[i] /= length
	}
	return v
}
