package traces

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

// goSDK returns an openai-go client with only the gateway's address and a key.
func (r *traceRig) goSDK(header ...string) openai.Client {
	options := []option.RequestOption{option.WithBaseURL(r.BaseURL), option.WithAPIKey(r.APIKey), option.WithMaxRetries(0)}
	for i := 0; i+1 < len(header); i += 2 {
		options = append(options, option.WithHeader(header[i], header[i+1]))
	}
	return openai.NewClient(options...)
}

func chat() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "auto", MaxTokens: openai.Int(20),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)}}
}

// checkWhole checks the trace of one streamed request with one attempt.
func checkWhole(tr tree) {
	tr.t.Helper()
	tr.checkNesting()
	root, route, call, engine := tr.root, tr.one("route"), tr.one("chat sim"), tr.one("llm_request")
	if root.kind != "server" || root.name != "POST /chat/completions" || root.service != gatewayService ||
		root.schema != "https://opentelemetry.io/schemas/1.41.0" || root.failed {
		tr.t.Errorf("the request's span is %+v", root)
	}
	if call.kind != "client" || route.kind != "internal" || engine.kind != "server" || engine.parent != call.id ||
		call.failed {
		tr.t.Errorf("kinds %s, %s, %s; the engine's parent is %q and the attempt %q", call.kind, route.kind, engine.kind,
			engine.parent, call.id)
	}
	tr.wantAttrs(root, map[string]string{
		"http.request.method": "POST", "http.route": "/chat/completions", "http.response.status_code": "200",
		"error.type":            "",
		"gen_ai.operation.name": "", "gen_ai.usage.input_tokens": "", "gen_ai.usage.output_tokens": "",
		"tierway.output_tokens": engine.attrs["gen_ai.usage.output_tokens"],
		"gen_ai.request.model":  "auto", "gen_ai.request.stream": "true", "gen_ai.request.max_tokens": "20",
		"tierway.tenant": "acme", "tierway.class": "interactive", "tierway.dialect": "chat", "tierway.tier": "small",
		"tierway.rule":   "default",
		"tierway.policy": "chwbl", "tierway.worker": "w0", "tierway.outcome": "ok", "tierway.attempts": "1",
		"tierway.config_generation": "1",
	})
	tr.wantAttrs(route, map[string]string{"tierway.policy": "chwbl", "tierway.worker": "w0",
		"tierway.reason":           root.attrs["tierway.reason"],
		"tierway.route.candidates": "1", "tierway.attempt": "1", "tierway.predicted_cached_tokens": "0"})
	if len(route.events) != 1 || route.events[0].name != "candidate" || route.events[0].attrs["tierway.worker"] != "w0" ||
		route.events[0].attrs["tierway.candidate.score"] == "" {
		tr.t.Errorf("the choice's events are %v", route.events)
	}
	tr.wantAttrs(call, map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "sim",
		"tierway.requested_model": "auto",
		"gen_ai.request.stream":   "true", "gen_ai.request.max_tokens": "20",
		"gen_ai.usage.output_tokens": engine.attrs["gen_ai.usage.output_tokens"],
		"gen_ai.usage.input_tokens":  engine.attrs["gen_ai.usage.input_tokens"], "gen_ai.usage.cache_read.input_tokens": "0",
		"http.response.status_code": "200", "error.type": "", "tierway.worker": "w0", "tierway.attempt": "1",
	})
	if len(call.events) != 1 || call.events[0].name != "first_content" ||
		call.attrs["gen_ai.response.time_to_first_chunk"] == "" {
		tr.t.Errorf("the first content is told by %v and %q", call.events, call.attrs["gen_ai.response.time_to_first_chunk"])
	}
	if engine.attrs["gen_ai.usage.output_tokens"] == "" {
		tr.t.Error("the engine tells no usage")
	}
}

// OB-02: no span has the prompt, the key or the worker's address.
func TestSmokeSDKCallIsOneTraceIntoTheEngine(t *testing.T) {
	r := newRig(t, 1)
	r.traced("")
	c := r.goSDK("traceparent", sampled, "tracestate", "vendor=1", "baggage", "user=alice", "X-Request-Id", "sdk-1")
	stream := c.Chat.Completions.NewStreaming(t.Context(), chat())
	for stream.Next() {
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	tr := r.collector.request("sdk-1", 1)
	checkWhole(tr)
	if tr.root.trace != callerTrace || tr.root.parent != callerSpan || tr.root.state != "vendor=1" {
		t.Errorf("the caller's trace is not gone on with: %+v", tr.root)
	}
	got := r.Workers[0].Recorder.Requests()[0].Header
	if got.Get("Traceparent") != "00-"+callerTrace+"-"+tr.one("chat sim").id+"-01" ||
		got.Get("Tracestate") != "vendor=1" || got.Get("Baggage") != "" {
		t.Errorf("the engine got traceparent %q, tracestate %q, baggage %q", got.Get("Traceparent"), got.Get("Tracestate"),
			got.Get("Baggage"))
	}
	for _, s := range tr.all {
		for key, value := range s.attrs {
			if strings.Contains(value, "sphinx") || strings.Contains(value, rig.TenantKey) ||
				strings.Contains(value, r.Workers[0].URL()) {
				t.Errorf("%s: %s is %q", s.name, key, value)
			}
		}
	}
}

// The gateway cannot see the first token of an answer that is not a stream.
func TestAWholeAnswerHasNoFirstContent(t *testing.T) {
	r := newRig(t, 1)
	r.traced("")
	c := r.goSDK("X-Request-Id", "sdk-2")
	if _, err := c.Chat.Completions.New(t.Context(), chat()); err != nil {
		t.Fatal(err)
	}
	tr := r.collector.request("sdk-2", 1)
	tr.checkNesting()
	if call := tr.one("chat sim"); len(call.events) != 0 || call.attrs["gen_ai.response.time_to_first_chunk"] != "" {
		t.Errorf("the first content is told by %v and %q", call.events, call.attrs["gen_ai.response.time_to_first_chunk"])
	}
	tr.wantAttrs(tr.root, map[string]string{"gen_ai.request.stream": "", "tierway.outcome": "ok"})
	tr.wantAttrs(tr.one("chat sim"),
		map[string]string{"gen_ai.request.stream": "",
			"gen_ai.usage.output_tokens": tr.one("llm_request").attrs["gen_ai.usage.output_tokens"]})
	if tr.root.parent != "" {
		t.Errorf("a request without a caller's trace has the parent %q", tr.root.parent)
	}
}

// script is a request with the official SDK for Python.
const script = `
import os, openai
c = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"], max_retries=0)
h = {"traceparent": os.environ["TRACEPARENT"], "X-Request-Id": "python-1"}
for chunk in c.chat.completions.create(model="auto", max_tokens=20, stream=True, messages=[{"role": "user", "content": os.environ["PROMPT"]}], extra_headers=h):
    pass
`

func TestPythonSDKCallIsOneTraceIntoTheEngine(t *testing.T) {
	r := newRig(t, 1)
	r.traced("")
	python := os.Getenv("TIERWAY_PYTHON")
	if python == "" {
		root, err := gateway.Root()
		if err != nil {
			t.Fatal(err)
		}
		python = filepath.Join(root, ".cache", "python", "bin", "python")
	}
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-c", script)
	cmd.Env = append(os.Environ(), "BASE_URL="+r.BaseURL, "API_KEY="+r.APIKey, "TRACEPARENT="+sampled, "PROMPT="+prompt,
		"PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tr := r.collector.request("python-1", 1)
	checkWhole(tr)
	if tr.root.trace != callerTrace || tr.root.parent != callerSpan {
		t.Errorf("the caller's trace is not gone on with: %+v", tr.root)
	}
}

func TestWithoutTracingTheClientsTraceReachesTheEngine(t *testing.T) {
	r := newRig(t, 1)
	r.serve("", "")
	if status, _ := r.ask("plain", body(prompt, false), "Traceparent", sampled, "Tracestate", "vendor=1", "Baggage",
		"user=alice"); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	got := r.Workers[0].Recorder.Requests()[0].Header
	if got.Get("Traceparent") != sampled || got.Get("Tracestate") != "vendor=1" || got.Get("Baggage") != "" {
		t.Errorf("the engine got traceparent %q, tracestate %q, baggage %q", got.Get("Traceparent"), got.Get("Tracestate"),
			got.Get("Baggage"))
	}
	r.Stop()
	for _, s := range r.collector.all() {
		if s.service == gatewayService {
			t.Errorf("%s is exported, and the configuration names no collector", s.name)
		}
	}
}
