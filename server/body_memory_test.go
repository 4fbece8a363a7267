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
)

// smallBudgetYAML has a small memory budget for bodies. One tenant may use half of it.
const smallBudgetYAML = plain + `
max_body_bytes: 64KiB
max_buffered_bytes: 256KiB
`

// longChat is a chat of about n bytes.
func longChat(n int, more string) string {
	return fmt.Sprintf(`{"model":"small",%s"messages":[{"role":"user","content":%q}]}`, more, strings.Repeat("a", n))
}

// bodyBytes is the memory that request bodies occupy.
func (r *rig) bodyBytes() int64 {
	return r.proxy.BodyMemory().Used
}

// TestBodiesShareOneBudget: beyond max_buffered_bytes a request gets 503 before its body is read. It is
// served once memory is free.
func TestBodiesShareOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, release := make(chan struct{}, 8), make(chan struct{})
		engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			io.Copy(io.Discard, q.Body) // the client may have left
			entered <- struct{}{}
			<-release
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"id":"x","object":"chat.completion","choices":[]}`) // the client may have left
		})
		r := newRig(t, smallBudgetYAML, engine)
		chat := longChat(50<<10, "")
		answers := make(chan httpAnswer, 2)
		for range 2 {
			go func() { answers <- r.do(http.MethodPost, "/v1/chat/completions", chat) }()
			<-entered
		}
		if used := r.bodyBytes(); used < 2*int64(len(chat)) || used > 3*int64(len(chat)) {
			t.Errorf("two bodies of %d bytes occupy %d", len(chat), used)
		}
		a := r.do(http.MethodPost, "/v1/chat/completions", chat)
		if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, `"code":"overloaded"`) ||
			!strings.Contains(a.body, "max_buffered_bytes") || a.header.Get("Retry-After") == "" {
			t.Errorf("a third: %d %s %v", a.status, a.body, a.header)
		}
		if n := r.counter("tierway_request_bodies_refused_total"); n != 1 {
			t.Errorf("%v refusals are counted", n)
		}
		close(release)
		for range 2 {
			if a := <-answers; a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		if a := r.do(http.MethodPost, "/v1/chat/completions", chat); a.status != http.StatusOK {
			t.Errorf("afterwards: %d %s", a.status, a.body)
		}
		if used := r.bodyBytes(); used != 0 {
			t.Errorf("%d bytes are still in use", used)
		}
	})
}

// TestBodyMemoryIsFreedOnEveryPath: after every end of a request no memory is in use.
func TestBodyMemoryIsFreedOnEveryPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, smallBudgetYAML, fakeEngine())
		zipped := func(n int) string {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			z.Write(make([]byte, n)) // memory takes everything
			z.Close()
			return b.String()
		}
		for name, c := range map[string]struct {
			body, encoding string
			want           int
		}{
			"whole":          {longChat(5000, ""), "", http.StatusOK},
			"stream":         {longChat(5000, `"stream":true,`), "", http.StatusOK},
			"no JSON":        {strings.Repeat("x", 5000), "", http.StatusBadRequest},
			"no model":       {strings.Replace(longChat(5000, ""), "small", "none", 1), "", http.StatusNotFound},
			"too long":       {longChat(70<<10, ""), "", http.StatusRequestEntityTooLarge},
			"unpacked, long": {zipped(70 << 10), "gzip", http.StatusRequestEntityTooLarge},
			"broken gzip":    {zipped(60 << 10)[:20], "gzip", http.StatusBadRequest},
			"no encoding":    {"{}", "br", http.StatusUnsupportedMediaType},
		} {
			headers := []string{"Content-Encoding", c.encoding}
			if name == "too long" { // the refusal may come while the client writes, and reset the connection
				headers = append(headers, "Expect", "100-continue")
			}
			a := r.do(http.MethodPost, "/v1/chat/completions", c.body, headers...)
			if used := r.bodyBytes(); a.status != c.want || used != 0 {
				t.Errorf("%s: %d %s; %d bytes are in use", name, a.status, a.body, used)
			}
		}
		for name, headers := range map[string]string{"cut": "Content-Length: 5000\r\n",
			"cut in a chunk": "Transfer-Encoding: chunked\r\n"} {
			logged := strings.Count(r.accessLog(), "\n")
			c, err := networkOf(t).Dial(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n%s\r\n100\r\nabc", headers)
			c.Close()
			waitUntil(t, "the record of the request", func() bool { return strings.Count(r.accessLog(), "\n") > logged })
			if used := r.bodyBytes(); used != 0 {
				t.Errorf("%s: %d bytes are in use", name, used)
			}
		}
	})
}

// TestAStreamFreesItsBodyWhenItBegins: an answer that has begun is not retried, so the body is not
// needed.
func TestAStreamFreesItsBodyWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, release := make(chan struct{}), make(chan struct{})
		engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			writeNow(t, w, `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`+"\n\n")
			close(begun)
			<-release
			writeNow(t, w, chunkAndEnd)
		})
		r := newRig(t, smallBudgetYAML, engine)
		resp := r.send(t.Context(), r.net.client, "/v1/chat/completions", longChat(50<<10, `"stream":true,`))
		<-begun
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if used := r.bodyBytes(); used != 0 || r.Inflight() != 1 {
			t.Errorf("%d bytes are in use by %d requests", used, r.Inflight())
		}
		close(release)
		if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "[DONE]") {
			t.Errorf("%q, %v", body, err)
		}
	})
}
