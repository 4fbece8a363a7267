package server

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/breaker"
	"tierway/config"
)

const (
	wholeChat  = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":4,"completion_tokens":2}}`
	streamChat = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

// answerWith answers with a status, pairs of header names and values, and a body. With a negative
// status, the body never comes.
func answerWith(status int, body string, headers ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body) // a test's own worker
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		if status < 0 {
			w.WriteHeader(-status)
			w.(http.Flusher).Flush()
			<-q.Context().Done()
			return
		}
		w.WriteHeader(status)
		io.WriteString(w, body) // the gateway may have refused the rest
	})
}

// chatEngine answers chats as a whole or as a stream, as requested.
func chatEngine(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		kind, answer := "application/json", wholeChat
		if bytes.Contains(body, []byte(`"stream":true`)) {
			kind, answer = "text/event-stream", streamChat
		}
		w.Header().Set("Content-Type", kind)
		writeNow(t, w, answer)
	})
}

// gzipOfBlanks is the gzip of that many blanks.
func gzipOfBlanks(t *testing.T, blanks int) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range blanks >> 20 {
		if _, err := z.Write(bytes.Repeat([]byte(" "), 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAnAnswerInTheWrongFormIsRetried: a stream for a whole answer and an encoding that was not
// requested are failures. The status counts before the encoding. A whole answer for a stream is
// relayed, because some engines cannot stream everything.
func TestAnAnswerInTheWrongFormIsRetried(t *testing.T) {
	for _, c := range []struct {
		name, body string
		broken     http.Handler
		alone      int // the status without another worker
	}{
		{"a stream instead of a whole answer", hello, answerWith(200, streamChat, "Content-Type", "text/event-stream"), 502},
		{"an unknown encoding", hello, answerWith(200, wholeChat, "Content-Type", "application/json", "Content-Encoding",
			"br"), 502},
		{"a 500 with gzip that never comes", hello, answerWith(-500, "", "Content-Type", "application/json",
			"Content-Encoding",
			"gzip"), 502},
		{"a 429 of an unknown encoding", hello, answerWith(429, "x", "Content-Encoding", "br", "Retry-After", "7"), 429},
		{"an empty object", hello, answerWith(200, `{}`, "Content-Type", "application/json"), 502},
		{"a state", hello, answerWith(200, `{"status":"loading"}`, "Content-Type", "application/json"), 502},
		{"FastAPI's error", hello, answerWith(200, `{"detail":"Not Found"}`, "Content-Type", "application/json"), 502},
		{"an error's members", hello, answerWith(200, `{"message":"Service overloaded","type":"server_error","code":503}`,
			"Content-Type", "application/json"), 503},
		{"a gzip of 16 MiB of blanks", hello, answerWith(200, gzipOfBlanks(t, 16<<20), "Content-Type", "application/json",
			"Content-Encoding", "gzip"), 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alone := newRig(t, plain, c.broken)
				if a := alone.post("/v1/chat/completions", c.body); a.status != c.alone {
					t.Errorf("alone: %d %s, want %d", a.status, a.body, c.alone)
				}
				r := newRig(t, strings.Replace(plain, "tiers:", "policy: { name: round_robin }\ntiers:", 1), c.broken,
					chatEngine(t))
				for range 4 {
					if a := r.post("/v1/chat/completions", c.body); a.status != http.StatusOK {
						t.Errorf("beside a good worker: %d %s", a.status, a.body)
					}
				}
			})
		})
	}
}

// TestAnEngines400OfUnknownEncodingReachesTheClient: an error that the client caused blames no worker,
// whatever its encoding.
func TestAnEngines400OfUnknownEncodingReachesTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, answerWith(400, "x", "Content-Encoding", "br"))
		for range 8 {
			if a := r.post("/v1/chat/completions", hello); a.status != http.StatusBadRequest {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
	})
}

// TestALongEngineErrorKeepsItsMessage: some engines repeat the request in their errors.
func TestALongEngineErrorKeepsItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := `{"error":{"message":"bad field: ` + strings.Repeat("x", 100<<10) +
			`","type":"invalid_request_error","param":null,"code":"bad_field"}}`
		r := newRig(t, plain, answerWith(400, body, "Content-Type", "application/json"))
		if a := r.post("/v1/chat/completions", hello); a.status != http.StatusBadRequest ||
			!strings.Contains(a.body, "bad_field") {
			t.Errorf("%d %.200s", a.status, a.body)
		}
	})
}

// TestLongAnswersShareTheMemoryOfBodies: an answer or event above 1 MiB needs memory of
// max_buffered_bytes, or fails with 503. It frees the memory at its end.
func TestLongAnswersShareTheMemoryOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 3<<20)
		whole := strings.Replace(wholeChat, `"x"`, `"`+long+`"`, 1)
		stream := strings.Replace(streamChat, `"x"`, `"`+long+`"`, 1)
		for _, c := range []struct {
			name, body, kind, answer string
			limit                    int64
			status                   int
		}{
			{"a whole answer", hello, "application/json", whole, 64 << 20, 200},
			{"a whole answer without memory", hello, "application/json", whole, 4 << 20, 503},
			{"an event", `{"stream":true,"model":"small` + helloTo, "text/event-stream", stream, 64 << 20, 200},
			{"an event without memory", `{"stream":true,"model":"small` + helloTo, "text/event-stream", stream, 4 << 20, 503},
		} {
			r := newRig(t, plain, answerWith(200, c.answer, "Content-Type", c.kind))
			r.proxy.Configure(&config.File{MaxBufferedBytes: config.Size(c.limit)})
			for range 7 { // more failures than a breaker needs to open
				a := r.post("/v1/chat/completions", c.body)
				if a.status != c.status || c.status == 503 && !strings.Contains(a.body, "max_buffered_bytes") {
					t.Fatalf("%s: %d %.300s", c.name, a.status, a.body)
				}
			}
			waitUntil(t, "the end", func() bool { return r.proxy.BodyMemory().Used == 0 && r.Inflight() == 0 })
		}
	})
}

// TestAnAnswerInTheWrongFormBlamesNoWorker: the form shows what the engine supports, not its health.
// Another worker is tried first.
func TestAnAnswerInTheWrongFormBlamesNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			more   string
			engine http.Handler
		}{
			"a stream instead of a whole answer": {"", answerWith(200, streamChat, "Content-Type", "text/event-stream")},
		} {
			r := newRig(t, retryYAML, c.engine, c.engine)
			for i := range 20 {
				if a := r.post("/v1/chat/completions", chatBody("fake-7b", fmt.Sprint("Hi ", i), c.more)); a.status !=
					http.StatusBadGateway || !strings.Contains(a.body, `"worker_protocol"`) {
					t.Errorf("%s: %d %s", name, a.status, a.body)
				}
			}
			for _, w := range []string{"w0", "w1"} {
				if st := r.stateOf(w); st != breaker.Closed {
					t.Errorf("%s: %s is %v", name, w, st)
				}
			}
		}
	})
}
