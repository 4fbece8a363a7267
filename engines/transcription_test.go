package engines

import (
	"bytes"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"
)

// transcribe sends two seconds of sound with further fields, each name=value.
func transcribe(t *testing.T, e *Engine, path string, fields ...string) (int, string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "speech.wav")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(make([]byte, 64000)); err != nil {
		t.Fatal(err)
	}
	for _, field := range append(fields, "model=m") {
		name, value, _ := strings.Cut(field, "=")
		if err := form.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", path, &body)
	r.Header.Set("Content-Type", form.FormDataContentType())
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	transcriptions = "/v1/audio/transcriptions"
	heard          = "The file speech.wav holds 64000 bytes."
)

func TestTranscriptionsReportTheirUsage(t *testing.T) {
	e := New(Config{Model: "m"})
	_, body := transcribe(t, e, transcriptions, "prompt=Names: Ann")
	usage := at(t, object(t, body), "usage")
	details := at(t, usage, "input_token_details")
	if text(t, object(t, body), "text") != heard || text(t, usage, "type") != "tokens" ||
		number(t, details, "audio_tokens") != 20 || number(t, details, "text_tokens") != 3 ||
		number(t, usage, "input_tokens") != 23 ||
		number(t, usage, "output_tokens") != 10 || number(t, usage, "total_tokens") != 33 {
		t.Errorf("transcription: %s", body)
	}
	if w := e.Stats().Written; w.Prompt != 23 || w.Output != 10 {
		t.Errorf("the engine counts %+v", w)
	}
	_, body = transcribe(t, e, transcriptions, "include[]=logprobs")
	tokens := ""
	for i := range at(t, object(t, body), "logprobs").([]any) {
		tokens += text(t, object(t, body), "logprobs", i, "token")
	}
	if tokens != heard {
		t.Errorf("log probabilities: %s", body)
	}
}

func TestTranscriptionsComeInEveryFormat(t *testing.T) {
	e := New(Config{Model: "m"})
	for format, want := range map[string]string{
		"text": heard + "\n",
		"srt":  "1\n00:00:00,000 --> 00:00:02,000\n" + heard + "\n\n",
		"vtt":  "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\n" + heard + "\n\n",
	} {
		if status, body := transcribe(t, e, transcriptions, "response_format="+format); status != 200 || body != want {
			t.Errorf("%s: %d %q", format, status, body)
		}
	}
	_, body := transcribe(t, e, transcriptions, "response_format=verbose_json", "timestamp_granularities[]=word",
		"timestamp_granularities[]=segment")
	o := object(t, body)
	if text(t, o, "task") != "transcribe" || text(t, o, "language") != "english" || o["duration"] != 2.0 ||
		text(t, o, "text") != heard ||
		text(t, o, "usage", "type") != "duration" || number(t, o, "usage", "seconds") != 2 {
		t.Errorf("verbose: %s", body)
	}
	if s := at(t, o, "segments", 0).(map[string]any); s["text"] != heard || s["start"] != 0.0 || s["end"] != 2.0 ||
		len(s["tokens"].([]any)) != 10 {
		t.Errorf("segments: %v", o["segments"])
	}
	if words := at(t, o, "words").([]any); len(words) != 6 || text(t, words, 2, "word") != "speech.wav" ||
		words[5].(map[string]any)["end"] != 2.0 {
		t.Errorf("words: %v", o["words"])
	}
	_, body = transcribe(t, e, "/v1/audio/translations", "response_format=verbose_json")
	if o := object(t, body); text(t, o, "text") != heard || o["words"] != nil {
		t.Errorf("translation: %s", body)
	}
	if status, body := transcribe(t, e, transcriptions, "response_format=mp3"); status != 400 {
		t.Errorf("an unknown format: %d %s", status, body)
	}
}

func TestTranscriptionsStream(t *testing.T) {
	e := New(Config{Model: "m"})
	status, body := transcribe(t, e, transcriptions, "stream=true", "include[]=logprobs")
	said, deltas := "", 0
	events := readEvents(t, body)
	for i, ev := range events {
		o := object(t, ev.data)
		if ev.name != o["type"] {
			t.Errorf("the event %q says %s", ev.name, ev.data)
		}
		if i < len(events)-1 {
			if said, deltas = said+text(t, o, "delta"), deltas+1; text(t, o, "type") != "transcript.text.delta" ||
				text(t, o, "logprobs", 0, "token") != text(t, o, "delta") {
				t.Errorf("event %d: %s", i, ev.data)
			}
			continue
		}
		if text(t, o, "type") != "transcript.text.done" || text(t, o, "text") != heard ||
			len(at(t, o, "logprobs").([]any)) != deltas ||
			number(t, o, "usage", "output_tokens") != deltas ||
			number(t, o, "usage", "input_token_details", "audio_tokens") != 20 {
			t.Errorf("the end: %s", ev.data)
		}
	}
	if status != 200 || said != heard || deltas < 2 {
		t.Errorf("%d, heard %q", status, said)
	}
	if w := e.Stats().Written; w.Output != int64(deltas) {
		t.Errorf("the engine counts %+v", w)
	}
	if _, plain := transcribe(t, e, transcriptions, "stream=true"); strings.Contains(plain, "logprobs") {
		t.Errorf("log probabilities were not requested: %s", plain)
	}
}
