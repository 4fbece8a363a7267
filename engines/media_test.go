package engines

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEmbeddingsAreUnitVectors(t *testing.T) {
	e := New(Config{Model: "m"})
	got := ask(t, e, "/v1/embeddings", `{"model":"m","input":["same","other","same"],"dimensions":64}`)
	vector := func(i int) []any { return at(t, got, "data", i, "embedding").([]any) }
	sum, dot := 0.0, 0.0
	for i, x := range vector(0) {
		sum += x.(float64) * x.(float64)
		dot += x.(float64) * vector(1)[i].(float64)
		if x != vector(2)[i] {
			t.Fatal("equal inputs have different vectors")
		}
	}
	if math.Abs(sum-1) > 1e-5 || math.Abs(dot) > 0.9 || len(vector(0)) != 64 {
		t.Errorf("length² %v, likeness of different inputs %v, %d dimensions", sum, dot, len(vector(0)))
	}
	if number(t, got, "usage", "prompt_tokens") != 1+2+1 {
		t.Errorf("usage %v", got["usage"])
	}
	packed := ask(t, e, "/v1/embeddings", `{"model":"m","input":"same","dimensions":64,"encoding_format":"base64"}`)
	b, err := base64.StdEncoding.DecodeString(text(t, packed, "data", 0, "embedding"))
	if err != nil || len(b) != 4*64 {
		t.Fatalf("base64 of %d bytes, %v", len(b), err)
	}
	if first := math.Float32frombits(binary.LittleEndian.Uint32(b)); math.Abs(float64(first)-
		vector(0)[0].(float64)) > 1e-6 {
		t.Errorf("base64 begins with %v, floats with %v", first, vector(0)[0])
	}
	ids := ask(t, e, "/v1/embeddings", `{"model":"m","input":[[1,2,3],[4]]}`)
	if number(t, ids, "usage", "total_tokens") != 4 || len(at(t, ids, "data", 1, "embedding").([]any)) != usualDimensions {
		t.Errorf("token ids: %v", ids["usage"])
	}
}

func TestRerankAndScorePreferWhatMatches(t *testing.T) {
	e := New(Config{Model: "m"})
	got := ask(t, e, "/v1/rerank",
		`{"model":"m","query":"red apple","documents":["blue sky","a red apple","red car"],"top_n":2}`)
	if len(got["results"].([]any)) != 2 || number(t, got, "results", 0, "index") != 1 ||
		number(t, got, "results", 1, "index") != 2 || text(t, got, "results", 0, "document", "text") != "a red apple" {
		t.Errorf("reranked to %v", got["results"])
	}
	scores := ask(t, e, "/v1/score", `{"model":"m","text_1":"red apple","text_2":["blue sky","a red apple"]}`)
	if at(t, scores, "data", 0, "score").(float64) >= at(t, scores, "data", 1, "score").(float64) {
		t.Errorf("scores %v", scores["data"])
	}
	flags := ask(t, e, "/v1/moderations", `{"input":["what a day","I will kill it"]}`)
	if at(t, flags, "results", 0, "flagged") != false || at(t, flags, "results", 1, "categories", "violence") != true {
		t.Errorf("moderations %v", flags["results"])
	}
	flags = ask(t, e, "/v1/moderations", `{"input":[{"type":"text","text":"I will kill it"},`+
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,eA=="}}]}`)
	if len(flags["results"].([]any)) != 1 || at(t, flags, "results", 0, "flagged") != true {
		t.Errorf("moderations of parts %v", flags["results"])
	}
}

func TestTokenizeCountsWhatUsageCounts(t *testing.T) {
	e := New(Config{Model: "m", Context: 4096})
	tokens := ask(t, e, "/tokenize", `{"model":"m",`+hello+`}`)
	chat := ask(t, e, "/v1/chat/completions", `{"model":"m",`+hello+`}`)
	if number(t, tokens, "count") != number(t, chat, "usage", "prompt_tokens") ||
		len(tokens["tokens"].([]any)) != number(t, tokens, "count") || number(t, tokens, "max_model_len") != 4096 {
		t.Errorf("tokenize says %v, usage %v", tokens["count"], chat["usage"])
	}
	if got := ask(t, e, "/tokenize", `{"prompt":"abcdé"}`); number(t, got, "count") != 2 {
		t.Errorf("a text of six bytes: %v", got)
	}
}

func TestMediaAnswers(t *testing.T) {
	e := New(Config{Model: "m"})
	form := func(path, fields string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", path,
			strings.NewReader(strings.ReplaceAll(fields, "\n", "\r\n")))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=B")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	field := func(name, value string) string {
		return "--B\nContent-Disposition: form-data; name=\"" + name + "\"\n\n" + value + "\n"
	}
	file := func(name string) string {
		return "--B\nContent-Disposition: form-data; name=\"" + name +
			"\"; filename=\"a.wav\"\nContent-Type: audio/wav\n\n0123456789\n--B--\n"
	}
	if status, body := form("/v1/audio/transcriptions", field("model", "m")+file("file")); status != 200 ||
		text(t, object(t, body), "text") != "The file a.wav holds 10 bytes." {
		t.Errorf("transcription: %d %s", status, body)
	}
	if status, body := form("/v1/audio/transcriptions", field("model", "m")+field("response_format", "text")+
		file("file")); status != 200 || body != "The file a.wav holds 10 bytes.\n" {
		t.Errorf("transcription as text: %d %q", status, body)
	}
	if status, body := form("/v1/audio/translations", field("model", "other")+file("file")); status != 404 {
		t.Errorf("another model: %d %s", status, body)
	}
	if status, body := form("/v1/audio/transcriptions", field("model", "m")+"--B--\n"); status != 400 {
		t.Errorf("no file: %d %s", status, body)
	}
	picture := func(body string) string {
		b, err := base64.StdEncoding.DecodeString(text(t, object(t, body), "data", 0, "b64_json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if status, body := form("/v1/images/edits", field("model", "m")+field("prompt", "red")+file("image[]")); status !=
		200 || !strings.HasPrefix(picture(body), "\x89PNG") {
		t.Errorf("edit: %d %s", status, body)
	}
	if _, body := call(t, e, "POST", "/v1/images/generations",
		`{"model":"m","prompt":"red"}`); !strings.HasPrefix(picture(body), "\x89PNG") {
		t.Errorf("generation: %s", body)
	}
	if status, sound := call(t, e, "POST", "/v1/audio/speech",
		`{"model":"m","input":"abcdefgh","voice":"v","response_format":"wav"}`); status != 200 ||
		len(sound) != 2*speechBytes {
		t.Errorf("speech: %d, %d bytes", status, len(sound))
	}
}

// formOf is a multipart body of fields, with a file of ten bytes.
func formOf(file string, fields ...[2]string) (kind, body string) {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString("--B\r\nContent-Disposition: form-data; name=\"" + f[0] + "\"\r\n\r\n" + f[1] + "\r\n")
	}
	b.WriteString("--B\r\nContent-Disposition: form-data; name=\"" + file + "\"; filename=\"a.png\"\r\n\r\n")
	b.WriteString("0123456789\r\n--B--\r\n")
	return "multipart/form-data; boundary=B", b.String()
}

func TestPicturesAndSpeechStreamIfTheRequestIsForAStream(t *testing.T) {
	edit := func(fields ...[2]string) (kind, body string) {
		return formOf("image", append([][2]string{{"model", "m"}, {"prompt", "red"}, {"stream", "true"}}, fields...)...)
	}
	plain := func(body string) func() (kind, body string) {
		return func() (string, string) { return "application/json", body }
	}
	for _, row := range []struct {
		path   string
		body   func() (kind, body string)
		events []string
	}{
		{"/v1/images/generations", plain(`{"model":"m","prompt":"red","stream":true}`), []string{"image_generation.completed"}},
		{"/v1/images/generations", plain(`{"model":"m","prompt":"red","stream":true,"partial_images":2}`),
			[]string{"image_generation.partial_image", "image_generation.partial_image", "image_generation.completed"}},
		{"/v1/images/generations", plain(`{"model":"m","prompt":"red","stream":true,"n":2,"partial_images":1}`),
			[]string{"image_generation.partial_image", "image_generation.partial_image", "image_generation.completed",
				"image_generation.completed"}},
		{"/v1/images/edits", func() (string, string) { return edit() }, []string{"image_edit.completed"}},
		{"/v1/images/edits", func() (string, string) { return edit([2]string{"partial_images", "1"}) },
			[]string{"image_edit.partial_image", "image_edit.completed"}},
		{"/v1/audio/speech", plain(`{"model":"m","input":"abcdefgh","voice":"v","stream_format":"sse"}`),
			[]string{"speech.audio.delta", "speech.audio.delta", "speech.audio.done"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			kind, body := row.body()
			r := httptest.NewRequestWithContext(t.Context(), "POST", row.path, strings.NewReader(body))
			r.Header.Set("Content-Type", kind)
			w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
			New(Config{Model: "m", PerToken: time.Second}).ServeHTTP(w, r)
			if got := w.Header().Get("Content-Type"); w.Code != 200 || !strings.HasPrefix(got, "text/event-stream") {
				t.Fatalf("%s: %d of the type %s: %s", row.path, w.Code, got, w.Body)
			}
			var names []string
			var last map[string]any
			for _, event := range readEvents(t, w.Body.String()) {
				last = object(t, event.data)
				names = append(names, event.name)
				if event.name != last["type"] {
					t.Errorf("%s: the event %q is %s", row.path, event.name, event.data)
				}
			}
			if !slices.Equal(names, row.events) {
				t.Errorf("%s: the events %v, want %v", row.path, names, row.events)
			}
			if used := number(t, last, "usage", "input_tokens"); used == 0 || number(t, last, "usage", "total_tokens") < used {
				t.Errorf("%s: the usage is %v", row.path, last["usage"])
			}
			if took := w.at[len(w.at)-1].Sub(w.at[0]); len(names) > 1 && took < time.Second {
				t.Errorf("%s: the events come within %v", row.path, took)
			}
		})
	}
}

// timedWriter keeps the times at which an answer was flushed.
type timedWriter struct {
	*httptest.ResponseRecorder
	at []time.Time
}

func (w *timedWriter) Flush() { w.at = append(w.at, time.Now()) }

func TestAStreamedPictureIsTheWholeOne(t *testing.T) {
	e := New(Config{Model: "m"})
	whole := ask(t, e, "/v1/images/generations", `{"model":"m","prompt":"red","size":"512x512","output_format":"webp"}`)
	_, stream := call(t, e, "POST", "/v1/images/generations",
		`{"model":"m","prompt":"red","stream":true,"size":"512x512","quality":"low","background":"opaque"}`)
	_, data, _ := strings.Cut(stream, "data: ")
	event := object(t, strings.TrimSpace(data))
	if text(t, event, "b64_json") != text(t, whole, "data", 0, "b64_json") || text(t, event, "size") != "512x512" ||
		text(t, event, "quality") != "low" || text(t, event, "background") != "opaque" ||
		text(t, event, "output_format") != "png" || number(t, event, "created_at") == 0 {
		t.Errorf("the event %v of %v", event, whole)
	}
	linked := ask(t, e, "/v1/images/generations", `{"model":"m","prompt":"red","response_format":"url"}`)
	if got := text(t, linked, "data", 0, "url"); got != "data:image/png;base64,"+text(t, whole, "data", 0, "b64_json") {
		t.Errorf("the URL %q", got)
	}
	for _, body := range []string{`"response_format":"gif"`, `"partial_images":4,"stream":true`, `"partial_images":-1`, `"n":0,"stream":true`} {
		if status, answer := call(t, e, "POST", "/v1/images/generations", `{"model":"m","prompt":"red",`+body+`}`); status != 400 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	for _, n := range []string{"2", "11", "some"} {
		kind, body := formOf("image", [2]string{"model", "m"}, [2]string{"prompt", "red"}, [2]string{"n", n})
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/images/edits", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		if n == "2" && (w.Code != 200 || len(object(t, w.Body.String())["data"].([]any)) != 2) || n != "2" && w.Code != 400 {
			t.Errorf("n of %s: %d %s", n, w.Code, w.Body)
		}
	}
}
