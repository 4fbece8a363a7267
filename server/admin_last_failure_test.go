package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWorkerShowsItsLastFailedAttempt: status and first words of the engine, or what the gateway found.
func TestWorkerShowsItsLastFailedAttempt(t *testing.T) {
	for _, tt := range []struct {
		status      int
		body        string
		shownStatus int
		want        string // a part; empty: none is shown
	}{
		{500, `{"error":{"message":"CUDA error: out of memory\n at line 1"}}`, 500, "CUDA error: out of memory at line 1"},
		{503, `{"error":"model is loading"}`, 503, "model is loading"},
		{502, "<html><h1>502 Bad Gateway</h1>nginx</html>", 502, "502 Bad Gateway nginx"},
		{401, `{"error":{"message":"invalid token"}}`, 401, "invalid token"},
		{404, `{"error":{"message":"The model x does not exist."}}`, 404, "The model x does not exist."},
		{429, `{"error":{"message":"slow down"}}`, 429, "slow down"},
		{500, `{"error":{"message":"cannot read: About topic number 0"}}`, 500, "the worker answered 500"},
		{500, `{"error":{"message":"cannot read: ABOUT\ntopic \\u006eumber"}}`, 500, "the worker answered 500"},
		{500, "", 500, "the worker answered 500"},
		{200, `{"error":{"message":"engine is dead","code":500}}`, 500, "engine is dead"},
		{200, "no JSON", 200, `a 2xx answer of the type "application/json" and 7 bytes that is not a JSON object`},
		{400, `{"error":{"message":"max_tokens is too large"}}`, 0, ""},
		{422, `{"detail":"temperature"}`, 0, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := failingRig(t, tt.status, tt.body, 1)
			before := time.Now()
			id := r.post("/v1/chat/completions", chatBody("small", "About topic number 0", ""), "Authorization",
				"Bearer filed").header.Get("X-Request-Id")
			w := decode[workersShown](t, r.callAdmin("eyes", http.MethodGet, "/admin/workers", "")).Workers[0]
			switch f := w.Failure; {
			case tt.want == "" && f != nil:
				t.Errorf("%d %s is shown as %+v", tt.status, tt.body, f)
			case tt.want == "":
			case f == nil:
				t.Errorf("%d %s is not shown", tt.status, tt.body)
			case f.Status != tt.shownStatus || !strings.Contains(f.Message, tt.want) || f.RequestID != id || f.At.Before(before):
				t.Errorf("%d %s is shown as %+v, want %d %s", tt.status, tt.body, f, tt.shownStatus, tt.want)
			}
		})
	}
}
