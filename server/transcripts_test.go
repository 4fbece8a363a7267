package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"tierway/engines"
	"tierway/engines/chaos"
	"tierway/server/intake"
)

// transcript is one request. Its exchange is recorded under testdata.
type transcript struct {
	name        string
	route       string // method and path of the route table
	path        string // as requested; "" is /v1 and the route's path
	body        string
	contentType string
	first       string // body of an earlier request; the ID of its response replaces :id
}

const form = "--b\r\nContent-Disposition: form-data; " +
	"name=\"model\"\r\n\r\ngpt-4o-mini\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; " +
	"filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\x00\x01\r\n--b--\r\n"

// imageForm is form with the fields that an engine needs for images.
func imageForm() string {
	return strings.Replace(strings.Replace(form, `"file"`, `"image"`, 1),
		"--b\r\n", "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na cat\r\n--b\r\n", 1)
}

func transcripts() []transcript {
	multipart := "multipart/form-data; boundary=b"
	return []transcript{
		{name: "chat", route: "POST /chat/completions",
			body: `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}],"max_tokens":4, "x_unknown": 1.50}`},
		{name: "chat-stream", route: "POST /chat/completions",
			body: `{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":3}`},
		{name: "chat-stream-usage", route: "POST /chat/completions",
			body: `{"model":"small","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}],"max_tokens":3}`},
		{name: "chat-no-v1", route: "POST /chat/completions", path: "/chat/completions",
			body: `{"model":"auto","messages":[{"role":"user","content":"hi"}],"max_tokens":2}`},
		{name: "chat-batch", route: "POST /chat/completions", path: "/batch/v1/chat/completions",
			body: `{"model":"fake-7b","messages":[{"role":"user","content":"hi"}],"max_tokens":2}`},
		{name: "completions", route: "POST /completions", body: `{"model":"small","prompt":"Once","max_tokens":4}`},
		{name: "completions-stream", route: "POST /completions",
			body: `{"model":"small","prompt":"Once","max_tokens":3,"stream":true}`},
		{name: "responses", route: "POST /responses", body: `{"model":"small","input":"hi","max_output_tokens":3}`},
		{name: "responses-stream", route: "POST /responses",
			body: `{"model":"small","input":"hi","max_output_tokens":3,"stream":true}`},
		{name: "responses-input-tokens", route: "POST /responses/input_tokens", body: `{"model":"gpt-4o-mini","input":"hi"}`},
		{name: "responses-compact", route: "POST /responses/compact", body: `{"model":"gpt-4o-mini","input":"hi"}`},
		{name: "responses-input-items", route: "GET /responses/:id/input_items",
			first: `{"model":"small","input":"hi","max_output_tokens":3}`},
		{name: "responses-get", route: "GET /responses/:id", first: `{"model":"small","input":"hi","max_output_tokens":3}`},
		{name: "responses-delete", route: "DELETE /responses/:id",
			first: `{"model":"small","input":"hi","max_output_tokens":3}`},
		{name: "responses-cancel", route: "POST /responses/:id/cancel",
			first: `{"model":"small","input":"hi","max_output_tokens":3,"background":true,"store":true}`},
		{name: "messages", route: "POST /messages",
			body: `{"model":"small","max_tokens":3,"messages":[{"role":"user","content":"hi"}]}`},
		{name: "messages-stream", route: "POST /messages",
			body: `{"model":"small","max_tokens":3,"stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		{name: "messages-count", route: "POST /messages/count_tokens",
			body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`},
		{name: "embeddings", route: "POST /embeddings", body: `{"model":"small","input":["a","b"],"dimensions":2}`},
		{name: "rerank", route: "POST /rerank", body: `{"model":"small","query":"a","documents":["b","c"]}`},
		{name: "rerank-v2", route: "POST /v2/rerank", path: "/v2/rerank",
			body: `{"model":"small","query":"a","documents":["b","c"]}`},
		{name: "pooling", route: "POST /pooling", path: "/pooling", body: `{"model":"small","input":"a","dimensions":2}`},
		{name: "classify", route: "POST /classify", path: "/classify", body: `{"model":"small","input":["a","b"]}`},
		{name: "detokenize", route: "POST /detokenize", path: "/detokenize", body: `{"model":"small","tokens":[1,2]}`},
		{name: "score", route: "POST /score", body: `{"model":"small","text_1":"a","text_2":"b"}`},
		{name: "tokenize", route: "POST /tokenize", body: `{"model":"small","prompt":"hello"}`},
		{name: "moderations", route: "POST /moderations", body: `{"model":"small","input":"hello"}`},
		{name: "transcriptions", route: "POST /audio/transcriptions", body: form, contentType: multipart},
		{name: "translations", route: "POST /audio/translations", body: form, contentType: multipart},
		{name: "speech", route: "POST /audio/speech", body: `{"model":"small","input":"hi","voice":"a"}`},
		{name: "speech-stream", route: "POST /audio/speech",
			body: `{"model":"small","input":"hi","voice":"a","stream_format":"sse"}`},
		{name: "images-stream", route: "POST /images/generations",
			body: `{"model":"small","prompt":"a cat","stream":true,"partial_images":1}`},
		{name: "images", route: "POST /images/generations", body: `{"model":"small","prompt":"a cat","size":"1x1"}`},
		{name: "images-edit", route: "POST /images/edits", body: imageForm(), contentType: multipart},
		{name: "images-variation", route: "POST /images/variations", body: imageForm(), contentType: multipart},
		{name: "feedback", route: "POST /feedback", body: `{"id":"r1","ok":true}`}, // without learning.directory
		{name: "models", route: "GET /models"},
		{name: "model", route: "GET /models/*id", path: "/v1/models/gpt-4o-mini"},
	}
}

// streamedRoutes are the routes that need a streamed transcript too.
var streamedRoutes = []string{"POST /chat/completions", "POST /completions", "POST /responses", "POST /messages"}

func TestEveryRouteHasATranscript(t *testing.T) {
	whole, stream := map[string]bool{}, map[string]bool{}
	for _, c := range transcripts() {
		if strings.Contains(c.body, `"stream":true`) {
			stream[c.route] = true
		} else {
			whole[c.route] = true
		}
	}
	for _, rt := range intake.Routes() {
		name := rt.Method + " " + rt.Path
		if !whole[name] {
			t.Errorf("%s has no transcript", name)
		}
		if slices.Contains(streamedRoutes, name) && !stream[name] {
			t.Errorf("%s has no streamed transcript", name)
		}
	}
}

// transcriptEngine is a fakeEngine that runs background responses until they are cancelled.
func transcriptEngine() *engines.Engine {
	c := fakeEngine().Config()
	c.Script = func(_ string, body []byte) engines.Script {
		if bytes.Contains(body, []byte(`"background":true`)) {
			return engines.Script{HoldAfter: 1}
		}
		return engines.Script{}
	}
	return engines.New(c)
}

func TestTranscripts(t *testing.T) {
	for _, c := range transcripts() {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := transcriptEngine()
				t.Cleanup(engine.Close)
				recorder := chaos.Record(engine)
				got := c.run(newRig(t, plain, recorder), recorder)
				file := filepath.Join("testdata", "golden", c.name+".txt")
				if os.Getenv("UPDATE_GOLDEN") == "1" {
					if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatalf("%v (UPDATE_GOLDEN=1 writes it)", err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("%s has changed (UPDATE_GOLDEN=1 accepts it):\n%s", file, diff)
				}
			})
		})
	}
}

// run makes the exchange and returns what client and engine have sent and received.
func (c transcript) run(r *rig, engine *chaos.Recorder) string {
	method, path, _ := strings.Cut(c.route, " ")
	path = "/v1" + path
	if c.path != "" {
		path = c.path
	}
	if c.first != "" {
		id := idPattern.FindString(r.post("/v1/responses", c.first).body)
		path = strings.Replace(path, ":id", id, 1)
	}
	headers := []string{"Authorization", "Bearer secret", "Cookie", "a=b", "X-Request-Id",
		"6f8f57e0-7ab1-4c11-9e1c-1f0d2c3b4a59"}
	if c.contentType != "" {
		headers = append(headers, "Content-Type", c.contentType)
	}
	before := len(engine.Requests())
	a := r.do(method, path, c.body, headers...)
	var b strings.Builder
	fmt.Fprintf(&b, "> %s %s\n%s\n", method, path, c.body)
	for _, sent := range engine.Requests()[before:] {
		fmt.Fprintf(&b, "\n>> %s %s\n%s\n%s\n", sent.Method, sent.URL, headerText(sent.Header), sent.Body)
	}
	fmt.Fprintf(&b, "\n< %d\n%s\n%s", a.status, headerText(a.header), a.body)
	return scrub(b.String())
}

// headerText is a header in a stable order, without the fields that differ on each run.
func headerText(h http.Header) string {
	var lines []string
	for k, v := range h {
		switch k {
		case "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy", // of every answer
			"Date", "Openai-Processing-Ms", "X-Request-Duration", "Content-Length", "Via":
			continue
		}
		lines = append(lines, k+": "+strings.Join(v, ", "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

var (
	idPattern   = regexp.MustCompile(`(chatcmpl|cmpl|resp|msg|rs|fc|call|embd|rerank|score|pool|classify|modr|item|req)[-_][0-9a-f]{8,}`)
	portPattern = regexp.MustCompile(`127\.0\.0\.1:\d+`)
)

// scrub replaces IDs and ports, which differ on each run.
func scrub(s string) string {
	return portPattern.ReplaceAllString(idPattern.ReplaceAllString(s, "$1-ID"), "127.0.0.1:PORT")
}
