package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestNoWorkerReceivesTheBodyOfAnotherRequest, although requests reuse the buffers of earlier ones: also after broken
// connections, retries and streams.
func TestNoWorkerReceivesTheBodyOfAnotherRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, each = 8, 40
		engine := func(w http.ResponseWriter, q *http.Request) {
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return // the gateway has closed the connection
			}
			_, text, _ := strings.Cut(string(body), `"content":"`)
			mark, _, _ := strings.Cut(text, " ")
			text, _, _ = strings.Cut(text, `"}`)
			if text != strings.Repeat(mark+" ", len(text)/(len(mark)+1)) || !strings.HasPrefix(mark, "m") {
				t.Errorf("a worker gets the texts of several requests, or none: %.100q", text)
			}
			switch {
			case len(text)%7 == 0:
				w.WriteHeader(http.StatusBadGateway) // another worker gets it too
			case strings.Contains(string(body), `"stream":true`):
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, `data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q},`+
					`"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", mark)
			default:
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},`+
					`"finish_reason":"stop"}]}`, mark)
			}
		}
		r := newRig(t, plain+"policy: { name: round_robin }\nretry: { budget: 1 }\n", http.HandlerFunc(engine),
			http.HandlerFunc(engine), http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.CopyN(io.Discard, q.Body, 3000)
				panic(http.ErrAbortHandler)
			}))
		var running sync.WaitGroup
		for c := range clients {
			running.Go(func() {
				for i := range each {
					mark := fmt.Sprintf("m%d-%d", c, i)
					more := ""
					if i%3 == 0 {
						more = `"stream":true,`
					}
					chat := fmt.Sprintf(`{"model":"small",%s"messages":[{"role":"user","content":"%s"}]}`, more,
						strings.Repeat(mark+" ", (3000+1500*i)/len(mark)))
					a := r.do(http.MethodPost, "/v1/chat/completions", chat)
					if a.status == http.StatusOK && !strings.Contains(a.body, `"`+mark+`"`) {
						t.Errorf("%s gets %.300s", mark, a.body)
					}
				}
			})
		}
		running.Wait()
	})
}
