package server

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// answerHeaders are the headers that the worker sends. The value is true if the gateway forwards the
// header.
var answerHeaders = map[string]bool{
	"Content-Disposition": true, "Content-Language": true, "Accept-Ranges": true, "X-Content-Type-Options": true,
	"Etag": true, "Last-Modified": true, "Expires": true, "Age": true,
	"Retry-After": true, "Retry-After-Ms": true, "X-Ratelimit-Limit-Requests": true,
	"Anthropic-Ratelimit-Tokens-Remaining": true,
	"Openai-Version":                       true, "Openai-Model": true, "Anthropic-Version": true, "X-Inference-Pod": true,
	"X-Accel-Redirect": false, "X-Accel-Limit-Rate": false, "X-Sendfile": false, "X-Lighttpd-Send-File": false,
	"Refresh":    false,
	"Set-Cookie": false, "Clear-Site-Data": false, "Link": false, "Access-Control-Allow-Origin": false,
	"Access-Control-Allow-Credentials": false,
	"Endpoint-Load-Metrics":            false, "X-Powered-By": false, "Server-Timing": false, "Report-To": false,
	"Service-Worker-Allowed": false,
	"Openai-Organization":    false, "Openai-Project": false, "Anthropic-Organization-Id": false,
	"Www-Authenticate": false,
	"X-Should-Retry":   false, "X-Routed-To": false, "X-Model-Tier": false, "X-Queue-Ms": false, "X-Request-Id": false,
	"Request-Id":           false,
	"Openai-Processing-Ms": false, "Via": false, "Alt-Svc": false, "Strict-Transport-Security": false, "X-Upstream": false,
}

// allHeaders is a worker that sends all answerHeaders with each answer. Path and body of the request
// select the form of the answer.
func allHeaders(w http.ResponseWriter, r *http.Request) {
	for name := range answerHeaders {
		w.Header().Set(name, "the worker's")
	}
	body, _ := io.ReadAll(r.Body)
	answer :=
		`{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`
	kind, status := "application/json", http.StatusOK
	switch {
	case strings.Contains(string(body), `"stream":true`):
		kind = "text/event-stream"
		answer =
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	case strings.Contains(string(body), "native"):
		status, answer = http.StatusBadRequest, `{"error":{"message":"no","type":"invalid_request_error"}}`
	case strings.Contains(string(body), "foreign"):
		status, answer = http.StatusUnprocessableEntity, `{"detail":"no"}`
	case strings.Contains(r.URL.Path, "events"):
		kind, answer = "text/event-stream", "data: x\n\n"
	case strings.Contains(r.URL.Path, "speech"):
		kind, answer = "audio/mpeg", "sound"
	case strings.Contains(r.URL.Path, "missing"):
		status = http.StatusNotFound
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	io.WriteString(w, answer) // a client that left shows elsewhere
}

// TestOnlyAllowedHeadersOfAWorkerAreForwarded: headers that are not known to be harmless are dropped,
// and so are the gateway's own names.
func TestOnlyAllowedHeadersOfAWorkerAreForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
auth: { required: false }
health: { path: "off" }
pools: [ { name: small, model: fake-7b, serves: [chat, audio], paths: ["/v9/*"], response_headers: [x-inference-pod], workers: [ %s ] } ]
`, http.HandlerFunc(allHeaders))
		for name, c := range map[string]struct {
			path, body string
			status     int
		}{
			"whole": {"/v1/chat/completions", `{"model":"fake-7b","messages":[{"role":"user","content":"x"}]}`, 200},
			"stream": {"/v1/chat/completions", `{"model":"fake-7b","stream":true,"messages":[{"role":"user","content":"x"}]}`,
				200},
			"refused": {"/v1/chat/completions", `{"model":"fake-7b","messages":[{"role":"user","content":"native"}]}`, 400},
			"raw":     {"/v1/audio/speech", `{"model":"fake-7b","input":"x"}`, 200},
			"passed":  {"/v9/x", "x", 200},
			"missing": {"/v9/missing", "x", 404},
			"events":  {"/v9/events", "x", 200},
		} {
			a := r.post(c.path, c.body)
			if a.status != c.status {
				t.Errorf("%s: %d %s", name, a.status, a.body)
				continue
			}
			for _, header := range slices.Sorted(maps.Keys(answerHeaders)) {
				passed := slices.Contains(a.header.Values(header), "the worker's")
				if passed != answerHeaders[header] {
					t.Errorf("%s: %s passed: %v, want %v", name, header, passed, answerHeaders[header])
				}
			}
			if strings.Contains(a.header.Get("Content-Type"), "event-stream") && a.header.Get("X-Accel-Buffering") != "no" {
				t.Errorf("%s: proxies may buffer the events: %v", name, a.header)
			}
		}
	})
}

// TestRateLimitHeadersAreTheTenants: the headers of a worker would contradict them. An engine's error
// is charged like an answer.
func TestRateLimitHeadersAreTheTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		worker := http.HandlerFunc(allHeaders)
		r := limitedRig(t, "limits: { rpm: 60, burst: 10, tpm: 40000 }", worker, worker)
		for i, word := range []string{"x", "native", "foreign"} {
			a := r.post("/v1/chat/completions", `{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"`+word+
				`"}]}`, "Authorization", "Bearer key")
			if got := remaining(t, a); got != 9-i {
				t.Errorf("%s: %d: %d requests remain, want %d", word, a.status, got, 9-i)
			}
			for _, name := range []string{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens"} {
				if a.header.Get(name) == "" {
					t.Errorf("%s: %d without %s: %v", word, a.status, name, a.header)
				}
			}
			if got := a.header.Values("X-Ratelimit-Limit-Requests"); !slices.Equal(got, []string{"60"}) ||
				a.header.Get("Anthropic-Ratelimit-Tokens-Remaining") != "" {
				t.Errorf("%s: the worker's limits are forwarded: %v %v", word, got, a.header)
			}
		}
	})
}

// TestAWorkersVaryIsAddedToTheGatewaysOwn: without the gateway's Vary, caches would mix the answers to
// different origins.
func TestAWorkersVaryIsAddedToTheGatewaysOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "cors: { origins: [\"https://app.example\"] }\n"+plain,
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Vary", "Accept")
				allHeaders(w, r)
			}))
		a := r.post("/v1/chat/completions", hello, "Origin", "https://app.example")
		if got := strings.Join(a.header.Values("Vary"), ", "); got != "Origin, Accept" {
			t.Errorf("Vary: %q", got)
		}
	})
}
