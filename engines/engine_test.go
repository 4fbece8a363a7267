package engines

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// event is one server-sent event as a client reads it.
type event struct{ name, data string }

// readEvents parses a stream by the rules of the HTML standard, as far as engines use
// them: what lacks its blank line is no event.
func readEvents(t *testing.T, body string) []event {
	t.Helper()
	var events []event
	var current event
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if current != (event{}) {
				events = append(events, current)
			}
			current = event{}
		case field == "data":
			current.data += value
		case field == "event":
			current.name = value
		}
	}
	if current != (event{}) {
		t.Fatalf("the last event %q has no blank line", current.data)
	}
	return events
}

// call asks an engine without a network and returns status and body.
func call(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// ask is call for what must succeed with a JSON object.
func ask(t *testing.T, h http.Handler, path, body string) map[string]any {
	t.Helper()
	status, answer := call(t, h, "POST", path, body)
	if status != 200 {
		t.Fatalf("POST %s %s: %d %s", path, body, status, answer)
	}
	return object(t, answer)
}

func object(t *testing.T, s string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		t.Fatalf("%q is no JSON object: %v", s, err)
	}
	return o
}

// at walks a decoded object by keys and indices.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				t.Fatalf("no object at %v of %v", key, path)
			}
			v = m[key]
		case int:
			list, ok := v.([]any)
			if !ok || key >= len(list) {
				t.Fatalf("no element %d of %v", key, path)
			}
			v = list[key]
		}
	}
	return v
}

func text(t *testing.T, v any, path ...any) string {
	t.Helper()
	s, ok := at(t, v, path...).(string)
	if !ok {
		t.Fatalf("no text at %v of %v", path, v)
	}
	return s
}

func number(t *testing.T, v any, path ...any) int {
	t.Helper()
	n, ok := at(t, v, path...).(float64)
	if !ok {
		t.Fatalf("no number at %v of %v", path, v)
	}
	return int(n)
}

func TestRefusalsAreInTheDialect(t *testing.T) {
	e := New(Config{Model: "m", Context: 64})
	long := strings.Repeat("word ", 100)
	table := []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[`, 400, "valid JSON"},
		{"POST", "/v1/chat/completions", `[]`, 400, "valid JSON"},
		{"POST", "/v1/chat/completions", `{"model":3}`, 400, "model"},
		{"POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, 400, "model"},
		{"POST", "/v1/chat/completions", `{"model":"x","messages":[{"role":"user","content":"a"}]}`, 404, `"x"`},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[]}`, 400, "messages"},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":7}]}`, 400, "content"},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":0}`, 400,
			"max_tokens"},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a"}],"n":129}`, 400, "128"},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a"}],"tool_choice":"must"}`, 400,
			"tool_choice"},
		{"POST", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[],"tool_choice":{"type":"function","function":{"name":"f"}}}`, 400, `"f"`},
		{"POST", "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"a"}],"response_format":{"type":"xml"}}`, 400, "xml"},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`, 400,
			"maximum context length"},
		{"POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":65}`, 400,
			"max_model_len"},
		{"POST", "/v1/completions", `{"model":"m"}`, 400, "prompt"},
		{"POST", "/v1/completions", `{"model":"m","prompt":{}}`, 400, "input"},
		{"POST", "/v1/responses", `{"model":"m"}`, 400, "input"},
		{"POST", "/v1/responses", `{"model":"m","input":"a","previous_response_id":"resp_x"}`, 404, "resp_x"},
		{"POST", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"a"}]}`, 400, "max_tokens"},
		{"POST", "/v1/messages", `{"model":"x","max_tokens":3,"messages":[{"role":"user","content":"a"}]}`, 404,
			"does not exist"},
		{"POST", "/v1/embeddings", `{"model":"m","input":""}`, 400, "empty"},
		{"POST", "/v1/embeddings", `{"model":"m","input":"a","dimensions":0}`, 400, "dimensions"},
		{"POST", "/v1/embeddings", `{"model":"m","input":"a","encoding_format":"hex"}`, 400, "hex"},
		{"POST", "/v1/rerank", `{"model":"m","query":"a"}`, 400, "documents"},
		{"POST", "/v1/score", `{"model":"m","text_1":["a","b"],"text_2":["c"]}`, 400, "2 against 1"},
		{"POST", "/tokenize", `{"model":"m"}`, 400, "prompt or messages"},
		{"POST", "/v1/audio/transcriptions", `{"model":"m"}`, 400, "multipart"},
		{"POST", "/v1/images/generations", `{"model":"m","prompt":"a","n":11}`, 400, "11"},
		{"GET", "/v1/chat/completions", ``, 405, "POST"},
		{"GET", "/v1/nowhere", ``, 404, "/v1/nowhere"},
		{"GET", "/v1/responses/resp_x", ``, 404, "resp_x"},
		{"PUT", "/v1/responses/resp_x", ``, 405, "DELETE"},
		{"POST", "/v1/responses/resp_x/cancel", ``, 404, "resp_x"},
	}
	for _, row := range table {
		status, body := call(t, e, row.method, row.path, row.body)
		if status != row.status || !strings.Contains(object(t, body)["error"].(map[string]any)["message"].(string),
			row.says) {
			t.Errorf("%s %s %.80s: %d %s, want %d and %q", row.method, row.path, row.body, status, body, row.status, row.says)
		}
		if anthropic := strings.HasPrefix(row.path, "/v1/messages"); anthropic != (object(t, body)["type"] == "error") {
			t.Errorf("%s answers in the wrong dialect: %s", row.path, body)
		}
		if !strings.HasPrefix(row.path, "/v1/messages") && number(t, object(t, body), "error", "code") != row.status {
			t.Errorf("%s: the code is not the status: %s", row.path, body)
		}
	}
	s := e.Stats()
	if s.Open != 0 || s.Running != 0 || s.Cancelled != 0 || s.Written != (Tokens{}) {
		t.Errorf("refusals left %+v", s)
	}
}

func TestModelsHealthAndMetricsAnswer(t *testing.T) {
	e := New(Config{Name: "small-0", Model: "m", CacheTokens: 1600})
	for range 2 {
		ask(t, e, "/v1/completions", `{"model":"m","prompt":"`+strings.Repeat("abcd", 40)+`","max_tokens":4}`)
	}
	_, models := call(t, e, "GET", "/v1/models", "")
	if text(t, object(t, models), "data", 0, "id") != "m" {
		t.Errorf("models: %s", models)
	}
	if status, body := call(t, e, "GET", "/health", ""); status != 200 || body != "" {
		t.Errorf("health: %d %q", status, body)
	}
	_, metrics := call(t, e, "GET", "/metrics", "")
	for _, line := range []string{
		`vllm:num_requests_running{engine="0",model_name="m"} 0`,
		`vllm:num_requests_waiting{engine="0",model_name="m"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0`,
		`vllm:generation_tokens_total{engine="0",model_name="m"} 8`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics lack %q:\n%s", line, metrics)
		}
	}
	if got := e.Stats().Requests; got["/v1/completions"] != 2 || got["/metrics"] != 1 {
		t.Errorf("requests by path: %v", got)
	}
}

func TestScriptOverridesTheAnswer(t *testing.T) {
	e := New(Config{AnyModel: true, Script: func(path string, body []byte) Script {
		if strings.Contains(string(body), "twelve") {
			return Script{Tokens: 12}
		}
		return Script{Text: "Exactly this."}
	}})
	said := ask(t, e, "/v1/chat/completions", `{"model":"any","messages":[{"role":"user","content":"hi"}]}`)
	if got := text(t, said, "choices", 0, "message", "content"); got != "Exactly this." {
		t.Errorf("answered %q", got)
	}
	long := ask(t, e, "/v1/chat/completions", `{"model":"any","messages":[{"role":"user","content":"twelve"}]}`)
	if got := number(t, long, "usage", "completion_tokens"); got != 12 {
		t.Errorf("answered %d tokens", got)
	}
}

// until waits for what another goroutine brings about; the test's own timeout bounds it.
func until(t *testing.T, happened func() bool) {
	t.Helper()
	for !happened() {
		if t.Context().Err() != nil {
			t.Fatal("it never happened")
		}
		runtime.Gosched()
	}
}

// counted lets a test wait for handlers instead of for time.
type counted struct {
	http.Handler
	done chan struct{}
}

func (c counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() { c.done <- struct{}{} }()
	c.Handler.ServeHTTP(w, r)
}

func TestDisconnectedClientsReleaseTheirSlots(t *testing.T) {
	const clients, slots = 40, 8
	e := New(Config{Model: "m", Slots: slots, Script: func(string, []byte) Script { return Script{HoldAfter: 2} }})
	done := make(chan struct{}, clients)
	s, err := Start(counted{e, done}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, clients)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for i := range clients {
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "POST", s.URL+"/v1/chat/completions",
				strings.NewReader(`{"model":"m","stream":`+[]string{"true", "false"}[i%2]+
					`,"messages":[{"role":"user","content":"hi"}]}`))
			resp, err := client.Do(r)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			started <- err
		}()
	}
	until(t, func() bool { return e.Stats().Waiting == clients-slots }) // the slots are full, the others stand in line
	cancel()
	for range clients {
		<-done
		if err := <-started; err == nil {
			t.Error("a cancelled request succeeded")
		}
	}
	got := e.Stats()
	if got.Open != 0 || got.Running != 0 || got.Waiting != 0 || got.Cancelled != clients || got.MaxConcurrent != slots ||
		got.CancelledAt.IsZero() {
		t.Errorf("after all left: %+v", got)
	}
	if e.decoding.Load() != 0 || e.inUse.Load() != 0 {
		t.Errorf("decoding %d, tokens in use %d", e.decoding.Load(), e.inUse.Load())
	}
}

func TestTwoThousandStreamsAtOnce(t *testing.T) {
	const streams = 2000
	release := make(chan struct{})
	e := New(Config{Model: "m", Slots: streams, Script: func(string, []byte) Script {
		return Script{Tokens: 8, HoldAfter: 4, Release: release}
	}})
	ended := make(chan string, streams)
	for range streams {
		go func() {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat/completions",
				strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)))
			ended <- w.Body.String()
		}()
	}
	until(t, func() bool { return e.Stats().Running == streams })
	close(release)
	for range streams {
		if body := <-ended; !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Fatalf("a stream ended in %q", body)
		}
	}
	if got := e.Stats(); got.MaxConcurrent != streams || got.Open != 0 || got.Written.Output != 8*streams {
		t.Errorf("afterwards %+v", got)
	}
}

func TestDemoStartsQuickly(t *testing.T) {
	fleet := Demo(7)
	models := make(map[string]int)
	var names []string
	for _, c := range fleet {
		models[c.Model]++
		names = append(names, c.Name)
		e := New(c)
		if first := e.prefillTime(1000); first.Seconds() >= 0.3 {
			t.Errorf("%s reads a thousand tokens in %v", c.Name, first)
		}
	}
	slices.Sort(names)
	if len(models) != 3 || len(slices.Compact(names)) != len(fleet) || models["demo-small-7b"] != 3 ||
		models["demo-large-70b"] != 2 {
		t.Errorf("the fleet is %v", names)
	}
	if again := Demo(7); again[3].Prefill != fleet[3].Prefill {
		t.Error("equal seeds make different fleets")
	}
}

func FuzzRequests(f *testing.F) {
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
		"/v1/messages/count_tokens",
		"/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/moderations", "/tokenize", "/v1/audio/speech",
		"/v1/images/generations"} {
		f.Add(path,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"weather"},{"type":"image_url","image_url":{"url":"data:,"}}]}],"prompt":[[1,2],[3]],"input":"x","max_tokens":3,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"stop":["a"],"stream":true}`)
		f.Add(path,
			`{"model":"m","messages":null,"input":null,"prompt":null,"query":"","text_1":null,"stop":null,"tool_choice":null,"n":null}`)
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " \r\n?#%") {
			return
		}
		e := New(Config{Model: "m", Context: 512, CacheTokens: 256})
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body))
		r.URL.Path = path
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		e.Close()
		if w.Code != 200 && (w.Code < 400 || w.Code > 499) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if s := e.Stats(); s.Open != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}
