package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tierway/store"
)

// TestAttemptCutByATimeoutIsCharged: the engine has worked for the request, and the client's own
// timeout may have ended it. A worker that sent nothing within first_byte is not charged.
func TestAttemptCutByATimeoutIsCharged(t *testing.T) {
	const (
		chat   = "/v1/chat/completions"
		stream = `{"stream":true,"model":"small` + helloTo
		token  = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n"
		whole  = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":40,"completion_tokens":2}}`
		sdk    = "0.1" // the client's timeout in seconds
	)
	for _, c := range []struct {
		name, path, body, timeout string
		kind, sent                string // by the first worker before it stalls; no sent: no header either
		workers                   int
		outcome                   string
		want                      store.UsageRow // Prompt is a lower bound
	}{
		{"a whole answer's total time", chat, hello, sdk, "", "", 1, "failed", store.UsageRow{Prompt: 1, Estimated: 1}},
		{"the total time of embeddings", "/v1/embeddings", `{"model":"small","input":"hello to all of you"}`, sdk, "", "", 1,
			"failed", store.UsageRow{Prompt: 1, Estimated: 1}},
		{"a stream's total time without an event", chat, stream, sdk, "", "", 1, "failed",
			store.UsageRow{Prompt: 1, Estimated: 1}},
		{"a stream's total time after a comment", chat, stream, sdk, "text/event-stream", ": wait\n\n", 1, "failed",
			store.UsageRow{Prompt: 1, Estimated: 1}},
		{"silence within a whole answer", chat, hello, "", "application/json", whole[:20], 1, "failed",
			store.UsageRow{Prompt: 1, Estimated: 1}},
		{"silence within a stream", chat, stream, "", "text/event-stream", token + token + token, 1, "truncated",
			store.UsageRow{Prompt: 1, Output: 3, Estimated: 1}},
		{"the total time of an image, which has no tokens", "/v1/images/generations",
			`{"model":"small","prompt":"hello to all of you"}`, sdk, "", "", 1, "failed", store.UsageRow{}},
		{"no first event", chat, stream, "", "", "", 1, "failed", store.UsageRow{}},
		{"silence, then another worker's answer", chat, hello, "", "application/json", whole[:20], 2, "ok",
			store.UsageRow{Prompt: 40, Output: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				engine := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					io.Copy(io.Discard, q.Body) // the test's own worker
					if calls.Add(1) > 1 {
						w.Header().Set("Content-Type", "application/json")
						writeNow(t, w, whole)
						return
					}
					if c.sent != "" {
						w.Header().Set("Content-Type", c.kind)
						writeNow(t, w, c.sent)
					}
					<-q.Context().Done()
				})
				r := newRig(t, fmt.Sprintf("timeouts: { first_byte: 300ms, idle: 200ms }\n"+strings.Replace(limited,
					"messages, embeddings]", "messages, embeddings, images]", 1), digestOfKey, "limits: { rpm: 60 }",
					"http://127.0.0.1:1"),
					[]http.Handler{engine, engine}[:c.workers]...)
				headers := []string{"Authorization", "Bearer key"}
				if c.timeout != "" {
					headers = append(headers, "X-Stainless-Timeout", c.timeout)
				}
				a := r.post(c.path, c.body, headers...)
				waitUntil(t, "the end", func() bool { return r.Inflight() == 0 })
				got := r.row(c.outcome)
				if got.Requests != 1 || got.Prompt < c.want.Prompt || (got.Prompt == 0) != (c.want.Prompt == 0) ||
					got.Output != c.want.Output || got.Estimated != c.want.Estimated {
					t.Errorf("%d %s: the ledger has %+v, want %+v", a.status, strings.TrimSpace(a.body), got, c.want)
				}
			})
		})
	}
}
