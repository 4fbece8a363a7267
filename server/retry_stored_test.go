package server

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestStoredResponsesAreNotRetried: the endpoint stores by default. A request is not sent to another
// engine after an engine has received its body. A request without a connection is.
func TestStoredResponsesAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			path, body string
			hits       int64
		}{
			{"/v1/responses", `{"model":"small","input":"hi"}`, 1},
			{"/v1/responses", `{"model":"small","input":"hi","stream":true}`, 1},
			{"/v1/responses", `{"model":"small","input":"hi","store":true}`, 1},
			{"/v1/responses", `{"model":"small","input":"hi","store":null}`, 1},
			{"/v1/responses", `{"model":"small","input":"hi","store":false}`, 2},
			{"/v1/responses", `{"model":"small","input":"hi","store":false,"background":true}`, 1},
			{"/v1/responses/compact", `{"model":"small","input":"hi"}`, 2},
			{"/v1/responses/input_tokens", `{"model":"small","input":"hi"}`, 2},
			{"/v1/chat/completions", hello, 2},
		} {
			var hits atomic.Int64
			failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				hits.Add(1)
				w.WriteHeader(http.StatusInternalServerError)
			})
			r := newRig(t, plain, failing, failing)
			if a := r.post(c.path, c.body); a.status != http.StatusBadGateway || hits.Load() != c.hits {
				t.Errorf("%s %s: %d after %d attempts, want %d", c.path, c.body, a.status, hits.Load(), c.hits)
			}
		}
		r := newRig(t, strings.Replace(plain, "[ %s ]", `[ { name: gone, url: "http://127.0.0.1:1" }, %s ]`, 1),
			&storingEngine{name: "a"})
		for range 4 {
			if a := r.post("/v1/responses", `{"model":"small","input":"hi"}`); a.status != http.StatusOK {
				t.Errorf("a request that reached no engine: %d %s", a.status, a.body)
			}
		}
	})
}
