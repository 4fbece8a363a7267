package engines

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"strconv"
)

// pictureRequest is a request for pictures.
type pictureRequest struct {
	Model      string `json:"model"`
	Prompt     string `json:"prompt"`
	N          *int   `json:"n"`
	Stream     bool   `json:"stream"`
	Partial    *int   `json:"partial_images"` // unfinished versions of each picture, in a stream
	Size       string `json:"size"`
	Quality    string `json:"quality"`
	Background string `json:"background"`
	Format     string `json:"response_format"` // b64_json or url, as older models have it
}

// The bounds of OpenAI.
const (
	mostPictures = 10
	mostPartial  = 3
)

// draw serves POST /v1/images/generations.
func (e *Engine) draw(w http.ResponseWriter, r *request) error {
	var req pictureRequest
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	return e.drawPictures(w, r, "image_generation", &req)
}

// editImage serves POST /v1/images/edits.
func (e *Engine) editImage(w http.ResponseWriter, r *request) error {
	if _, err := e.form(r, "image"); err != nil {
		return err
	}
	req := pictureRequest{Prompt: r.FormValue("prompt"), Stream: r.FormValue("stream") == "true",
		Size: r.FormValue("size"), Quality: r.FormValue("quality"), Background: r.FormValue("background"),
		Format: r.FormValue("response_format")}
	for field, into := range map[string]**int{"n": &req.N, "partial_images": &req.Partial} {
		text := r.FormValue(field)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return badRequest(field, "%s must be a whole number, not %q", field, text)
		}
		*into = &n
	}
	return e.drawPictures(w, r, "image_edit", &req)
}

// drawPictures writes one-pixel pictures whose colour the prompt determines. Each version of a picture
// takes the time of a token.
func (e *Engine) drawPictures(w http.ResponseWriter, r *request, kind string, req *pictureRequest) error {
	n, versions := 1, 1
	if req.N != nil {
		n = *req.N
	}
	if req.Partial != nil {
		versions += *req.Partial
	}
	switch {
	case n < 1 || n > mostPictures:
		return badRequest("n", "n must be 1 to %d, not %d", mostPictures, n)
	case req.Format != "" && req.Format != "b64_json" && req.Format != "url":
		return badRequest("response_format", "response_format %q is not one of b64_json, url", req.Format)
	case versions < 1 || versions > mostPartial+1:
		return badRequest("partial_images", "partial_images must be 0 to %d, not %d", mostPartial, versions-1)
	case !req.Stream:
		versions = 1
	}
	ids := appendIDs(nil, req.Prompt)
	p := &pictures{sse: &sse{w: w}, kind: kind, created: e.c.Clock().Unix(), req: req, versions: versions}
	answers := make([]*answer, n)
	for i := range answers {
		answers[i] = &answer{pieces: make([]string, versions), finish: finishStop}
		picture, err := pixel(hashIDs(e.c.Seed+uint64(i), ids))
		if err != nil {
			return err
		}
		p.drawn = append(p.drawn, picture)
	}
	return e.writeMedia(w, r, "prompt", ids, answers, req.Stream, p)
}

// pictures is an answer with pictures. A stream has an event for each version of each picture.
type pictures struct {
	*sse
	kind     string
	created  int64
	req      *pictureRequest
	drawn    [][]byte
	versions int   // of each picture; the last one is complete
	prompt   int64 // tokens
}

func (p *pictures) whole(u Tokens) any {
	data := make([]map[string]any, len(p.drawn))
	for i, picture := range p.drawn {
		data[i] = map[string]any{"b64_json": picture}
		if p.req.Format == "url" {
			data[i] = map[string]any{"url": "data:image/png;base64," + base64.StdEncoding.EncodeToString(picture)}
		}
	}
	return map[string]any{"created": p.created, "data": data, "usage": mediaUsage(u)}
}

func (p *pictures) begin(u Tokens) error {
	p.prompt = u.Prompt
	return nil
}

// token sends an unfinished version, which looks like the complete one.
func (p *pictures) token(i, step int, _ string) error {
	if step == p.versions-1 {
		return nil
	}
	return p.send(i, "partial_image", map[string]any{"partial_image_index": step})
}

func (p *pictures) end(i int, _ string) error {
	return p.send(i, "completed", map[string]any{"usage": mediaUsage(Tokens{Prompt: p.prompt, Output: int64(p.versions)})})
}

func (p *pictures) last(Tokens) error { return nil }

func (p *pictures) send(i int, name string, fields map[string]any) error {
	fields["type"], fields["created_at"], fields["b64_json"] = p.kind+"."+name, p.created, p.drawn[i]
	fields["size"], fields["quality"] = cmp.Or(p.req.Size, "auto"), cmp.Or(p.req.Quality, "auto")
	fields["background"], fields["output_format"] = cmp.Or(p.req.Background, "auto"), "png"
	return p.event(p.kind+"."+name, fields)
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
