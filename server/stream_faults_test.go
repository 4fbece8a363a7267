package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
)

// sharedText is a text that a test and its workers share.
type sharedText struct{ atomic.Value }

func (w *sharedText) set(text string) { w.Store(text) }

func (w *sharedText) get() string {
	text, _ := w.Load().(string)
	return text
}

// shortIdleYAML has an idle timeout and heartbeats that are short enough for a test.
const shortIdleYAML = `
auth: { required: false }
health: { path: "off" }
queue: { heartbeat_after: 20ms }
timeouts: { idle: 50ms }
tiers:
  - name: small
    model: fake-7b
    serves: [chat, responses, images, audio]
    workers: [ %s ]
`

// writeNow writes a part of an answer and flushes it.
func writeNow(t *testing.T, w http.ResponseWriter, text string) {
	if _, err := io.WriteString(w, text); err != nil {
		t.Error(err)
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		t.Error(err)
	}
}

const chunkAndEnd = `data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}` +
	"\n\ndata: [DONE]\n\n"

func TestFailureToReadAStoredAnswerHasItsStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fault sharedText
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch fault.get() {
			case "429":
				w.WriteHeader(http.StatusTooManyRequests)
			case "cut":
				panic(http.ErrAbortHandler)
			default:
				w.Header().Set("Content-Type", "application/json")
				writeNow(t, w, `{"id":"resp_1","object":"response","status":"completed","output":[]}`)
			}
		}))
		if a := r.post("/v1/responses", `{"model":"small","input":"x"}`); a.status != 200 {
			t.Fatal(a)
		}
		for f, want := range map[string]int{"": 200, "429": 429, "cut": 502} {
			fault.set(f)
			if a := r.do("GET", "/v1/responses/resp_1", ""); a.status != want {
				t.Errorf("%q: %d %s", f, a.status, a.body)
			}
		}
	})
}

// TestNoHeartbeatsInRelayedBytes: neither sound nor JSON has comments.
func TestNoHeartbeatsInRelayedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pause = 60 * time.Millisecond // three heartbeats
		r := newRig(t, strings.Replace(shortIdleYAML, "idle: 50ms", "idle: 5s", 1),
			http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				<-time.After(pause)
				kind, first, second := "audio/mpeg", "AAAA", "BBBB"
				switch {
				case strings.Contains(q.URL.Path, "images"):
					kind, first = "text/event-stream", `data: {"b64_json":"AAAA`
				case strings.Contains(q.URL.Path, "chat"):
					kind, first = "application/json", `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},`
					second = `"finish_reason":"stop"}]}`
				}
				w.Header().Set("Content-Type", kind)
				writeNow(t, w, first)
				<-time.After(pause)
				writeNow(t, w, second)
			}))
		stream := `{"model":"small","prompt":"x","input":"x","stream":true}`
		for path, c := range map[string]struct{ body, want string }{"audio/speech": {stream, "AAAABBBB"},
			"images/generations": {stream, `data: {"b64_json":"AAAABBBB`},
			"chat/completions": {chatBody("small", "hi", ""),
				`{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`}} {
			a := r.post("/v1/"+path, c.body)
			if a.body != c.want || a.err != nil || strings.HasPrefix(a.body, "{") != (a.header.Get("Content-Length") != "") {
				t.Errorf("%s: %q, %v, %v", path, a.body, a.header, a.err)
			}
		}
	})
}

func TestCommentDoesNotCountAsFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shortIdleYAML, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, ": warming up\n\n")
			<-time.After(200 * time.Millisecond) // four times idle, which counts from the first event
			writeNow(t, w, chunkAndEnd)
		}))
		a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if a.status != 200 || !strings.HasSuffix(a.body, chunkAndEnd) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestOneTenantsErrorDoesNotDisableUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last sharedText
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			b, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			if last.set(string(b)); strings.Contains(last.get(), `"logit_bias":"bad"`) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusUnprocessableEntity)
				writeNow(t, w, fmt.Sprintf(`{"detail":[{"loc":["body","logit_bias"],"msg":"bad","input":%s}]}`, b))
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, chunkAndEnd)
		}))
		good := `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`
		if a := r.post("/v1/chat/completions", strings.Replace(good, "{", `{"logit_bias":"bad",`, 1)); a.status != 422 {
			t.Errorf("the mistake: %d %s", a.status, a.body)
		}
		r.post("/v1/chat/completions", good)
		if !strings.Contains(last.get(), "include_usage") {
			t.Errorf("the request has no include_usage: %s", last.get())
		}
	})
}

func TestAnErrorWhoseBodyHangsIsRetriedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-q.Context().Done() // ends when the gateway disconnects, before any timeout
		})
		r := newRig(t, strings.Replace(plain, "auth:", "policy: { name: round_robin }\nauth:", 1), hang, fakeEngine())
		for range 2 {
			if a := r.post("/v1/chat/completions", hello); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	})
}

func TestEventsAfterTheEndAreCountedAndNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, chunkAndEnd+`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}`+"\n\n"+
				`data: {"error":{"message":"late"}}`+"\n\n")
		}))
		a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if a.body != chunkAndEnd {
			t.Errorf("%q", a.body)
		}
		if line := r.accessLog(); !strings.Contains(line, `"prompt_tokens":7`) ||
			!strings.Contains(line, `"outcome":"ok"`) {
			t.Errorf("the line: %s", line)
		}
	})
}

func TestAWholeAnswerIntoAnOpenStreamIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, strings.Replace(shortIdleYAML, "idle: 50ms", "idle: 5s", 1),
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				<-time.After(100 * time.Millisecond) // five heartbeats
				w.Header().Set("Content-Type", "application/json")
				writeNow(t, w, `{"object":"chat.completion","choices":[]}`)
			}))
		a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if !strings.HasPrefix(a.body, ": keep-alive\n") || !strings.Contains(a.body, `"code":"worker_protocol"`) ||
			strings.Contains(a.body, "chat.completion") {
			t.Errorf("%q", a.body)
		}
	})
}

// TestOnlyAGeneratedStreamHasAFirstToken: a whole answer arrives with its last token, and other data
// has no tokens. Either would look like a slow worker's first token.
func TestOnlyAGeneratedStreamHasAFirstToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, engines.New(engines.Config{Model: "fake-7b", Seed: 1, Prefill: 1000}))
		for body, want := range map[string]bool{hello: false, strings.Replace(hello, "{", `{"stream":true,`, 1): true} {
			if a := r.post("/v1/chat/completions", body); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			d := r.recorded().Last(1)[0]
			if d.Stream != want || (d.TTFTMs > 0) != want || (d.Attempts[0].FirstAtMs > 0) != want {
				t.Errorf("stream %v: to the first token %v ms, the first content at %v ms", d.Stream, d.TTFTMs,
					d.Attempts[0].FirstAtMs)
			}
		}
	})
}

func TestRetryWithoutTheRejectedFieldHasItsOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plain, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			b, err := io.ReadAll(q.Body)
			if err != nil {
				t.Error(err)
			}
			if strings.Contains(string(b), "include_usage") {
				w.WriteHeader(http.StatusBadRequest)
				writeNow(t, w, `{"error":{"message":"unknown field stream_options"}}`)
				return
			}
			<-time.After(2500 * time.Millisecond)
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, chunkAndEnd)
		}))
		a := r.post("/v1/chat/completions", `{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
		if a.status != 200 || a.body != chunkAndEnd {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestIdleTimeCountsAfterAPartOfTheFraming: a worker is silent if it sends nothing after the end of a chunk, or after
// the size of the next one.
func TestIdleTimeCountsAfterAPartOfTheFraming(t *testing.T) {
	event := `data: {"choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n"
	for _, framing := range []string{"\r\n", "\r\n1a", "\r\n1a\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, shortIdleYAML, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				c, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s",
					len(event), event)
				time.Sleep(10 * time.Millisecond)
				_, _ = io.WriteString(c, framing)
				_, _ = io.Copy(io.Discard, c) // until the gateway leaves
			}))
			began := time.Now()
			a := r.post("/v1/chat/completions", chatBody("small", "hi", `,"stream":true`))
			if took := time.Since(began); took > time.Second || !strings.Contains(a.body, `"error"`) {
				t.Errorf("%q: after %v the client has %d %.300q", framing, took, a.status, a.body)
			}
		})
	}
}
