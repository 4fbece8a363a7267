package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tierway/breaker"
)

// TestTheEnginesOwnWordsReachTheClient, in the form of the client's dialect.
func TestTheEnginesOwnWordsReachTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct{ kind, body, want string }{
			"OpenAI":             {"application/json", `{"error":{"message":"bad top_p","type":"invalid_request_error","param":"top_p","code":"x"}}`, "bad top_p"},
			"an array":           {"application/json", `[{"error":{"code":400,"message":"bad top_p","status":"INVALID_ARGUMENT"}}]`, "bad top_p"},
			"an array inside":    {"application/json", `{"success":false,"error":[{"code":2016,"message":"bad top_p"}]}`, "bad top_p"},
			"errors":             {"application/json", `{"errors":[{"message":"bad top_p"},{"message":"and more"}]}`, "bad top_p"},
			"errors as text":     {"application/json", `{"errors":["bad top_p"]}`, "bad top_p"},
			"a top-level word":   {"application/json", `{"message":"bad top_p"}`, "bad top_p"},
			"AWS":                {"application/x-amz-json-1.1", `{"__type":"ValidationException","Message":"bad top_p"}`, "bad top_p"},
			"Baidu":              {"application/json", `{"error_code":336003,"error_msg":"bad top_p","id":"x"}`, "bad top_p"},
			"beside a string":    {"application/json", `{"statusCode":400,"error":"Bad Request","message":"bad top_p"}`, "bad top_p"},
			"beside a code":      {"application/json", `{"error":"invalid_request","error_description":"bad top_p"}`, "bad top_p"},
			"TGI":                {"application/json", `{"error":"bad top_p","error_type":"validation"}`, "bad top_p"},
			"FastAPI":            {"application/json", `{"detail":"bad top_p"}`, "bad top_p"},
			"FastAPI's object":   {"application/json", `{"detail":{"error":"bad top_p","code":"x"}}`, "bad top_p"},
			"RFC 9457":           {"application/problem+json", `{"type":"about:blank","title":"bad top_p","status":400}`, "bad top_p"},
			"a message object":   {"application/json", `{"object":"error","message":{"detail":[{"msg":"bad top_p"}]},"type":"invalid_request_error"}`, "bad top_p"},
			"text":               {"text/plain; charset=utf-8", "bad top_p\n", "bad top_p"},
			"text without label": {"", "bad top_p", "bad top_p"},
			"a JSON string":      {"application/json", `"bad top_p"`, "bad top_p"},
		} {
			for path, body := range map[string]string{"/v1/chat/completions": hello, "/v1/messages": hello,
				"/v1/embeddings": `{"model":"small","input":"x"}`} {
				r := newRig(t, plain, answerWith(400, c.body, "Content-Type", c.kind))
				a := r.post(path, body)
				var got struct {
					Type  string
					Error struct{ Message, Type string }
				}
				if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 400 ||
					!strings.Contains(got.Error.Message, c.want) ||
					strings.Contains(path, "messages") != (got.Type == "error") {
					t.Errorf("%s, %s: %d %s", name, path, a.status, a.body)
				}
			}
		}
	})
}

// TestARefusalHasNoPageAndNoAddress: pages, long texts and addresses of the operator's network do not
// reach a client.
func TestARefusalHasNoPageAndNoAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct{ kind, body, secret string }{
			"a page":              {"text/html", "<html><title>nginx</title></html>", "nginx"},
			"a page as text":      {"text/plain", "  <!DOCTYPE html><p>nginx", "nginx"},
			"a long text":         {"text/plain", strings.Repeat("secret ", 10_000), "secret secret"},
			"a stack":             {"text/plain", "Traceback (most recent call last):\n  File \"/srv/app.py\"", "/srv"},
			"binary":              {"text/plain", "secret\x00\x01", "secret"},
			"an internal URL":     {"application/json", `{"error":{"message":"see http://10.1.2.3:8000/v1/x for more"}}`, "10.1.2.3"},
			"a host of a cluster": {"application/json", `{"error":{"message":"http://vllm-0.vllm.svc.cluster.local:8000 failed"}}`, "svc.cluster"},
			"a host without dots": {"text/plain", "cannot reach https://user:pw@engine/x", "engine"},
			"a bare address":      {"text/plain", "connect to 192.168.7.9:8000 failed", "192.168"},
			"localhost":           {"application/json", `{"message":"http://localhost:8000/v1 failed"}`, "localhost"},
		} {
			r := newRig(t, plain, answerWith(400, c.body, "Content-Type", c.kind))
			a := r.post("/v1/chat/completions", hello)
			if a.status != 400 || strings.Contains(a.body, c.secret) || len(a.body) > 10_000 || !json.Valid([]byte(a.body)) {
				t.Errorf("%s: %d %.300s", name, a.status, a.body)
			}
		}
		const public = "read https://platform.openai.com/docs of v1.2.3.4"
		r := newRig(t, plain, answerWith(400, `{"error":{"message":"`+public+`"}}`))
		if a := r.post("/v1/chat/completions", hello); !strings.Contains(a.body, public) {
			t.Errorf("a public URL is removed: %s", a.body)
		}
	})
}

// TestARefusalForContentIsFinal: it reaches the client with its text, is sent to one worker, and blames
// none.
func TestARefusalForContentIsFinal(t *testing.T) {
	const openRouter = `{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged for violence","metadata":{"reasons":["violence"]}}}`
	for name, c := range map[string]struct {
		status  int
		body    string
		event   bool
		want    int
		message string
	}{
		"Azure":             {400, `{"error":{"message":"filtered due to the content management policy","type":null,"param":"prompt","code":"content_filter","status":400}}`, false, 400, "filtered due"},
		"OpenRouter":        {403, openRouter, false, 403, "flagged for violence"},
		"a policy in a 403": {403, `{"error":{"message":"Request violates our usage policies.","type":"permission_error"}}`, false, 403, "usage policies"},
		"text in a 403":     {403, "Blocked by content policy.", false, 403, "content policy"},
		"a code in a 403":   {403, `{"error":{"message":"no","code":"content_policy_violation"}}`, false, 403, `"no"`},
		"a code in a 500":   {500, `{"error":{"message":"no","code":"content_filter"}}`, false, 400, `"no"`},
		"a code in a 502":   {502, `{"error":{"message":"no","type":"guardrail_violation"}}`, false, 400, `"no"`},
		"LiteLLM":           {500, `{"error":{"message":"litellm.ContentPolicyViolationError: no violence","type":null,"param":null,"code":"500"}}`, false, 400, "no violence"},
		"LiteLLM, twice":    {500, `{"error":{"message":"litellm.BadRequestError: litellm.ContentPolicyViolationError: AzureException - no violence"}}`, false, 400, "no violence"},
		"text in a 500":     {500, "litellm.ContentPolicyViolationError: no violence", false, 400, "no violence"},
		"a bare error text": {502, `{"error":"openai.ContentFilterFinishReasonError: no violence"}`, false, 400, "no violence"},
		"a first LiteLLM":   {200, `data: {"error":{"message":"litellm.ContentPolicyViolationError: no violence","code":"500"}}` + "\n\n", true, 400, "no violence"},
		"a data member":     {500, `{"data":{"error":{"message":"no","code":"content_filter"}}}`, false, 400, `"no"`},
		"DashScope":         {400, `{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content."}`, false, 400, "inappropriate content"},
		"a whole 200":       {200, `{"error":{"message":"no","code":"moderation_blocked"}}`, false, 400, `"no"`},
		"a first event":     {200, `data: {"error":{"message":"no","code":"content_policy_violation"}}` + "\n\n", true, 400, `"no"`},
		"a first 403":       {200, "data: " + openRouter + "\n\n", true, 403, "flagged for violence"},
		"the request again": {400, `{"error":{"message":"no","code":"content_filter","request":{"stream_options":{"include_usage":true}}}}`, false, 400, `"no"`},
		"Anthropic":         {400, `{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`, false, 400, "filtering policy"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kind := "application/json"
				if c.event {
					kind = "text/event-stream"
				}
				var n atomic.Int64
				engine := counted(&n, answerWith(c.status, c.body, "Content-Type", kind))
				r := newRig(t, retryYAML, engine, engine)
				for i := range 10 {
					a := r.post("/v1/chat/completions", streamedHello)
					if a.status != c.want || !strings.Contains(a.body, c.message) || n.Load() != int64(i+1) {
						t.Fatalf("%d after %d requests: %s", a.status, n.Load(), a.body)
					}
				}
				for _, w := range []string{"w0", "w1"} {
					if st := r.stateOf(w); st != breaker.Closed {
						t.Errorf("%s is %v", w, st)
					}
				}
				if m := r.scrape(); strings.Contains(m, `tierway_worker_backoff{tier="small",worker="w0"} 1`) ||
					strings.Contains(m, `result="error"`) && !strings.Contains(m, `tierway_attempts_total{result="error",tier="small",worker="w0"} 0`) {
					t.Errorf("a worker is blamed or in backoff")
				}
			})
		})
	}
}

// TestARefusalAfterContentKeepsItsCode, so that clients do not repeat the request.
func TestARefusalAfterContentKeepsItsCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refusal = `data: {"error":{"message":"the output was filtered","code":"content_filter"}}` + "\n\n"
		for path, c := range map[string]struct{ body, stream, want string }{
			"/v1/chat/completions": {streamedHello, textChunk + refusal,
				`"message":"the output was filtered","type":"invalid_request_error","param":null,"code":"content_filter"`},
			"/v1/messages": {strings.Replace(streamedHello, "{", `{"max_tokens":5,`, 1), startEvent + textEvent + refusal,
				`"error":{"type":"invalid_request_error","message":"the output was filtered"`},
			"/v1/responses": {`{"model":"small","input":"Hi","stream":true}`, createdEvent + fmt.Sprintf(deltaEvent, 1) + refusal,
				`"status":"failed","error":{"code":"content_filter","message":"the output was filtered"}`},
		} {
			r := newRig(t, plain, constantAnswer("text/event-stream", c.stream))
			if a := r.post(path, c.body); a.status != 200 || !strings.Contains(a.body, c.want) {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
			if line := r.accessLog(); strings.Contains(line, "content_filter") || !strings.Contains(line, "worker_refused") {
				t.Errorf("%s: the access log has the engine's code: %s", path, line)
			}
			if st := r.stateOf("w0"); st != breaker.Closed {
				t.Errorf("%s: the breaker is %v", path, st)
			}
		}
	})
}

// TestARefusedKeyIsNoRefusalForContent: a 401, and a 403 that does not name the content, concern the
// gateway's own key.
func TestARefusedKeyIsNoRefusalForContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			status int
			body   string
		}{
			{401, `{"error":{"message":"no","code":"content_policy_violation"}}`}, {403, ""}, {403, "Forbidden"},
			{403, `{"error":{"message":"Access denied due to Virtual Network/Firewall rules.","code":"403"}}`},
			{403, `{"error":{"message":"Your key has no permission for this model","type":"permission_error"}}`},
			{403, `{"error":{"message":"blocked by the network policy of your organization"}}`},
		} {
			r := newRig(t, plain, answerWith(c.status, c.body, "Content-Type", "application/json"))
			if a := r.post("/v1/chat/completions", hello); a.status != http.StatusBadGateway ||
				!strings.Contains(a.body, "worker_auth_failed") {
				t.Errorf("%d %s: %d %s", c.status, c.body, a.status, a.body)
			}
		}
	})
}
