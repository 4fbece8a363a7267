package engines

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The sound of a transcription counts as 16 kHz mono with 16 bits, whatever the file is, and costs
// ten tokens per second, as with OpenAI's models.
const (
	soundBytesPerSecond  = 32_000
	soundTokensPerSecond = 10
)

// transcription is one transcription or translation.
type transcription struct {
	nowhere
	*sse
	answer       *answer
	audio, typed int           // prompt tokens: of the sound, and of the text
	duration     time.Duration // of the sound
	words        bool          // word times were requested
	format       string
}

// transcribe serves POST /v1/audio/transcriptions and translations. The text is the file's name and
// size.
func (e *Engine) transcribe(w http.ResponseWriter, r *request) error {
	file, err := e.form(r, "file")
	if err != nil {
		return err
	}
	format := r.FormValue("response_format")
	if !slices.Contains([]string{"", "json", "text", "srt", "vtt", "verbose_json"}, format) {
		return badRequest("response_format", "response_format %q is not one of json, text, srt, vtt, verbose_json",
			format)
	}
	p, err := e.newPlan(r, r.FormValue("stream") == "true", priority{})
	if err != nil {
		return err
	}
	t := &transcription{sse: &sse{w: w}, format: format,
		duration: time.Duration(float64(file.Size) / soundBytesPerSecond * float64(time.Second)),
		words:    slices.Contains(r.MultipartForm.Value["timestamp_granularities[]"], "word")}
	prompt := t.prompt(hashIDs(uint64(file.Size), appendIDs(nil, file.Filename)), r.FormValue("prompt"))
	if err := e.checkPrompt(prompt); err != nil {
		return err
	}
	text := fmt.Sprintf("The file %s holds %d bytes.", file.Filename, file.Size)
	t.answer = &answer{pieces: pieces(text), finish: finishStop,
		seed: hashIDs(e.c.Seed, prompt), logprobs: slices.Contains(r.MultipartForm.Value["include[]"], "logprobs")}
	p.prompts, p.answers = [][]uint32{prompt}, []*answer{t.answer}
	return e.write(r.Context(), w, p, t)
}

// prompt returns the tokens of a sound, which its seed determines, and of the text that the client
// sent with it.
func (t *transcription) prompt(seed uint64, text string) []uint32 {
	t.audio = max(int(math.Ceil(t.duration.Seconds()*soundTokensPerSecond)), 1)
	ids := make([]uint32, t.audio)
	d := rng{seed}
	for i := range ids {
		ids[i] = uint32(d.roll(1<<30)) | 1<<16
	}
	ids = appendIDs(ids, text)
	t.typed = len(ids) - t.audio
	return ids
}

// usage returns the form of models that are billed by tokens.
func (t *transcription) usage(u Tokens) map[string]any {
	return map[string]any{"type": "tokens",
		"input_tokens": u.Prompt, "output_tokens": u.Output, "total_tokens": u.Prompt + u.Output,
		"input_token_details": map[string]any{"audio_tokens": t.audio, "text_tokens": t.typed}}
}

func (t *transcription) whole(u Tokens) any {
	text, end := t.answer.text(), t.duration
	switch t.format {
	case "verbose_json":
		return t.verbose()
	case "text":
		return text + "\n"
	case "srt":
		return fmt.Sprintf("1\n%s --> %s\n%s\n\n", stamp(0, ","), stamp(end, ","), text)
	case "vtt":
		return fmt.Sprintf("WEBVTT\n\n%s --> %s\n%s\n\n", stamp(0, "."), stamp(end, "."), text)
	}
	body := map[string]any{"text": text, "usage": t.usage(u)}
	if t.answer.logprobs {
		body["logprobs"] = t.logprobs(0, len(t.answer.pieces))
	}
	return body
}

// stamp formats a time for subtitles; formats differ in the character before the milliseconds.
func stamp(d time.Duration, point string) string {
	return time.Time{}.Add(d).Format("15:04:05" + point + "000")
}

// verbose returns the whole object with times; its usage is that of models that are billed by the
// minute.
func (t *transcription) verbose() map[string]any {
	text, seconds := t.answer.text(), t.duration.Seconds()
	body := map[string]any{"task": "transcribe", "language": "english", "duration": seconds, "text": text,
		"segments": []any{map[string]any{"id": 0, "seek": 0, "start": 0.0, "end": seconds,
			"text": text, "tokens": appendIDs(nil, text),
			"temperature": 0.0, "avg_logprob": -0.2, "compression_ratio": 1.1, "no_speech_prob": 0.01}},
		"usage": map[string]any{"type": "duration", "seconds": int(math.Ceil(seconds))}}
	if t.words {
		said := strings.Fields(text)
		words := make([]any, len(said))
		for i, word := range said { // spread evenly over the sound
			at := func(i int) float64 { return seconds * float64(i) / float64(len(said)) }
			words[i] = map[string]any{"word": word, "start": at(i), "end": at(i + 1)}
		}
		body["words"] = words
	}
	return body
}

// logprobs returns the log probabilities of the tokens from step to end, without alternatives.
func (t *transcription) logprobs(step, end int) []likelyToken {
	list := make([]likelyToken, 0, end-step)
	for ; step < end; step++ {
		list = append(list, t.answer.logprob(step).likelyToken)
	}
	return list
}

func (t *transcription) last(u Tokens) error {
	return t.event("transcript.text.done", 0, len(t.answer.pieces),
		map[string]any{"text": t.answer.text(), "usage": t.usage(u)})
}

// event sends an event about the tokens from step to end.
func (t *transcription) event(name string, step, end int, fields map[string]any) error {
	fields["type"] = name
	if t.answer.logprobs {
		fields["logprobs"] = t.logprobs(step, end)
	}
	return t.sse.event(name, fields)
}

func (t *transcription) token(_, step int, piece string) error {
	return t.event("transcript.text.delta", step, step+1, map[string]any{"delta": piece})
}
