package engines

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
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
