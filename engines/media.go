package engines

import (
	"bytes"
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
		Model        string `json:"model"`
		Input        string `json:"input"`
		Format       string `json:"response_format"`
		StreamFormat string `json:"stream_format"`
	}
	if err := e.parse(r, &req, &req.Model); err != nil {
		return err
	}
	ids := appendIDs(nil, req.Input)
	if req.StreamFormat == "sse" {
		s := &speech{sse: &sse{w: w}, rng: rng{hashIDs(e.c.Seed, ids)}}
		return e.writeMedia(w, r, "input", ids, []*answer{{pieces: pieces(req.Input), finish: finishStop}}, true, s)
	}
	if _, err := e.read(r, [][]uint32{ids}, priority{}); err != nil {
		return err
	}
	d := rng{hashIDs(e.c.Seed, ids)}
	return writeBytes(w, http.StatusOK, audioTypes[req.Format], d.sound(len(ids)))
}

// sound returns the sound of n tokens.
func (d *rng) sound(n int) []byte {
	sound := make([]byte, speechBytes*n)
	for i := range sound {
		sound[i] = byte(d.roll(256))
	}
	return sound
}

// writeMedia executes the plan of an answer that is no text. field has the prompt.
func (e *Engine) writeMedia(w http.ResponseWriter, r *request, field string, ids []uint32, answers []*answer,
	stream bool, to reply) error {
	if len(ids) == 0 {
		return badRequest(field, "the field %s is missing or empty", field)
	}
	if err := e.checkPrompt(ids); err != nil {
		return err
	}
	p, err := e.newPlan(r, stream, priority{})
	if err != nil {
		return err
	}
	p.prompts, p.answers = [][]uint32{ids}, answers
	return e.write(r.Context(), w, p, to)
}

// speech is a stream of sound, one token per event.
type speech struct {
	nowhere
	*sse
	rng rng
}

func (s *speech) token(_, _ int, piece string) error {
	sound := s.rng.sound(len(pieces(piece)))
	return s.event("speech.audio.delta", map[string]any{"type": "speech.audio.delta", "audio": sound})
}

func (s *speech) last(u Tokens) error {
	return s.event("speech.audio.done", map[string]any{"type": "speech.audio.done", "usage": mediaUsage(u)})
}

// whole is not called: speech that is not streamed is no JSON.
func (s *speech) whole(Tokens) any { return nil }

func mediaUsage(u Tokens) map[string]any {
	return map[string]any{"input_tokens": u.Prompt, "output_tokens": u.Output, "total_tokens": u.Prompt + u.Output}
}
