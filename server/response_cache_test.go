package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/telemetry"
	"tierway/tenants"
)

// cachingRig is one tier with an exact cache, without keys.
const cachingRig = `
auth: { required: false }
health: { path: "off" }
tiers:
  - name: small
    model: fake-7b
    response_cache: { exact: {} }
    workers: [ %s ]
models: { "gpt-4o-mini": small }
`

// numberingEngine answers each request of the four dialects with another text, and counts them.
type numberingEngine struct {
	mu     sync.Mutex
	n      int
	bodies []string
	finish string // of chat; "" is stop
	status int    // 0 is 200
	cut    bool   // the stream breaks off after its first content
}

func (e *numberingEngine) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.n
}

func (e *numberingEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.n++
	n := e.n
	e.bodies = append(e.bodies, string(body))
	e.mu.Unlock()
	var req struct {
		Stream   bool
		Metadata json.RawMessage
	}
	_ = json.Unmarshal(body, &req)
	if e.status != 0 {
		w.WriteHeader(e.status)
		io.WriteString(w, `{"error":{"message":"no","type":"server_error"}}`)
		return
	}
	text := fmt.Sprintf("answer \\\"%d\\\"", n)
	if req.Stream {
		w.Header().Set("Content-Type", "text/event-stream")
		stream := numberedStreams[r.URL.Path]
		if e.cut {
			stream, _, _ = strings.Cut(stream, "FINISH")
		}
		stream = strings.ReplaceAll(strings.ReplaceAll(stream, "FINISH", ""), "TEXT", text)
		io.WriteString(w, stream)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	answer := strings.ReplaceAll(numberedAnswers[r.URL.Path], "TEXT", text)
	if e.finish != "" {
		answer = strings.ReplaceAll(answer, `"finish_reason":"stop"`, `"finish_reason":"`+e.finish+`"`)
	}
	io.WriteString(w, answer)
}

// numberedAnswers are the whole answers of a numberingEngine by path.
var numberedAnswers = map[string]string{
	"/v1/chat/completions": `{"id":"engine-id","object":"chat.completion","created":1,"model":"fake-7b","system_fingerprint":"fp",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"TEXT","reasoning_content":"why"},"logprobs":null,` +
		`"finish_reason":"stop","stop_reason":"#"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`,
	"/v1/completions": `{"id":"engine-id","object":"text_completion","created":1,"model":"fake-7b","choices":[{"index":0,` +
		`"text":"TEXT","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`,
	"/v1/messages": `{"id":"engine-id","type":"message","role":"assistant","model":"fake-7b","content":[{"type":"thinking",` +
		`"thinking":"why","signature":"sig"},{"type":"text","text":"TEXT"}],"stop_reason":"end_turn","stop_sequence":null,` +
		`"usage":{"input_tokens":9,"output_tokens":4}}`,
	"/v1/responses": responseObject,
}

const responseObject = `{"id":"engine-id","object":"response","created_at":1,"status":"completed","model":"fake-7b","error":null,` +
	`"incomplete_details":null,"instructions":null,"metadata":{"of":"another"},"parallel_tool_calls":true,"store":false,` +
	`"temperature":0,"tool_choice":"auto","tools":[],"top_p":1,"user":"another","output":[{"type":"reasoning","id":"rs","summary":[],` +
	`"content":[{"type":"reasoning_text","text":"why"}]},{"type":"message","id":"m","role":"assistant","status":"completed",` +
	`"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"TEXT"}]}],"usage":{"input_tokens":9,` +
	`"input_tokens_details":{"cached_tokens":0},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":13}}`

// numberedStreams are the streams of a numberingEngine by path. FINISH marks where a cut stream ends.
var numberedStreams = map[string]string{
	"/v1/chat/completions": chunks(`{"role":"assistant","content":""}`, `{"reasoning_content":"why"}`, `{"content":"TEXT"}`) +
		`FINISHdata: {"id":"engine-id","object":"chat.completion.chunk","created":1,"model":"fake-7b","system_fingerprint":"fp",` +
		`"choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":"#"}]}` + "\n\n" +
		`data: {"id":"engine-id","object":"chat.completion.chunk","created":1,"model":"fake-7b","choices":[],"usage":` +
		`{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}` + "\n\ndata: [DONE]\n\n",
	"/v1/completions": `data: {"id":"engine-id","object":"text_completion","created":1,"model":"fake-7b","choices":[{"index":0,` +
		`"text":"TEXT","finish_reason":null}]}` + "\n\n" +
		`FINISHdata: {"id":"engine-id","object":"text_completion","created":1,"model":"fake-7b","choices":[{"index":0,` +
		`"text":"","finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"engine-id","object":"text_completion","created":1,"model":"fake-7b","choices":[],"usage":` +
		`{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}` + "\n\ndata: [DONE]\n\n",
	"/v1/messages": named(
		`{"type":"message_start","message":{"id":"engine-id","type":"message","role":"assistant","model":"fake-7b","content":[],`+
			`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":0}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"why"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"TEXT"}}`,
		`{"type":"content_block_stop","index":1}`) + "FINISH" + named(
		`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":4}}`,
		`{"type":"message_stop"}`),
	"/v1/responses": named(
		`{"type":"response.created","sequence_number":0,"response":{"id":"engine-id","object":"response","status":"in_progress","output":[]}}`,
		`{"type":"response.output_text.delta","sequence_number":1,"item_id":"m","output_index":0,"content_index":0,"delta":"TEXT"}`) +
		"FINISH" + named(`{"type":"response.completed","sequence_number":2,"response":`+responseObject+`}`),
}

// chunks returns chat chunks with the deltas.
func chunks(deltas ...string) (stream string) {
	for _, d := range deltas {
		stream += `data: {"id":"engine-id","object":"chat.completion.chunk","created":1,"model":"fake-7b","system_fingerprint":"fp",` +
			`"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}` + "\n\n"
	}
	return stream
}

// named returns events with their names.
func named(events ...string) (stream string) {
	for _, ev := range events {
		name, _, _ := strings.Cut(strings.TrimPrefix(ev, `{"type":"`), `"`)
		stream += "event: " + name + "\ndata: " + ev + "\n\n"
	}
	return stream
}

// cacheBodies are requests of the four dialects that the cache may answer, without their closing brace.
var cacheBodies = map[string]string{
	"/v1/chat/completions": `{"model":"small","temperature":0,"messages":[{"role":"user","content":"hi"}]`,
	"/v1/completions":      `{"model":"small","temperature":0,"prompt":"hi"`,
	"/v1/messages":         `{"model":"small","temperature":0,"max_tokens":99,"messages":[{"role":"user","content":"hi"}]`,
	"/v1/responses":        `{"model":"small","temperature":0,"store":false,"input":"hi"`,
}

// lastDecision returns the record of the last request.
func (r *rig) lastDecision() *decisions.Decision {
	r.t.Helper()
	synctest.Wait()
	last := r.recorded().Last(1)
	if len(last) == 0 {
		r.t.Fatal("there is no record")
	}
	return last[0]
}

// cached sends a request and returns its answer with the result in its record.
func (r *rig) cached(path, body string, headers ...string) (httpAnswer, string) {
	r.t.Helper()
	got := r.post(path, body, headers...)
	d := r.lastDecision()
	if d.Cache == nil {
		return got, ""
	}
	return got, d.Cache.Result
}

const (
	exactHit  = "exact_hit"
	cacheMiss = "miss"
	bypassed  = "bypass"
)

// TestC1ExactHitStaysWithItsTenant: an equal request of one tenant is answered from the cache, and one of another
// tenant is not. vLLM Router's fork has no tenant in its keys.
func TestC1ExactHitStaysWithItsTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		text := strings.Replace(cachingRig, "auth: { required: false }", `auth:
  keys:
    - { name: a, sha256: `+digestHex("key-a")+`, response_cache: true }
    - { name: b, sha256: `+digestHex("key-b")+`, response_cache: true }
    - { name: c, sha256: `+digestHex("key-c")+` }`, 1)
		r := newRig(t, text, e)
		body := cacheBodies["/v1/chat/completions"] + "}"
		for i, c := range []struct {
			key, want, headers string
			engine             int
		}{
			{"key-a", cacheMiss, "tierway; fwd=miss|miss", 1},
			{"key-a", exactHit, "tierway; hit; detail=exact|exact-hit", 1},
			{"key-b", cacheMiss, "tierway; fwd=miss|miss", 2},
			{"key-b", exactHit, "tierway; hit; detail=exact|exact-hit", 2},
			{"key-c", bypassed, "tierway; fwd=bypass; detail=tenant|bypass", 3},
			{"key-c", bypassed, "tierway; fwd=bypass; detail=tenant|bypass", 4},
			{"key-a", exactHit, "tierway; hit; detail=exact|exact-hit", 4},
		} {
			got, result := r.cached("/v1/chat/completions", body, "Authorization", "Bearer "+c.key)
			headers := got.header.Get("Cache-Status") + "|" + got.header.Get("X-Tierway-Cache-Status")
			if got.status != 200 || result != c.want || headers != c.headers || e.count() != c.engine {
				t.Errorf("%d (%s): %d %s, %s, %d requests at the engine; want %s, %s, %d", i, c.key, got.status, result, headers,
					e.count(), c.want, c.headers, c.engine)
			}
		}
	})
}

// TestC2OneFieldDecides: a request that differs in one member that counts misses; one that differs in a member that
// does not count, or only in its notation, hits.
func TestC2OneFieldDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		r := newRig(t, cachingRig, e)
		const path, base = "/v1/chat/completions", `{"model":"small","temperature":0,"messages":[{"role":"user","content":"h\u00e4"}]`
		if _, result := r.cached(path, base+"}"); result != cacheMiss {
			t.Fatal(result)
		}
		for _, same := range []string{
			`{"messages":[{"content":"hä","role":"user"}],"temperature":0,"model":"small"}`,
			` { "model" : "gpt-4o-mini" , "temperature":0,"messages":[ {"role":"user","content":"h\u00E4"} ] } `,
			base + `,"user":"u"}`, base + `,"stream":false}`, base + `,"stream":true}`, base + `,"metadata":{"a":"b"}}`,
			base + `,"request_id":"r"}`, base + `,"stream":true,"stream_options":{"include_usage":true}}`,
		} {
			if got, result := r.cached(path, same); result != exactHit {
				t.Errorf("%s: %s %s", same, result, got.body)
			}
		}
		for _, more := range countedFields {
			for _, want := range []string{cacheMiss, exactHit} {
				if got, result := r.cached(path, base+","+more+"}"); result != want {
					t.Errorf("%s: %s instead of %s: %s", more, result, want, got.body)
				}
			}
		}
		for _, other := range []string{
			`{"model":"small","temperature":0,"messages":[{"role":"user","content":"h\u00e4 "}]}`,
			`{"model":"small","temperature":0,"messages":[{"role":"system","content":"h\u00e4"}]}`,
			`{"model":"small","temperature":0,"messages":[{"role":"user","content":"h\u00e4","name":"n"}]}`,
			`{"model":"small","temperature":0,"messages":[{"role":"user","content":[{"type":"text","text":"h\u00e4"}]}]}`,
			`{"model":"small","temperature":0,"messages":[{"role":"user","content":"x"},{"role":"user","content":"h\u00e4"}]}`,
			`{"model":"small","temperature":0.0,"messages":[{"role":"user","content":"h\u00e4"}]}`,
		} {
			if got, result := r.cached(path, other); result != cacheMiss {
				t.Errorf("%s: %s %s", other, result, got.body)
			}
		}
	})
}

// countedFields are members of a chat that count.
var countedFields = []string{
	`"max_tokens":9`, `"max_tokens":10`, `"max_completion_tokens":9`, `"top_p":0.5`, `"top_p":0.50`, `"top_k":1`, `"min_p":0.1`,
	`"seed":1`, `"seed":2`, `"stop":"a"`, `"stop":["a"]`, `"stop":["a","b"]`, `"stop":["b","a"]`, `"presence_penalty":0.1`,
	`"frequency_penalty":0.1`, `"repetition_penalty":1.1`, `"logit_bias":{"1":1}`, `"logit_bias":{"1":2}`,
	`"response_format":{"type":"json_object"}`, `"response_format":{"type":"text"}`, `"reasoning_effort":"low"`,
	`"reasoning_effort":"high"`, `"service_tier":"auto"`, `"priority":1`, `"cache_salt":"s"`, `"prompt_cache_key":"k"`,
	`"safety_identifier":"s"`, `"session_id":"s"`, `"user_id":"u"`, `"n":1`, `"best_of":2`, `"use_beam_search":true`,
	`"ignore_eos":true`, `"min_tokens":1`, `"skip_special_tokens":false`, `"add_generation_prompt":false`,
	`"chat_template":"t"`, `"chat_template_kwargs":{"enable_thinking":false}`, `"guided_json":{}`, `"guided_regex":"a"`,
	`"guided_choice":["a"]`, `"structured_outputs":{"json":{}}`, `"documents":[{"text":"d"}]`, `"verbosity":"low"`,
	`"prediction":{"type":"content","content":"c"}`, `"lora_path":"l"`, `"x_unknown":1`, `"x_unknown":"1"`, `"x_unknown":null`,
	`"X_unknown":1`, `"unknown":{"a":{"b":1}}`, `"unknown":{"a":{"b":2}}`, `"unknown":[{"a":1,"b":2}]`, `"unknown":[1,2]`,
	`"unknown":[2,1]`, `"Stream_x":true`, `"metadata_":{}`, `"temperatur":0`,
}

// TestC3StoredAnswersAreReplayedInEitherForm: an answer that was kept from a whole answer or a stream is sent again
// whole and as a stream, with the same content, usage, finish and a new id. vLLM Router's fork leaves out streams.
func TestC3StoredAnswersAreReplayedInEitherForm(t *testing.T) {
	for path, base := range cacheBodies {
		for _, from := range []string{"", `,"stream":true`} {
			t.Run(path+from, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := &numberingEngine{}
					r := newRig(t, cachingRig, e)
					if got, result := r.cached(path, base+from+"}"); result != cacheMiss || got.status != 200 {
						t.Fatal(result, got.status, got.body)
					}
					ids := map[string]bool{"engine-id": true}
					for _, to := range []string{"", `,"stream":true`, `,"stream":true`, ""} {
						more := to
						if to != "" && (path == "/v1/chat/completions" || path == "/v1/completions") {
							more += `,"stream_options":{"include_usage":true}`
						}
						got, result := r.cached(path, base+more+"}")
						if result != exactHit || got.status != 200 || got.err != nil {
							t.Fatal(result, got.status, got.body)
						}
						a := readContent(t, path, got.body, to != "")
						if ids[a.id] {
							t.Errorf("the id %q came twice", a.id)
						}
						ids[a.id] = true
						reasoning := "why"
						if path == "/v1/completions" {
							reasoning = ""
						}
						if a.text != `answer "1"` || a.finish == "" || a.prompt != 9 || a.output != 4 || a.reasoning != reasoning {
							t.Errorf("%s%s: %+v in %s", path, to, a, got.body)
						}
					}
					if n := e.count(); n != 1 {
						t.Errorf("the engine got %d requests", n)
					}
				})
			})
		}
	}
}

// answerRead is what a client reads from an answer.
type answerRead struct {
	id, text, reasoning, finish string
	prompt, output              int64
}

// wireAnswer has the members of whole answers and events of all dialects that a client reads.
type wireAnswer struct {
	Type, ID, Status string
	Choices          []struct {
		Text         string
		Message      wireText
		Delta        wireText
		FinishReason string `json:"finish_reason"`
	}
	Content []wireText
	Delta   struct {
		wireText
		StopReason string `json:"stop_reason"`
	}
	StopReason string `json:"stop_reason"`
	Message    *wireAnswer
	Response   *wireAnswer
	Output     []struct {
		Type    string
		Content []wireText
	}
	Usage *struct {
		Prompt int64 `json:"prompt_tokens"`
		Answer int64 `json:"completion_tokens"`
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	}
}

type wireText struct {
	Type, Text, Thinking string
	Content              string
	Reasoning            string `json:"reasoning_content"`
}

// readContent reads an answer as a client does, and checks the form of a stream.
func readContent(t *testing.T, path, body string, stream bool) (a answerRead) {
	t.Helper()
	if !stream {
		var w wireAnswer
		if err := json.Unmarshal([]byte(body), &w); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		a.add(&w)
		return a
	}
	tracker := openai.NewTracker(map[string]openai.Dialect{"/v1/chat/completions": openai.Chat,
		"/v1/completions": openai.Completions, "/v1/messages": openai.Messages, "/v1/responses": openai.Responses}[path])
	events := openai.NewEventReader(strings.NewReader(body), 16<<20)
	for {
		ev, err := events.Next()
		if len(ev.Data) > 0 {
			tracker.Observe(ev)
			var w wireAnswer
			name := string(ev.Name)
			if string(ev.Data) == "[DONE]" || strings.HasPrefix(name, "response.") && name != "response.completed" {
				continue
			}
			if err := json.Unmarshal(ev.Data, &w); err != nil {
				t.Fatalf("%v in %s", err, ev.Data)
			}
			if w.Response != nil {
				w = *w.Response
			}
			a.add(&w)
		}
		if err != nil {
			break
		}
	}
	if !tracker.Proven() {
		t.Errorf("the stream does not prove its end: %.500s", body)
	}
	return a
}

func (a *answerRead) add(w *wireAnswer) {
	a.id = cmp.Or(w.ID, a.id)
	if w.Message != nil {
		a.id = w.Message.ID
	}
	for _, c := range w.Choices {
		a.text += c.Text + c.Message.Content + c.Delta.Content
		a.reasoning += c.Message.Reasoning + c.Delta.Reasoning
		a.finish = cmp.Or(c.FinishReason, a.finish)
	}
	for _, c := range append(w.Content, w.Delta.wireText) {
		a.text += c.Text
		a.reasoning += c.Thinking
	}
	a.finish = cmp.Or(w.StopReason, w.Delta.StopReason, a.finish)
	for _, o := range w.Output {
		for _, c := range o.Content {
			if o.Type == "reasoning" {
				a.reasoning += c.Text
			} else {
				a.text += c.Text
			}
		}
		a.finish = w.Status
	}
	if w.Usage != nil {
		a.prompt, a.output = w.Usage.Prompt+w.Usage.Input, w.Usage.Answer+w.Usage.Output
	}
}

// TestC4WhatIsNeverKept: requests with tools, media, several answers, log probabilities, stored objects or a
// temperature bypass the cache, and answers that failed, broke off or were cut at a limit are not kept.
func TestC4WhatIsNeverKept(t *testing.T) {
	const chat, base = "/v1/chat/completions", `{"model":"small","temperature":0,"messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		name, path, body, reason string
		engine                   *numberingEngine // nil: one that answers
	}{
		{name: "tools", body: base + `,"tools":[{"type":"function","function":{"name":"f"}}]}`, reason: "tools"},
		{name: "tool_choice", body: base + `,"tool_choice":"none"}`, reason: "tools"},
		{name: "functions", body: base + `,"functions":[{"name":"f"}]}`, reason: "tools"},
		{name: "web search", body: base + `,"web_search_options":{"a":1}}`, reason: "tools"},
		{name: "temperature", body: strings.Replace(base, "0", "0.7", 1) + "}", reason: "temperature"},
		{name: "no temperature", body: strings.Replace(base, `"temperature":0,`, "", 1) + "}", reason: "temperature"},
		{name: "temperature of null", body: strings.Replace(base, ":0,", ":null,", 1) + "}", reason: "temperature"},
		{name: "image", body: `{"model":"small","temperature":0,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},` +
			`{"type":"image_url","image_url":{"url":"data:,"}}]}]}`, reason: "media"},
		{name: "audio", body: base + `,"audio":{"voice":"v","format":"wav"}}`, reason: "media"},
		{name: "n", body: base + `,"n":2}`, reason: "choices"},
		{name: "prompts", path: "/v1/completions", body: `{"model":"small","temperature":0,"prompt":["a","b"]}`, reason: "choices"},
		{name: "logprobs", body: base + `,"logprobs":true}`, reason: "logprobs"},
		{name: "logprobs of 0", path: "/v1/completions", body: `{"model":"small","temperature":0,"prompt":"a","logprobs":0}`,
			reason: "logprobs"},
		{name: "store", body: base + `,"store":true}`, reason: "stored"},
		{name: "stored response", path: "/v1/responses", body: `{"model":"small","temperature":0,"input":"hi"}`, reason: "stored"},
		{name: "background", path: "/v1/responses", body: `{"model":"small","temperature":0,"store":false,"background":true,"input":"hi"}`,
			reason: "stored"},
		{name: "template", path: "/v1/responses", body: `{"model":"small","temperature":0,"store":false,"prompt":{"id":"p"},"input":"hi"}`,
			reason: "stored"},
		{name: "hand-over", body: base + `,"kv_transfer_params":{"do_remote_prefill":true}}`, reason: "handover"},
		{name: "limit", body: base + "}", engine: &numberingEngine{finish: "length"}, reason: "finish"},
		{name: "filter", body: base + "}", engine: &numberingEngine{finish: "content_filter"}, reason: "finish"},
		{name: "calls", body: base + "}", engine: &numberingEngine{finish: "tool_calls"}, reason: "finish"},
		{name: "error", body: base + "}", engine: &numberingEngine{status: 500}, reason: "failed"},
		{name: "refusal", body: base + "}", engine: &numberingEngine{status: 400}, reason: "failed"},
		{name: "accepted", body: base + "}", engine: &numberingEngine{status: 202}, reason: "failed"},
		{name: "cut stream", body: base + `,"stream":true}`, engine: &numberingEngine{cut: true}, reason: "failed"},
		{name: "cut message", path: "/v1/messages", body: cacheBodies["/v1/messages"] + `,"stream":true}`,
			engine: &numberingEngine{cut: true}, reason: "failed"},
		{name: "cut response", path: "/v1/responses", body: cacheBodies["/v1/responses"] + `,"stream":true}`,
			engine: &numberingEngine{cut: true}, reason: "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := cmp.Or(c.engine, &numberingEngine{})
				r := newRig(t, cachingRig, e)
				path := cmp.Or(c.path, chat)
				before := 0
				for range 2 {
					_, result := r.cached(path, c.body)
					d := r.lastDecision().Cache
					if result == exactHit || d.Reason+d.Answer != c.reason || e.count() == before {
						t.Errorf("%+v after %d requests at the engine, want %s", d, e.count(), c.reason)
					}
					before = e.count()
				}
				name := `tierway_response_cache_answers_total{result="` + c.reason + `"} 2`
				if r.lastDecision().Cache.Result == bypassed {
					name = `tierway_response_cache_bypass_total{reason="` + c.reason + `"} 2`
				}
				if m := r.scrape(); !strings.Contains(m, name+"\n") {
					t.Errorf("no %s", name)
				}
				if got := r.proxy.CacheMemory(); got != (telemetry.CacheMemory{}) {
					t.Errorf("the cache keeps %+v", got)
				}
			})
		})
	}
}

// cachingKeys are tenants of a gateway with a cache. Tenant a has limits.
const cachingKeys = `auth:
  keys:
    - { name: a, sha256: %s, response_cache: true, limits: { rpm: 4, burst: 4, tpm: 100000, day_tokens: 100000 } }
    - { name: b, sha256: %s, response_cache: true }
`

// keyedCachingRig is a gateway whose tier has a cache and a price. more follows the cache.
func keyedCachingRig(t *testing.T, more string, e http.Handler) *rig {
	t.Helper()
	text := fmt.Sprintf(cachingKeys, digestHex("key-a"), digestHex("key-b"))
	text = strings.Replace(cachingRig, "auth: { required: false }\n", text, 1)
	text = strings.Replace(text, "response_cache: { exact: {} }",
		"price: { input: 1000, output: 1000 }\n    response_cache: "+more, 1)
	return newRig(t, text, e)
}

// TestHitsCountAsRequestsWithoutTokens: a hit counts against limits of requests, uses no tokens of the limits, and
// costs the configured share of its price.
func TestHitsCountAsRequestsWithoutTokens(t *testing.T) {
	for _, c := range []struct {
		more  string
		share float64
	}{{"{ exact: {} }", 0}, {"{ exact: {}, cached_price: 0.5 }", 0.5}} {
		synctest.Test(t, func(t *testing.T) {
			e := &numberingEngine{}
			r := keyedCachingRig(t, c.more, e)
			body, key := cacheBodies["/v1/chat/completions"]+"}", []string{"Authorization", "Bearer key-a"}
			now := time.Now()
			for range 4 {
				r.cached("/v1/chat/completions", body, key...)
			}
			if got := r.post("/v1/chat/completions", body, key...); got.status != 429 {
				t.Errorf("the fifth request of 4 got %d", got.status)
			}
			day, _ := r.control.Stores.Limiter.Spent("a", "", now)
			one := tenants.Price{Input: 1000, Output: 1000}.Cost(9, 0, 4)
			if want := one + 3*one.Share(c.share); day.Tokens != 13 || day.Money != want || e.count() != 1 {
				t.Errorf("spent %+v, want 13 tokens and %v; %d requests at the engine", day, want, e.count())
			}
			last := r.recorded().Last(2)
			for _, d := range last {
				if d.Status == 200 && (d.Usage != decisions.Usage{Prompt: 9, Cached: 9, Output: 4} || d.Cache.Result != exactHit ||
					d.Estimated || len(d.Attempts) > 0 || d.Result != decisions.OK || d.Tier != "small" || d.Policy != "") {
					t.Errorf("%+v %+v", d, d.Cache)
				}
			}
		})
	}
}

// TestHitsNeedNoWorker: a hit is sent while the only worker is full and others wait for it, and changes nothing of it.
func TestHitsNeedNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, free := &numberingEngine{}, make(chan struct{})
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Slow") != "" {
				<-free
			}
			e.ServeHTTP(w, r)
		})
		worker := "[ { name: w0, url: " + startServer(t, slow) + ", max_inflight: 1 } ] # %s"
		r := newRig(t, strings.Replace(cachingRig, "[ %s ]", worker, 1))
		const path = "/v1/chat/completions"
		body := cacheBodies[path] + "}"
		r.cached(path, body)
		held := make(chan httpAnswer, 2)
		for _, text := range []string{"a", "b"} { // one is sent, one waits
			go func() { held <- r.post(path, strings.Replace(body, "hi", text, 1), "X-Slow", "1") }()
			synctest.Wait()
		}
		before := r.member("w0").Stats.View(time.Now())
		start := time.Now()
		got, result := r.cached(path, body)
		after := r.member("w0").Stats.View(time.Now())
		if got.status != 200 || result != exactHit || time.Since(start) > 0 || after != before {
			t.Errorf("%d %s after %v", got.status, result, time.Since(start))
		}
		if h := got.header; h.Get("X-Model-Tier") != "small" || h.Get("X-Routed-To") != "" || h.Get("X-Request-Id") == "" ||
			h.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v", h)
		}
		close(free)
		for range 2 {
			if got := <-held; got.status != 200 {
				t.Error(got.status, got.body)
			}
		}
	})
}

// TestAnswersExpireAndRequestsDecideToo: an answer is kept for its time; no-cache replaces it and no-store keeps none.
func TestAnswersExpireAndRequestsDecideToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		r := newRig(t, cachingRig, e)
		const path = "/v1/chat/completions"
		body, other := cacheBodies[path]+"}", strings.Replace(cacheBodies[path], "hi", "ho", 1)+"}"
		steps := []struct {
			body, control string
			pause         time.Duration
			want, answer  string // result, and the text's number
		}{
			{body, "", 0, cacheMiss, "1"},
			{body, "", 59 * time.Second, exactHit, "1"},
			{body, "", time.Second, cacheMiss, "2"},
			{body, "No-Cache", 0, bypassed, "3"},
			{body, "", 0, exactHit, "3"},
			{body, "max-age=0", 0, bypassed, "4"},
			{other, "private, no-store", 0, cacheMiss, "5"},
			{other, "", 0, cacheMiss, "6"},
			{other, "no-store", 0, exactHit, "6"},
			{other, "no-cache, no-store", 0, bypassed, "7"},
			{other, "", 0, exactHit, "6"},
		}
		for i, s := range steps {
			time.Sleep(s.pause)
			var h []string
			if s.control != "" {
				h = []string{"Cache-Control", s.control}
			}
			if got, result := r.cached(path, s.body, h...); result != s.want || !strings.Contains(got.body, `\"`+s.answer+`\"`) {
				t.Errorf("%d: %s %s, want %s %s", i, result, got.body, s.want, s.answer)
			}
		}
	})
}

// TestOtherEndpointsAndHeadersAreOtherPartitions: the same text on another endpoint, and with another version or beta
// of a model's API, is another request.
func TestOtherEndpointsAndHeadersAreOtherPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		r := newRig(t, cachingRig, e)
		body := `{"model":"small","temperature":0,"max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
		for i, c := range []struct {
			path, want string
			headers    []string
		}{
			{"/v1/chat/completions", cacheMiss, nil},
			{"/v1/messages", cacheMiss, nil},
			{"/v1/messages", cacheMiss, []string{"Anthropic-Version", "2023-06-01"}},
			{"/v1/messages", exactHit, []string{"Anthropic-Version", "2023-06-01"}},
			{"/v1/messages", cacheMiss, []string{"Anthropic-Version", "2023-06-01", "Anthropic-Beta", "x"}},
			{"/v1/messages?beta=true", cacheMiss, nil},
			{"/v1/messages", exactHit, nil},
			{"/batch/v1/chat/completions", exactHit, nil},
			{"/openai/deployments/small/chat/completions?api-version=2024-10-21", exactHit, nil},
			{"/v1/messages/count_tokens", "", nil},
		} {
			if _, result := r.cached(c.path, body, c.headers...); result != c.want {
				t.Errorf("%d %s %v: %s", i, c.path, c.headers, result)
			}
		}
	})
}

// TestFallbackAnswersAreNotKept: the answer of another tier stands for this tier only now.
func TestFallbackAnswersAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small, large := &numberingEngine{status: 500}, &numberingEngine{}
		text := `
auth: { required: false }
health: { path: "off" }
breaker: { consecutive_failures: 1000, failure_ratio: 1 }
tiers:
  - name: small
    model: fake-7b
    fallback: [large]
    response_cache: { exact: {} }
    workers: [ { name: s0, url: ` + startServer(t, small) + ` } ]
  - name: large
    model: fake-70b
    response_cache: { exact: {} }
    workers: [ %s ]
`
		r := newRig(t, text, large)
		body := cacheBodies["/v1/chat/completions"] + "}"
		for range 2 {
			got, result := r.cached("/v1/chat/completions", body)
			d := r.lastDecision()
			if got.status != 200 || result != cacheMiss || d.Cache.Answer != "fallback" || d.Tier != "large" {
				t.Errorf("%d %s %+v of %s", got.status, result, d.Cache, d.Tier)
			}
		}
		if _, result := r.cached("/v1/chat/completions", strings.Replace(body, "small", "large", 1)); result != cacheMiss {
			t.Error(result)
		}
	})
}

// TestExplainKnowsTheCache: explain states what the cache would do, and changes nothing.
func TestExplainKnowsTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cachingRig, &numberingEngine{})
		const path = "/v1/chat/completions"
		body := cacheBodies[path] + "}"
		for _, want := range []string{cacheMiss, exactHit} {
			if e := r.explained(path, body); e.Cache == nil || e.Cache.Result != want || e.Worker != "w0" {
				t.Errorf("%+v, want %s", e.Cache, want)
			}
			r.cached(path, body)
		}
		if e := r.explained(path, cacheBodies[path]+`,"n":2}`); e.Cache.Result != bypassed || e.Cache.Reason != "choices" {
			t.Errorf("%+v", e.Cache)
		}
	})
}

// TestAnswersOfPurgedTenantsAreGone: a purge removes the answers of one tenant, also those in flight, and is in the
// audit log.
func TestAnswersOfPurgedTenantsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		text := strings.Replace(adminYAML(memoryDB), "    serves:", "    response_cache: { exact: {} }\n    serves:", 1)
		text = strings.Replace(text, digestHex("filed")+" }", digestHex("filed")+", response_cache: true }", 1)
		r := adminRigOf(newRig(t, text, e))
		body, key := cacheBodies["/v1/chat/completions"]+"}", []string{"Authorization", "Bearer filed"}
		for _, want := range []string{cacheMiss, exactHit} {
			if _, result := r.cached("/v1/chat/completions", body, key...); result != want {
				t.Fatal(result)
			}
		}
		if got := r.ops(http.StatusOK, http.MethodPost, "/admin/tenants/filed/purge-answers", ""); !strings.Contains(got.body,
			`"removed":1`) {
			t.Error(got.body)
		}
		if _, result := r.cached("/v1/chat/completions", body, key...); result != cacheMiss {
			t.Error(result)
		}
		r.ops(http.StatusOK, http.MethodPost, "/admin/tenants/anonymous/purge-answers", "")
		log := r.ops(http.StatusOK, http.MethodGet, "/admin/audit", "").body
		if !strings.Contains(log, `"answers.purge"`) || !strings.Contains(log, `"target":"filed"`) {
			t.Error(log)
		}
	})
}

// TestLongAnswersAreSentButNotKept: an answer over 256 KiB reaches its client, whole and as a stream, and the next
// request reaches the engine. vLLM Router's fork answers 500 instead of one over 8 MiB.
func TestLongAnswersAreSentButNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{200 << 10, 300 << 10, 9 << 20} {
			long := strings.Repeat("a", size)
			n := 0
			r := newRig(t, cachingRig, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n++
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Content-Type", "application/json")
				answer := numberedAnswers[r.URL.Path]
				if strings.Contains(string(body), `"stream":true`) {
					w.Header().Set("Content-Type", "text/event-stream")
					answer = strings.ReplaceAll(numberedStreams[r.URL.Path], "FINISH", "")
				}
				io.WriteString(w, strings.ReplaceAll(answer, "TEXT", long))
			}))
			const path = "/v1/chat/completions"
			for _, more := range []string{"}", `,"stream":true}`} {
				got, _ := r.cached(path, cacheBodies[path]+more)
				if got.status != 200 || len(readContent(t, path, got.body, more != "}").text) != size {
					t.Errorf("%d bytes%s: %d with %d bytes", size, more, got.status, len(got.body))
				}
			}
			want := 2
			if size < 256<<10 {
				want = 1
			}
			if n != want {
				t.Errorf("%d bytes: %d requests at the engine, want %d", size, n, want)
			}
		}
	})
}

// TestWithoutTheKeyNothingIsCached: a tier without response_cache keeps nothing, and sends and records nothing about a
// cache. vLLM Router's fork caches without a setting.
func TestWithoutTheKeyNothingIsCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &numberingEngine{}
		r := newRig(t, plain, e)
		const path = "/v1/chat/completions"
		for range 2 {
			got, result := r.cached(path, cacheBodies[path]+"}")
			h := got.header
			if got.status != 200 || result != "" || h["Cache-Status"] != nil || h["X-Tierway-Cache-Status"] != nil {
				t.Errorf("%d %q %v", got.status, result, got.header)
			}
		}
		if m := r.scrape(); e.count() != 2 || r.proxy.CacheMemory() != (telemetry.CacheMemory{}) ||
			!strings.Contains(m, "tierway_response_cache_lookup_seconds_count 0\n") {
			t.Errorf("%d requests at the engine", e.count())
		}
	})
}
