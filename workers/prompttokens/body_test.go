package prompttokens

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"tierway/openai"
	"tierway/openai/prompt"
)

// FuzzRequestsForTokens checks that requests to engines are JSON with the messages of the client's request, and
// that no body makes a look-up fail.
func FuzzRequestsForTokens(f *testing.F) {
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hello"}]}`,
		`{"messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"text","text":"b"}]}],"model":"m\"",
			"tools":[{"type":"function"}],"chat_template_kwargs":{"a":[1]},"tool_choice":"auto"}`,
		`{"model":"m","messages":[],"add_generation_prompt":false,"chat_template":"x","documents":null}`,
		`{"model":"m","messages":"x","tool_choice":"none","tools":[1]}`,
		`{"model":"m","prompt":"a\u00e9\n","add_special_tokens":false}`,
		`{"model":"m","prompt":[["a"]]}`, `{"model":"m","prompt":[1,2,3]}`, `{"model":"m","prompt":[[1]]}`, `{"model":"m","prompt":[]}`,
	} {
		f.Add([]byte(body))
	}
	for _, d := range []openai.Dialect{openai.Chat, openai.Messages, openai.Responses} {
		body, err := json.Marshal(agentTurns(d, 2))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	for _, body := range []string{
		`{"model":"m","max_tokens":1,"system":[],"tools":[{"name":"a","input_schema":{ }}],"messages":[{"role":"user","content":[]},
			{"role":"system","content":"s"},{"role":"user","content":[{"type":"tool_result","content":[]}]}]}`,
		`{"model":"m","input":[{"type":"reasoning","summary":[]},{"type":"custom_tool_call","input":"<"},{"role":"user","content":[]}],
			"tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]},{"type":"custom","name":"c"}]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, d := range []openai.Dialect{openai.Chat, openai.Completions, openai.Messages, openai.Responses} {
			r, err := openai.Parse(d, raw)
			if err != nil {
				continue
			}
			q := &Query{Request: r, BlockSize: 16}
			q.Chain, _ = prompt.AppendChain(nil, r, 0)
			s := New(Config{})
			if p := s.Remembered(q, nil); p.Tokens == 0 && len(p.Keys) > 0 {
				t.Errorf("%+v of a prompt that was never seen", p)
			}
			if len(q.Chain) == 0 {
				continue
			}
			fields := readFields(r)
			j := newJob(q, &fields)
			if !j.prepare() {
				continue
			}
			var sent, received map[string]any
			if err := json.Unmarshal(j.body, &sent); err != nil {
				t.Fatalf("%s: %v", j.body, err)
			}
			if err := json.Unmarshal(raw, &received); err != nil {
				t.Fatal(err)
			}
			if d == openai.Messages || d == openai.Responses || bytes.Contains(raw, []byte("reason")) ||
				bytes.Contains(raw, []byte("documents")) || bytes.Contains(raw, []byte(`\u`)) {
				checkParts(t, j)
				continue // translated
			}
			for _, name := range []string{"messages", "prompt", "tools", "chat_template_kwargs"} {
				if !reflect.DeepEqual(sent[name], received[name]) && fields.raw[messages] != nil {
					t.Errorf("%s: %v, not %v", name, sent[name], received[name])
				}
			}
			checkParts(t, j)
		}
	})
}

// checkParts checks the request for a part of a chat, and that all turns together are the messages.
func checkParts(t *testing.T, j *job) {
	t.Helper()
	if !j.divisible || j.messages == nil {
		return
	}
	var part, whole struct{ Messages []any }
	all := j.turns()
	body := j.part(all, true, true)
	if err := json.Unmarshal(body, &part); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if err := json.Unmarshal(j.body, &whole); err != nil || !reflect.DeepEqual(part, whole) {
		t.Errorf("%v: the parts are %v, and the whole %v", err, part, whole)
	}
	if j.translated != nil && len(all) != len(j.ends) {
		t.Errorf("%d turns and %d ends", len(all), len(j.ends))
	}
}
