package engines

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pair returns a prefill and a decode engine that are connected, with 1,000 prompt tokens per second.
func pair(change func(c *Config)) (prefill, decode *Engine) {
	peers := new(Peers)
	each := func(role string) *Engine {
		c := timed(8)
		c.Handover, c.Role, c.Peers, c.Name = HandoverNIXL, role, peers, role
		if change != nil {
			change(&c)
		}
		return New(c)
	}
	return each(RolePrefill), each(RoleDecode)
}

// dialects are the fields of one conversation in each dialect, and the bound of the answer's length.
var dialects = []struct{ path, fields, bound string }{
	{"/v1/chat/completions", `"model":"m",` + long("messages"), "max_tokens"},
	{"/v1/completions", `"model":"m",` + long("prompt"), "max_tokens"},
	{"/v1/messages", `"model":"m",` + long("messages"), "max_tokens"},
	{"/v1/responses", `"model":"m",` + long("input"), "max_output_tokens"},
}

// long returns a field with a prompt of more than 100 tokens.
func long(field string) string {
	text := strings.Repeat("some words ", 40)
	if field == "messages" {
		return `"messages":[{"role":"user","content":"` + text + `"}]`
	}
	return `"` + field + `":"` + text + `"`
}

const askPrefill = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,` +
	`"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// transferred returns the object of a prefill answer, byte by byte.
func transferred(t *testing.T, e *Engine, path, fields string) string {
	t.Helper()
	status, answer := call(t, e, "POST", path, "{"+fields+","+askPrefill+"}")
	if status != 200 {
		t.Fatalf("prefill by %s: %d %s", path, status, answer)
	}
	return rawObject(t, answer)
}

// rawObject returns the object of an answer, byte by byte.
func rawObject(t *testing.T, answer string) string {
	t.Helper()
	var body struct {
		Params json.RawMessage `json:"kv_transfer_params"`
	}
	if err := json.Unmarshal([]byte(answer), &body); err != nil || len(body.Params) < 10 {
		t.Fatalf("an answer without an object: %s %v", answer, err)
	}
	return string(body.Params)
}

// ended verifies that engines hold nothing.
func ended(t *testing.T, engines ...*Engine) {
	t.Helper()
	for _, e := range engines {
		s := e.Stats()
		if s.Open != 0 || s.Running != 0 || s.BlocksPinned != 0 || e.inUse.Load() != 0 || e.decoding.Load() != 0 {
			t.Errorf("%s holds %+v", e.c.Name, s)
		}
		if p := e.c.Peers; len(p.transfers)+len(p.pinned) != 0 {
			t.Errorf("%d transfers are left", len(p.transfers))
		}
	}
}

func TestNixlObjectCarriesAPromptInEveryDialect(t *testing.T) {
	for _, d := range dialects {
		for _, stream := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				prefill, decode := pair(nil)
				alone := New(timed(8))
				fields := d.fields + `,"` + d.bound + `":`
				began := time.Now()
				object := transferred(t, prefill, d.path, fields+"1")
				took := time.Since(began)
				if n := prefill.Stats().BlocksPinned; n < 7 || took < 100*time.Millisecond {
					t.Errorf("%s: %d blocks are pinned after %v", d.path, n, took)
				}
				ids := at(t, map[string]any{"o": parsed(t, object)}, "o", "remote_block_ids", 0).([]any)
				if n, _ := ids[0].(json.Number).Int64(); n <= 1<<53 || int64(float64(n)) == n {
					t.Errorf("the first block is %d, which a float64 can hold", n)
				}
				body := fmt.Sprintf(`{%s9,"stream":%v`, fields, stream)
				began = time.Now()
				status, got := call(t, decode, "POST", d.path, body+`,"kv_transfer_params":`+object+"}")
				if took := time.Since(began); status != 200 || took > 100*time.Millisecond || took < 82*time.Millisecond {
					t.Errorf("%s: decoded in %v: %d %s", d.path, took, status, got)
				}
				_, want := call(t, alone, "POST", d.path, body+"}")
				if said(t, d.path, stream, got) != said(t, d.path, stream, want) {
					t.Errorf("%s: the answer is %s, want %s", d.path, got, want)
				}
				s := decode.Stats()
				if s.ObjectsUsed != 1 || s.Written.Cached != s.Written.Prompt-1 || s.WrongAnswers != 0 {
					t.Errorf("%s: %+v", d.path, s)
				}
				if s := prefill.Stats(); s.BlocksLeaked != 0 {
					t.Errorf("%d blocks leaked", s.BlocksLeaked)
				}
				ended(t, prefill, decode)
				// The same object again.
				if status, got = call(t, decode, "POST", d.path, body+`,"kv_transfer_params":`+object+"}"); status != 200 ||
					said(t, d.path, stream, got) != WrongAnswer || decode.Stats().ObjectsReused != 1 {
					t.Errorf("%s: an object used twice gave %d %s", d.path, status, got)
				}
				ended(t, prefill, decode)
			})
		}
	}
}

// parsed decodes an object with exact numbers.
func parsed(t *testing.T, s string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

// said returns the text of an answer in any dialect.
func said(t *testing.T, path string, stream bool, answer string) string {
	t.Helper()
	if !stream {
		o := object(t, answer)
		switch path {
		case "/v1/chat/completions":
			return text(t, o, "choices", 0, "message", "content")
		case "/v1/completions":
			return text(t, o, "choices", 0, "text")
		case "/v1/messages":
			return text(t, o, "content", 0, "text")
		}
		return text(t, o, "output", 0, "content", 0, "text")
	}
	all := ""
	for _, ev := range readEvents(t, answer) {
		if ev.data == "[DONE]" {
			continue
		}
		var o struct {
			Choices []struct {
				Text  string
				Delta struct{ Content string }
			}
			Type  string
			Delta any
		}
		if err := json.Unmarshal([]byte(ev.data), &o); err != nil {
			t.Fatalf("%s: %v", ev.data, err)
		}
		for _, c := range o.Choices {
			all += c.Text + c.Delta.Content
		}
		switch d := o.Delta.(type) {
		case string:
			all += d
		case map[string]any:
			s, _ := d["text"].(string)
			all += s
		}
	}
	return all
}

func TestNixlObjectThatDoesNotFit(t *testing.T) {
	const path = "/v1/chat/completions"
	fields := `"model":"m","max_tokens":4,` + long("messages")
	other := `"model":"m","max_tokens":4,"messages":[{"role":"user","content":"` + strings.Repeat("others too ", 40) + `"}]`
	set := func(name string, v any) func(map[string]any) {
		return func(o map[string]any) { o[name] = v }
	}
	table := map[string]struct {
		change             func(o map[string]any)
		wait               time.Duration
		restart            bool
		fields             string
		status             int
		wrong              bool
		recomputed, leaked bool
	}{
		"as it is":            {status: 200},
		"just in time":        {wait: 30*time.Second - 1, status: 200},
		"expired":             {wait: 30 * time.Second, status: 200, recomputed: true, leaked: true},
		"restarted":           {restart: true, status: 500},
		"unknown request":     {change: set("remote_request_id", "x"), status: 200, recomputed: true, leaked: true},
		"other host":          {change: set("remote_host", "10.0.0.9"), status: 500, leaked: true},
		"other port":          {change: set("remote_port", 5601), status: 500, leaked: true},
		"rounded block ids":   {change: set("remote_block_ids", [][]float64{{1 << 53}}), status: 200, wrong: true},
		"flat block ids":      {change: set("remote_block_ids", []int{1}), status: 200, wrong: true},
		"other prompt":        {fields: other, status: 200, wrong: true},
		"no engine":           {change: set("remote_engine_id", nil), status: 200, recomputed: true, leaked: true},
		"no request":          {change: set("remote_request_id", nil), status: 200, recomputed: true, leaked: true},
		"no host":             {change: set("remote_host", nil), status: 200, recomputed: true, leaked: true},
		"no port":             {change: set("remote_port", nil), status: 200, recomputed: true, leaked: true},
		"not asked for":       {change: set("do_remote_prefill", false), status: 200, leaked: true},
		"wrong type":          {change: set("remote_port", "x"), status: 400, leaked: true},
		"rejected":            {fields: fields + `,"n":0`, status: 400, leaked: true},
		"other model":         {fields: `"model":"x","max_tokens":4,` + long("messages"), status: 404},
		"too many tokens":     {fields: `"model":"m","max_tokens":99999,` + long("messages"), status: 400},
		"full queue":          {fields: fields + `,"seed":429`, status: 429},
		"overloaded":          {fields: fields + `,"seed":503`, status: 503},
		"log-probabilities":   {fields: fields + `,"prompt_logprobs":0`, status: 500, leaked: true},
		"ids of the prompt":   {change: set("prompt_token_ids", chatIDs(fields)), status: 200},
		"ids of other prompt": {change: set("prompt_token_ids", chatIDs(other)), status: 200, wrong: true},
	}
	for name, row := range table {
		synctest.Test(t, func(t *testing.T) {
			prefill, decode := pair(func(c *Config) {
				c.Script = func(_ string, body []byte) (s Script) {
					if _, seed, found := strings.Cut(string(body), `"seed":`); found {
						s.Refuse, _ = strconv.Atoi(seed[:3])
					}
					return s
				}
			})
			o := parsed(t, transferred(t, prefill, path, fields))
			if row.change != nil {
				row.change(o)
			}
			time.Sleep(row.wait)
			if row.restart {
				prefill.Restart()
			}
			params, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			if row.fields == "" {
				row.fields = fields
			}
			status, got := call(t, decode, "POST", path, "{"+row.fields+`,"kv_transfer_params":`+string(params)+"}")
			if status != row.status || strings.Contains(got, WrongAnswer) != row.wrong {
				t.Errorf("%s: %d %s", name, status, got)
			}
			s := decode.Stats()
			if (s.Recomputed == 1) != row.recomputed || (s.WrongAnswers == 1) != row.wrong || s.ObjectsReused != 0 {
				t.Errorf("%s: %+v", name, s)
			}
			if tokenized := int64(1); s.Tokenized != tokenized && name[:3] != "ids" && (row.status == 200 || row.status == 500) {
				t.Errorf("%s: %d prompts were tokenized", name, s.Tokenized)
			} else if name == "ids of the prompt" && s.Tokenized != 0 {
				t.Errorf("%s: %d prompts were tokenized", name, s.Tokenized)
			}
			time.Sleep(31 * time.Second)
			if leaked := prefill.Stats().BlocksLeaked; (leaked > 0) != row.leaked {
				t.Errorf("%s: %d blocks leaked", name, leaked)
			}
			ended(t, prefill, decode)
		})
	}
}

// chatIDs returns the tokens of a chat request.
func chatIDs(fields string) []uint32 {
	ids, _ := ChatTokens([]byte("{" + fields + "}"))
	return ids
}

func TestNixlStreamFailsWithAnErrorEvent(t *testing.T) {
	for _, d := range dialects {
		prefill, decode := pair(func(c *Config) { c.Prefill, c.PerToken = 0, 0 })
		fields := d.fields + `,"` + d.bound + `":1`
		o := transferred(t, prefill, d.path, fields)
		prefill.Restart()
		status, got := call(t, decode, "POST", d.path, "{"+fields+`,"stream":true,"kv_transfer_params":`+o+"}")
		if status != 200 || !strings.Contains(got, "the handshake failed") || strings.Contains(got, `"delta"`) {
			t.Errorf("%s: %d %s", d.path, status, got)
		}
		readEvents(t, got)
		ended(t, prefill, decode)
		if w := decode.Stats().Written; w != (Tokens{}) {
			t.Errorf("%s: %+v was reported", d.path, w)
		}
	}
}

func TestNixlChoicesKeepBlocksOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := pair(nil)
		fields := `"model":"m","n":3,"max_tokens":1,` + long("messages")
		o := transferred(t, prefill, "/v1/chat/completions", fields)
		each := prefill.Stats().BlocksPinned / 3
		_, got := call(t, decode, "POST", "/v1/chat/completions", "{"+fields+`,"kv_transfer_params":`+o+"}")
		if n := strings.Count(got, WrongAnswer); n != 2 || prefill.Stats().BlocksPinned != 2*each || each < 7 {
			t.Errorf("%d choices are wrong, %d of %d blocks remain: %s", n, prefill.Stats().BlocksPinned, 3*each, got)
		}
		status, got := call(t, decode, "POST", "/v1/completions", `{"model":"m","prompt":["a","b"],"kv_transfer_params":`+o+"}")
		if status != 500 {
			t.Errorf("two prompts with one object: %d %s", status, got)
		}
		time.Sleep(30 * time.Second)
		if s := prefill.Stats(); s.BlocksLeaked != int64(2*each) {
			t.Errorf("%+v", s)
		}
		ended(t, prefill, decode)
	})
}

func TestWrongAnswersAreMarkedInEveryForm(t *testing.T) {
	prefill, decode := pair(func(c *Config) { c.Prefill, c.PerToken = 0, 0 })
	const params = `"parameters":{"type":"object","properties":{"a":{"type":"integer"}}}`
	const tools = `,"tools":[{"type":"function","function":{"name":"look",` + params + `}},` +
		`{"type":"function","function":{"name":"find",` + params + `}}],"tool_choice":"required"`
	for _, row := range []struct{ path, fields string }{
		{"/v1/chat/completions", `"max_tokens":99,` + long("messages") + tools},
		{"/v1/chat/completions", `"max_tokens":99,"logprobs":true,"top_logprobs":2,` + long("messages")},
		{"/v1/chat/completions", `"max_tokens":99,"response_format":{"type":"json_object"},` + long("messages")},
		{"/v1/completions", `"max_tokens":99,"logprobs":1,` + long("prompt")},
		{"/v1/completions", `"max_tokens":99,"return_token_ids":true,` + long("prompt")},
		{"/v1/messages", `"max_tokens":99,` + long("messages") +
			`,"tool_choice":{"type":"any"},"tools":[{"name":"look","input_schema":{"type":"object"}}]`},
		{"/v1/responses", `"max_output_tokens":99,` + long("input") +
			`,"tool_choice":"required","tools":[{"type":"function","name":"look",` + params + `}]`},
	} {
		o := transferred(t, prefill, row.path, `"model":"m",`+row.fields)
		for i, stream := range []bool{false, false, true} {
			status, got := call(t, decode, "POST", row.path,
				fmt.Sprintf(`{"model":"m",%s,"stream":%v,"kv_transfer_params":%s}`, row.fields, stream, o))
			if status != 200 || strings.Contains(got, WrongAnswer) != (i > 0) {
				t.Errorf("use %d of an object, %s %s: %d %s", i+1, row.path, row.fields, status, got)
			}
		}
	}
	ended(t, prefill, decode)
	if s := decode.Stats(); s.ObjectsReused != s.WrongAnswers || s.WrongAnswers != 2*s.ObjectsUsed {
		t.Errorf("%+v", s)
	}
}

// leaving posts a request whose client leaves after a time.
func leaving(t *testing.T, e *Engine, after time.Duration, path, body string, headers map[string]string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
	for name, v := range headers {
		r.Header.Set(name, v)
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestEnginesOfVLLMJudgeABudgetOfThinkingExceptInPrefills(t *testing.T) {
	e := New(Config{Model: "m", Handover: HandoverNIXL, Peers: new(Peers)})
	for fields, want := range map[string]int{
		`"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":9}`:               400,
		`"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":8}`:               200,
		`"max_tokens":9,"thinking":{"type":"disabled","budget_tokens":9}`:              200,
		`"max_tokens":1,"thinking":{"type":"enabled","budget_tokens":9},` + askPrefill: 200,
	} {
		if status, got := call(t, e, "POST", "/v1/messages", `{"model":"m",`+fields+","+long("messages")+"}"); status != want {
			t.Errorf("%s: %d %s", fields, status, got)
		}
	}
	if status, got := call(t, e, "POST", "/v1/completions", `{"model":"m","min_tokens":17,`+long("prompt")+"}"); status != 400 {
		t.Errorf("above the default limit: %d %s", status, got)
	}
}

// A gateway that turns a request into a prefill has to change several fields together.
func TestEnginesOfVLLMRejectHalfChangedRequests(t *testing.T) {
	for _, kind := range []string{HandoverNIXL, HandoverP2PNCCL, HandoverShared} {
		e := New(Config{Model: "m", Handover: kind})
		for fields, name := range map[string]string{
			`"max_tokens":1,"min_tokens":2`:                                "min_tokens",
			`"max_tokens":9,"max_completion_tokens":1,"min_tokens":2`:      "min_tokens",
			`"max_tokens":1,"max_completion_tokens":2,"min_tokens":2`:      "",
			`"max_tokens":1,"min_tokens":1`:                                "",
			`"max_tokens":1,"min_tokens":null`:                             "",
			`"min_tokens":2`:                                               "",
			`"max_tokens":1,"stream_options":{"include_usage":true}`:       "stream_options",
			`"max_tokens":1,"stream":false,"stream_options":{"a":1}`:       "stream_options",
			`"max_tokens":1,"stream":false,"stream_options":null`:          "",
			`"max_tokens":1,"stream_options":{}`:                           "",
			`"max_tokens":1,"stream":true,"stream_options":{"a":1}`:        "",
			`"max_tokens":1,"stream":null,"stream_options":{"a":{"b":[]}}`: "stream_options",
		} {
			for _, input := range []string{"messages", "prompt"} {
				path := map[string]string{"messages": "/v1/chat/completions", "prompt": "/v1/completions"}[input]
				status, got := call(t, e, "POST", path, `{"model":"m",`+fields+","+long(input)+"}")
				if (status == 400) != (name != "") || !strings.Contains(got, name) {
					t.Errorf("%s %s %s: %d %s", kind, path, fields, status, got)
				}
			}
		}
	}
}

func TestNixlScriptKeepsNoBlocks(t *testing.T) {
	prefill, _ := pair(func(c *Config) {
		c.Prefill, c.PerToken = 0, 0
		c.Script = func(string, []byte) Script { return Script{NoObject: true} }
	})
	for _, d := range dialects {
		got := ask(t, prefill, d.path, "{"+d.fields+`,"`+d.bound+`":1,`+askPrefill+"}")
		if params, ok := got["kv_transfer_params"]; !ok || params != nil {
			t.Errorf("%s: %v", d.path, params)
		}
	}
	ended(t, prefill)
}

func TestNixlClientThatLeavesFreesBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := pair(func(c *Config) { c.Transfer = time.Millisecond })
		const path = "/v1/chat/completions"
		fields := `"model":"m","max_tokens":4,` + long("messages")
		leaving(t, prefill, 50*time.Millisecond, path, "{"+fields+","+askPrefill+"}", nil)
		ended(t, prefill)
		o := transferred(t, prefill, path, fields)
		leaving(t, decode, 50*time.Millisecond, path, "{"+fields+`,"kv_transfer_params":`+o+"}", nil) // in the transfer
		ended(t, prefill, decode)
		if s := decode.Stats(); s.Cancelled != 1 || s.ObjectsUsed != 1 || prefill.Stats().BlocksLeaked != 0 {
			t.Errorf("%+v", s)
		}
		// A restart in the transfer.
		o = transferred(t, prefill, path, fields)
		var all sync.WaitGroup
		all.Go(func() {
			status, got := call(t, decode, "POST", path, "{"+fields+`,"kv_transfer_params":`+o+"}")
			if status != 500 {
				t.Errorf("the prefill engine restarted in the transfer: %d %s", status, got)
			}
		})
		time.Sleep(10 * time.Millisecond)
		_, metrics := call(t, decode, "GET", "/metrics", "")
		if s := decode.Stats(); s.Waiting != 1 || !strings.Contains(metrics, `num_requests_waiting{engine="0",model_name="m"} 1`) {
			t.Errorf("in a transfer: %+v %s", s, metrics)
		}
		prefill.Restart()
		all.Wait()
		ended(t, prefill, decode)
	})
}

// TestAKilledReaderLeavesBlocksToTheirLease: only those whose transfer has not ended. Their object is spent.
func TestAKilledReaderLeavesBlocksToTheirLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefill, decode := pair(func(c *Config) { c.Transfer = time.Millisecond })
		const path = "/v1/chat/completions"
		fields := `"model":"m","max_tokens":4,` + long("messages")
		for i, after := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond} { // a transfer takes 0.1 s
			_, answer := leaving(t, prefill, time.Minute, path, "{"+fields+","+askPrefill+"}",
				map[string]string{"X-Request-Id": []string{"within", "after"}[i]})
			o := `,"kv_transfer_params":` + rawObject(t, answer) + "}"
			time.AfterFunc(after-time.Millisecond, decode.Kill)
			leaving(t, decode, after, path, "{"+fields+o, nil)
			decode.Restart()
			if status, got := call(t, decode, "POST", path, "{"+fields+o); status != 200 || !strings.Contains(got, WrongAnswer) {
				t.Errorf("the object is used again: %d %s", status, got)
			}
		}
		time.Sleep(31 * time.Second)
		if got := prefill.c.Peers.Expired(); len(got) != 1 || got[0] != "within" {
			t.Errorf("blocks expire of the requests %q", got)
		}
		ended(t, prefill, decode)
	})
}

func TestTokenIDsAreReturnedWhereVLLMReturnsThem(t *testing.T) {
	e := New(Config{Model: "m"})
	chat := ask(t, e, "/v1/chat/completions", `{"model":"m","return_token_ids":true,"max_tokens":2,`+long("messages")+"}")
	want := chatIDs(`"model":"m",` + long("messages"))
	if got := at(t, chat, "prompt_token_ids").([]any); len(got) != len(want) || got[9] != float64(want[9]) {
		t.Errorf("chat returns %v", got)
	}
	if got := at(t, chat, "choices", 0, "token_ids").([]any); len(got) != 2 {
		t.Errorf("a chat of two tokens returns %v", got)
	}
	whole := ask(t, e, "/v1/completions", `{"model":"m","return_token_ids":true,"max_tokens":2,"n":2,"prompt":[[1,2],[3,4]]}`)
	for i, first := range []float64{1, 1, 3, 3} {
		if got := at(t, whole, "choices", i, "prompt_token_ids", 0); got != first {
			t.Errorf("choice %d has the prompt %v", i, got)
		}
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"m","stream":true,"return_token_ids":true,"max_tokens":3,` + long("messages") + "}",
		"/v1/completions":      `{"model":"m","stream":true,"return_token_ids":true,"max_tokens":3,` + long("prompt") + "}",
	} {
		events, prompts, generated := readEvents(t, second(call(t, e, "POST", path, body))), 0, 0
		for _, ev := range events[:len(events)-1] {
			o := object(t, ev.data)
			one := at(t, o, "choices", 0).(map[string]any)
			for _, holder := range []map[string]any{o, one} {
				if ids, ok := holder["prompt_token_ids"].([]any); ok {
					prompts += len(ids)
				}
			}
			ids, _ := one["token_ids"].([]any)
			generated += len(ids)
		}
		if prompts < 100 || prompts > len(want) || generated != 3 {
			t.Errorf("a stream of %s has the ids of %d and %d tokens", path, prompts, generated)
		}
	}
	if s := e.Stats(); s.Tokenized != 3 {
		t.Errorf("%d prompts were tokenized", s.Tokenized)
	}
	if _, ok := ask(t, e, "/v1/completions", `{"model":"m","prompt":"a"}`)["choices"].([]any)[0].(map[string]any)["token_ids"]; ok {
		t.Error("token ids are returned unasked")
	}
}

func second(_ int, body string) string { return body }

func TestEngineWithoutHandoverIgnoresItsFields(t *testing.T) {
	for _, c := range []Config{{Model: "m"}, {Model: "m", Handover: HandoverP2PNCCL},
		{Model: "m", Handover: HandoverSGLang}, {Model: "m", Handover: HandoverShared}} {
		e := New(c)
		for _, d := range dialects {
			body := "{" + d.fields + `,"` + d.bound + `":3,"bootstrap_room":[],` + askPrefill + "}"
			if got := ask(t, e, d.path, body); maps.Clone(got)["kv_transfer_params"] != nil {
				t.Errorf("%q %s: %v", c.Handover, d.path, got)
			}
		}
		if s := e.Stats(); s.BlocksPinned != 0 {
			t.Errorf("%+v", s)
		}
	}
}
