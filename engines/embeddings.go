package engines

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"

	"tierway/routing"
)

// The size of a vector that asks for no other, as of small sentence encoders, and
// the largest that is made.
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
		v := unit(hashIDs(seedOf(e.modelName(req.Model)), ids), size) // engines of one model agree
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": v}
		if req.Encoding == "base64" {
			data[i]["embedding"] = packed(v)
		}
	}
	return e.writeRead(w, r, req.Input, req.Priority,
		map[string]any{"object": "list", "data": data, "model": e.modelName(req.Model)})
}

// writeRead reads the prompts and writes an answer that reports their tokens.
func (e *Engine) writeRead(w http.ResponseWriter, r *request, prompts [][]uint32, asked priority, body map[string]any) error {
	u, err := e.read(r, prompts, asked)
	if err != nil {
		return err
	}
	body["usage"] = map[string]any{"prompt_tokens": u.prompt, "total_tokens": u.prompt}
	return e.writeWhole(w, u, body)
}

// read takes the time that reading the prompts takes and makes no tokens.
func (e *Engine) read(r *request, prompts [][]uint32, asked priority) (usage, error) {
	for _, ids := range prompts {
		if len(ids) == 0 {
			return usage{}, badRequest("input", "an input is empty")
		}
		if err := e.checkPrompt(ids); err != nil {
			return usage{}, err
		}
	}
	p, err := e.newPlan(r, false, asked)
	if err != nil {
		return usage{}, err
	}
	p.prompts = prompts
	return e.generate(r.Context(), p, nowhere{})
}

// unit makes a vector of length 1 that the seed determines.
func unit(seed uint64, size int) []float32 {
	d := dice{seed}
	v := make([]float32, size)
	sum := 0.0
	for i := range v {
		x := float64(d.roll(2001)-1000) + 0.5 // never 0: the length divides
		v[i] = float32(x)
		sum += x * x
	}
	length := float32(math.Sqrt(sum))
	for i := range v {
		v[i] /= length
	}
	return v
}

// packed is OpenAI's base64 form: little-endian 32-bit floats.
func packed(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

// seedOf makes a seed of a model's name.
func seedOf(model string) uint64 {
	var seed uint64
	for _, c := range []byte(model) {
		seed = routing.Draw(seed ^ uint64(c))
	}
	return seed
}
