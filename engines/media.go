package engines

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
)

// form parses a multipart body with the named file and checks its model.
func (e *Engine) form(r *request, file string) (*multipart.FileHeader, error) {
	r.Body = io.NopCloser(bytes.NewReader(r.body))
	if err := r.ParseMultipartForm(MaxBody); err != nil {
		return nil, badRequest(file, "the body is no multipart form: %v", err)
	}
	if err := e.checkModel(r.FormValue("model")); err != nil {
		return nil, err
	}
	for _, name := range []string{file, file + "[]"} { // SDKs send lists of images with brackets
		if files := r.MultipartForm.File[name]; len(files) > 0 {
			return files[0], nil
		}
	}
	return nil, badRequest(file, "the form has no file %q", file)
}

// audioTypes are the media types of speech; immutable.
var audioTypes = map[string]string{"": "audio/mpeg", "mp3": "audio/mpeg", "opus": "audio/ogg", "aac": "audio/aac",
	"flac": "audio/flac", "wav": "audio/wav", "pcm": "audio/pcm"}

// speechBytes is the size of one spoken token: large enough that a long text takes several reads.
const speechBytes = 512

// speak serves POST /v1/audio/speech with bytes that the text determines.
func (e *Engine) speak(w http.ResponseWriter, r *request) error {
	var req struct {
		Model  string `json:"model"`
		Input  string `json:"input"`
		Format string `json:"response_format"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	ids := appendIDs(nil, req.Input)
	if _, err := e.read(r, [][]uint32{ids}, priority{}); err != nil {
		return err
	}
	sound := make([]byte, speechBytes*len(ids))
	d := dice{hashIDs(e.c.Seed, ids)}
	for i := range sound {
		sound[i] = byte(d.roll(256))
	}
	return writeBytes(w, http.StatusOK, audioTypes[req.Format], sound)
}

// draw serves POST /v1/images/generations.
func (e *Engine) draw(w http.ResponseWriter, r *request) error {
	var req struct {
		Model  string `json:"model"`
		Prompt string `json:"prompt"`
		N      *int   `json:"n"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	n := 1
	if req.N != nil {
		n = *req.N
	}
	return e.images(w, r, req.Prompt, n)
}

// editImage serves POST /v1/images/edits.
func (e *Engine) editImage(w http.ResponseWriter, r *request) error {
	if _, err := e.form(r, "image"); err != nil {
		return err
	}
	return e.images(w, r, r.FormValue("prompt"), 1)
}

// images writes one-pixel pictures whose colour the prompt determines.
func (e *Engine) images(w http.ResponseWriter, r *request, prompt string, n int) error {
	if prompt == "" {
		return badRequest("prompt", "the field prompt is missing or empty")
	}
	if n < 1 || n > 10 { // OpenAI's bound
		return badRequest("n", "n must be 1 to 10, not %d", n)
	}
	ids := appendIDs(nil, prompt)
	u, err := e.read(r, [][]uint32{ids}, priority{})
	if err != nil {
		return err
	}
	data := make([]map[string]any, n)
	for i := range data {
		picture, err := pixel(hashIDs(e.c.Seed+uint64(i), ids))
		if err != nil {
			return err
		}
		data[i] = map[string]any{"b64_json": base64.StdEncoding.EncodeToString(picture)}
	}
	return writeJSON(w, http.StatusOK, map[string]any{"created": e.c.Clock().Unix(), "data": data,
		"usage": map[string]any{"input_tokens": u.Prompt, "output_tokens": 0, "total_tokens": u.Prompt}})
}

func pixel(seed uint64) ([]byte, error) {
	img := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	img.SetNRGBA(0, 0, color.NRGBA{R: byte(seed), G: byte(seed >> 8), B: byte(seed >> 16), A: 255})
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, fmt.Errorf("encoding a picture: %w", err)
	}
	return b.Bytes(), nil
}
