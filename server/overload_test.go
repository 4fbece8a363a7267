package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/breaker"
)

// overload is an answer by which an engine reports that it cannot take more requests.
type overload struct {
	name, kind, body string
	status           int
	headers          []string
	after            string // the client's Retry-After
}

// overloads are the words of engines and hosted services.
func overloads() []overload {
	const anthropic = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"r"}`
	return []overload{
		{name: "Anthropic", status: 529, body: anthropic},
		{name: "Anthropic with Retry-After", status: 529, body: anthropic, headers: []string{"Retry-After", "7"}, after: "7"},
		{name: "529 alone", status: 529},
		{name: "503 alone", status: 503},
		{name: "503 of a proxy", status: 503, kind: "text/html", body: "<html><h1>503 Service Unavailable</h1></html>"},
		{name: "503 with a date", status: 503, headers: []string{"Retry-After", "Sat, 01 Jan 2000 00:00:09 GMT"}, after: "9"},
		{name: "503 with a fraction", status: 503, headers: []string{"Retry-After", "2.5"}, after: "3"},
		{name: "Azure", status: 503, headers: []string{"Retry-After-Ms", "4200"}, after: "5",
			body: `{"error":{"code":"ServiceUnavailable","message":"The service is temporarily unable to process your request."}}`},
		{name: "Azure's older header", status: 503, headers: []string{"X-Ms-Retry-After-Ms", "3000"}, after: "3"},
		{name: "vLLM", status: 503,
			body: `{"error":{"message":"The engine is currently busy and cannot accept new requests.","type":"ServiceUnavailableError","param":null,"code":503}}`},
		{name: "SGLang", status: 503,
			body: `{"object":"error","message":"The request queue is full.","type":"SERVICE_UNAVAILABLE","param":null,"code":503}`},
		{name: "llama.cpp", status: 503, body: `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`},
		{name: "Ollama", status: 503,
			body: `{"error":"server busy, please try again.  maximum pending requests exceeded"}`},
		{name: "a type in a 500", status: 500, body: anthropic},
		{name: "a code in a 500", status: 500, body: `{"error":{"message":"m","type":"server_error","code":"engine_overloaded"}}`},
		{name: "a code in a 502", status: 502, body: `{"error":{"message":"Provider returned error","code":529}}`},
		{name: "a whole 200 of another shape", status: 200, body: `{"object":"error","message":"busy","code":503}`},
		{name: "words in a 500", status: 500, body: `{"error":{"message":"The server is currently overloaded with other requests.","type":"server_error"}}`},
		{name: "TGI's words", status: 500, body: `{"error":"Model is overloaded","error_type":"overloaded"}`},
		{name: "Google", status: 503, body: `[{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]`},
		{name: "capacity", status: 498, body: `{"error":{"message":"Flex tier capacity exceeded","type":"capacity_exceeded","code":"capacity_exceeded"}}`},
		{name: "LiteLLM", status: 500,
			body: `{"error":{"message":"litellm.ServiceUnavailableError: no healthy deployment","type":null,"param":null,"code":"500"}}`},
		{name: "plain text in a 500", status: 500, kind: "text/plain; charset=utf-8", body: "Server is busy, try again"},
		{name: "a data member", status: 500, body: `{"success":false,"data":{"error":{"type":"overloaded_error","message":"m"}}}`},
		{name: "an event with a data member", status: 200, kind: "text/event-stream",
			body: `data: {"data":{"error":{"type":"overloaded_error","message":"m"}}}` + "\n\n"},
		{name: "a whole 200", status: 200, body: anthropic},
		{name: "a first event", status: 200, kind: "text/event-stream", body: "event: error\ndata: " + anthropic + "\n\n"},
		{name: "a first event without a name", status: 200, kind: "text/event-stream",
			body: `data: {"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error"}}` + "\n\n"},
		{name: "a first event with 529", status: 200, kind: "text/event-stream",
			body: `data: {"error":{"message":"m","code":529}}` + "\n\n"},
		{name: "an event after the role", status: 200, kind: "text/event-stream",
			body: roleChunk + `data: {"error":{"message":"m","type":"overloaded_error","code":null}}` + "\n\n"},
	}
}

func (o overload) engine() http.Handler {
	kind := o.kind
	if kind == "" {
		kind = "application/json"
	}
	return answerWith(o.status, o.body, append([]string{"Content-Type", kind}, o.headers...)...)
}

// TestOverloadIs503InEverySpelling: the worker is in backoff and is not blamed, another worker is tried,
// and a client without one may retry after Retry-After.
func TestOverloadIs503InEverySpelling(t *testing.T) {
	for _, o := range overloads() {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for path, c := range map[string]struct{ body, want string }{
					"/v1/chat/completions": {streamedHello, `"type":"server_error","param":null,"code":"overloaded"`},
					"/v1/messages":         {strings.Replace(streamedHello, "{", `{"max_tokens":5,`, 1), `"type":"overloaded_error"`},
				} {
					alone := newRig(t, plain, o.engine())
					a := alone.post(path, c.body)
					after := o.after
					if after == "" {
						after = "1"
					}
					if a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, c.want) ||
						a.header.Get("Retry-After") != after || a.header.Get("X-Should-Retry") != "" {
						t.Errorf("%s: %d, Retry-After %q, X-Should-Retry %q: %s", path, a.status, a.header.Get("Retry-After"),
							a.header.Get("X-Should-Retry"), a.body)
					}
					if m := alone.scrape(); !strings.Contains(m, `tierway_attempts_total{result="excluded",tier="small",worker="w0"} 1`) ||
						!strings.Contains(m, `tierway_worker_backoff{tier="small",worker="w0"} 1`) {
						t.Errorf("%s: the worker is blamed, or not in backoff", path)
					}
				}
				r := newRig(t, strings.Replace(retryYAML, "least_load", "round_robin", 1), o.engine(), chatEngine(t))
				for range 9 { // more than a breaker's consecutive failures
					if a := r.post("/v1/chat/completions", streamedHello); a.status != http.StatusOK {
						t.Errorf("with another worker: %d %s", a.status, a.body)
					}
				}
				if st := r.stateOf("w0"); st != breaker.Closed {
					t.Errorf("the breaker is %v", st)
				}
			})
		})
	}
}

// TestAResponseThatFailsBeforeItsContent: the failure is like an error as the first event, if it is the
// server's. Other failures reach the client as they are.
func TestAResponseThatFailsBeforeItsContent(t *testing.T) {
	const failed = `{"id":"resp_s1","object":"response","status":"failed","error":%s,"output":[]}`
	overloaded := `{"code":"server_error","message":"The engine is currently overloaded, please try again later"}`
	for name, c := range map[string]struct {
		err, kind     string // the error, and the type of the event
		status        int    // 200: the failed response
		want, attempt string
	}{
		"an overload by its words": {overloaded, "response.failed", 503, `"code":"overloaded"`, "excluded"},
		"an overload by its code":  {`{"code":"overloaded_error","message":"m"}`, "response.failed", 503, `"code":"overloaded"`, "excluded"},
		"an overload by its type":  {`{"type":"service_unavailable","message":"m"}`, "response.failed", 503, `"code":"overloaded"`, "excluded"},
		"response.done":            {overloaded, "response.done", 503, `"code":"overloaded"`, "excluded"},
		"a rate limit":             {`{"code":"rate_limit_exceeded","message":"m"}`, "response.failed", 429, `"code":"rate_limit_exceeded"`, "excluded"},
		"the server":               {`{"code":"server_error","message":"m"}`, "response.failed", 502, `"code":"worker_error"`, "excluded"},
		"a prompt":                 {`{"code":"invalid_prompt","message":"m"}`, "response.failed", 200, `"code":"invalid_prompt"`, "ok"},
		"a picture":                {`{"code":"invalid_image_format","message":"m"}`, "response.failed", 200, `"code":"invalid_image_format"`, "ok"},
		"no error":                 {`null`, "response.failed", 200, `"status":"failed"`, "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				response := fmt.Sprintf(failed, c.err)
				stream := createdEvent + fmt.Sprintf("event: %s\ndata: {\"type\":%[1]q,\"sequence_number\":1,\"response\":%s}\n\n",
					c.kind, response)
				for body, answer := range map[string]string{
					`{"model":"small","input":"Hi","stream":true,"store":false}`: stream,
					`{"model":"small","input":"Hi","store":false}`:               response,
				} {
					engine := constantAnswer("text/event-stream", answer)
					r := newRig(t, plain, engine)
					if a := r.post("/v1/responses", body); a.status != c.status || !strings.Contains(a.body, c.want) ||
						(a.header.Get("Retry-After") != "") != (c.status == 503 || c.status == 429) {
						t.Errorf("%s: %d %v %s", body, a.status, a.header, a.body)
					}
					if m := r.scrape(); !strings.Contains(m, fmt.Sprintf(`tierway_attempts_total{result=%q,tier="small",worker="w0"} 1`, c.attempt)) {
						t.Errorf("%s: the attempt is not %s", body, c.attempt)
					}
					if c.status == http.StatusOK {
						continue
					}
					good := constantAnswer("text/event-stream", createdEvent+completedEvent)
					if !strings.Contains(body, "stream") {
						good = constantAnswer("application/json", `{"id":"r","object":"response","status":"completed"}`)
					}
					r = newRig(t, strings.Replace(retryPlain, "auth:", "policy: { name: round_robin }\nauth:", 1), engine, good)
					for range 4 {
						if a := r.post("/v1/responses", body); a.status != 200 || strings.Contains(a.body, "failed") {
							t.Errorf("%s: with another worker: %d %s", body, a.status, a.body)
						}
					}
				}
			})
		})
	}
}

// TestAStoredResponseThatFailsIsRelayed, because its client has its id already. An overloaded worker is in
// backoff.
func TestAStoredResponseThatFailsIsRelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := createdEvent + "event: response.failed\n" + `data: {"type":"response.failed","sequence_number":1,"response":{"id":"resp_s1",` +
			`"object":"response","status":"failed","error":{"code":"server_error","message":"overloaded"}}}` + "\n\n"
		r := newRig(t, plain, constantAnswer("text/event-stream", stream))
		if a := r.post("/v1/responses", `{"model":"small","input":"Hi","stream":true}`); a.status != 200 || a.body != stream {
			t.Errorf("%d %s", a.status, a.body)
		}
		if m := r.scrape(); !strings.Contains(m, `tierway_worker_backoff{tier="small",worker="w0"} 1`) {
			t.Error("the worker is not in backoff")
		}
	})
}

// TestOverloadAfterContentIsAnEventOfItsKind: clients of the stream read the type or the code of the error.
func TestOverloadAfterContentIsAnEventOfItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for path, c := range map[string]struct{ body, stream, want string }{
			"/v1/chat/completions": {streamedHello,
				textChunk + `data: {"error":{"message":"m","type":"overloaded_error","code":529}}` + "\n\n", `"code":"overloaded"}}`},
			"/v1/messages": {strings.Replace(streamedHello, "{", `{"max_tokens":5,`, 1), startEvent + textEvent +
				"event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}` + "\n\n",
				"event: error\n" + `data: {"type":"error","error":{"type":"overloaded_error",`},
		} {
			r := newRig(t, plain, constantAnswer("text/event-stream", c.stream))
			a := r.post(path, c.body)
			if a.status != 200 || !strings.Contains(a.body, c.want) {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
			if m := r.scrape(); !strings.Contains(m, `tierway_attempts_total{result="excluded",tier="small",worker="w0"} 1`) ||
				!strings.Contains(m, `tierway_worker_backoff{tier="small",worker="w0"} 1`) {
				t.Errorf("%s: the worker is blamed, or not in backoff:\n%s", path, m)
			}
		}
	})
}

// TestAFailureWithoutARetryMayBeRetriedByTheClient: the gateway has no other worker, so its own attempts
// do not multiply those of the client.
func TestAFailureWithoutARetryMayBeRetriedByTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, handlers := range [][]http.Handler{{answerWith(500, "")}, {answerWith(500, ""), answerWith(500, "")}} {
			a := newRig(t, plain, handlers...).post("/v1/chat/completions", hello)
			want := ""
			if len(handlers) > 1 {
				want = "false"
			}
			if a.status != http.StatusBadGateway || a.header.Get("X-Should-Retry") != want {
				t.Errorf("%d workers: %d, X-Should-Retry %q", len(handlers), a.status, a.header.Get("X-Should-Retry"))
			}
		}
	})
}
