package server

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts the requests of a handler.
func counted(n *atomic.Int64, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		n.Add(1)
		h.ServeHTTP(w, q)
	})
}

// retryPlain is plain with two attempts for each request.
var retryPlain = strings.Replace(plain, "auth:", "retry: { attempts: 2 }\nauth:", 1)

// gzipped is the gzip of a text.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestABodyIsReadByItsFormWhateverItsLabel: an event stream for a streamed request is relayed as a stream,
// and a JSON object as a whole answer. Neither is generated again.
func TestABodyIsReadByItsFormWhateverItsLabel(t *testing.T) {
	const messages = "/v1/messages"
	streamedMessage := strings.Replace(streamedHello, "{", `{"max_tokens":5,`, 1)
	wholeMessage := `{"id":"m","type":"message","role":"assistant","content":[],"stop_reason":"end_turn"}`
	forms := []struct{ name, path, body, answer, want, kind string }{
		{"a stream", "/v1/chat/completions", streamedHello, streamChat, streamChat, "text/event-stream"},
		{"a stream after a comment", "/v1/chat/completions", streamedHello, ": ok\n\n" + streamChat, streamChat,
			"text/event-stream"},
		{"a stream with a byte order mark", "/v1/chat/completions", streamedHello, "\xef\xbb\xbf" + streamChat, streamChat,
			"text/event-stream"},
		{"a stream after blank lines", "/v1/chat/completions", streamedHello, "\r\n\n" + streamChat, streamChat,
			"text/event-stream"},
		{"a stream with ids", "/v1/chat/completions", streamedHello, "id:1\n" + streamChat, "id:1\n" + streamChat,
			"text/event-stream"},
		{"a stream with a retry time", "/v1/chat/completions", streamedHello, "retry: 10\n\n" + streamChat, streamChat,
			"text/event-stream"},
		{"a stream without a space", "/v1/chat/completions", streamedHello, strings.ReplaceAll(streamChat, "data: ", "data:"),
			strings.ReplaceAll(streamChat, "data: ", "data:"), "text/event-stream"},
		{"a stream of a message", messages, streamedMessage, startEvent + textEvent + stopEvents,
			startEvent + textEvent + stopEvents, "text/event-stream"},
		{"a stream of a response", "/v1/responses", `{"model":"small","input":"x","stream":true}`,
			createdEvent + completedEvent, createdEvent + completedEvent, "text/event-stream"},
		{"a whole answer", "/v1/chat/completions", hello, wholeChat, wholeChat, "application/json"},
		{"a whole answer after blanks", "/v1/chat/completions", hello, "\n  " + wholeChat, "\n  " + wholeChat,
			"application/json"},
		{"a whole answer with a byte order mark", "/v1/chat/completions", hello, "\xef\xbb\xbf" + wholeChat, wholeChat,
			"application/json"},
		{"a whole answer for a stream", "/v1/chat/completions", streamedHello, wholeChat, wholeChat, "application/json"},
		{"a whole message", messages, hello, wholeMessage, wholeMessage, "application/json"},
		{"embeddings", "/v1/embeddings", `{"model":"small","input":"x"}`, `{"object":"list","data":[]}`,
			`{"object":"list","data":[]}`, "application/json"},
	}
	labels := []string{"text/event-stream", "Text/Event-Stream;charset=UTF-8", "application/json",
		"text/plain; charset=utf-8", "application/octet-stream", "text/html", "application/x-ndjson",
		"application/problem+json", "event-stream", ""}
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int64
				var label, packed sharedText
				engine := counted(&n, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					answer, headers := f.answer, []string{"Content-Type", label.get()}
					if packed.get() != "" {
						answer, headers = gzipped(t, f.answer), append(headers, "Content-Encoding", packed.get())
					}
					answerWith(200, answer, headers...).ServeHTTP(w, q)
				}))
				r := newRig(t, retryPlain, engine, engine)
				for _, l := range labels {
					for _, encoding := range []string{"", "gzip", "x-gzip"} {
						label.set(l)
						packed.set(encoding)
						n.Store(0)
						a := r.post(f.path, f.body)
						if a.status != 200 || a.body != f.want || a.header.Get("Content-Type") != f.kind || n.Load() != 1 {
							t.Errorf("%q %s: %d requests, %d %q %q", l, encoding, n.Load(), a.status, a.header.Get("Content-Type"), a.body)
						}
					}
				}
			})
		})
	}
}

// TestTheFormIsFoundInAnySplit: the first bytes of a stream may arrive one by one and late.
func TestTheFormIsFoundInAnySplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []string{streamChat, "\xef\xbb\xbf" + streamChat, "event: x\n" + streamChat,
			":\n" + streamChat} {
			r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for i := range 10 {
					<-time.After(time.Second)
					writeNow(t, w, answer[i:i+1])
				}
				writeNow(t, w, answer[10:])
			}))
			a := r.post("/v1/chat/completions", streamedHello)
			if want := strings.TrimPrefix(answer, "\xef\xbb\xbf"); a.status != 200 || a.body != want {
				t.Errorf("%q: %d %q", answer[:10], a.status, a.body)
			}
		}
	})
}

// TestAnAnswerOfNeitherFormIsAProtocolError, whatever its label, as is a stream that was not requested.
func TestAnAnswerOfNeitherFormIsAProtocolError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, label := range []string{"text/event-stream", "application/json", "text/plain", "text/html", ""} {
			for _, c := range []struct{ name, body, answer string }{
				{"a page", streamedHello, "<html></html>"}, {"text", streamedHello, "database is down"},
				{"text like a field", streamedHello, "dataset: x"}, {"nothing", streamedHello, ""},
				{"blanks", streamedHello, " \n"},
				{"an array", hello, "[]"}, {"a cut object", hello, `{"choices":[`},
				{"a stream for a whole answer", hello, streamChat},
				{"a comment for a whole answer", hello, ": x\n\n" + streamChat},
			} {
				r := newRig(t, plain, answerWith(200, c.answer, "Content-Type", label))
				if a := r.post("/v1/chat/completions", c.body); a.status != 502 ||
					!strings.Contains(a.body, `"worker_protocol"`) {
					t.Errorf("%q %s: %d %s", label, c.name, a.status, a.body)
				}
			}
		}
	})
}

// TestAWholeAnswerIntoAnOpenStreamIsNotGeneratedAgain: the engine of another worker would answer in the
// same form.
func TestAWholeAnswerIntoAnOpenStreamIsNotGeneratedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		engine := counted(&n, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(100 * time.Millisecond) // five heartbeats
			writeNow(t, w, wholeChat)
		}))
		r := newRig(t, strings.Replace(shortIdleYAML, "idle: 50ms", "idle: 5s", 1), engine, engine)
		a := r.post("/v1/chat/completions", streamedHello)
		if n.Load() != 1 || !strings.Contains(a.body, `"code":"worker_protocol"`) {
			t.Errorf("%d requests: %q", n.Load(), a.body)
		}
		if line := r.accessLog(); !strings.Contains(line, `"output_tokens":2`) {
			t.Errorf("the usage is not accounted for: %s", line)
		}
	})
}
