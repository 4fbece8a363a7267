package prompttokens

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/openai"
)

// translation is a request, and the chat that vLLM 0.32 made of it, by its own code.
type translation struct {
	Name, Path string
	Body       json.RawMessage
	Want       struct {
		Messages []any
		Merged   []any // if the template takes no system message behind others
		Tools    []any
		Kwargs   map[string]any
	}
}

func translations(t *testing.T) (all []translation) {
	t.Helper()
	data, err := os.ReadFile("testdata/vllm-0.32/translations.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var x translation
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

func dialectOf(path string) openai.Dialect {
	return map[string]openai.Dialect{"/v1/messages": openai.Messages, "/v1/responses": openai.Responses,
		"/v1/chat/completions": openai.Chat}[path]
}

// plain removes what makes no difference to vLLM's renderer: null members, types of plain messages and texts.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value == nil {
				delete(v, name)
				continue
			}
			v[name] = plain(value)
		}
		switch v["type"] {
		case "message":
			delete(v, "type")
		case "input_text":
			v["type"] = "text"
		}
		if text, ok := v["arguments"].(string); ok { // vLLM reads them before it renders
			var arguments any
			if json.Unmarshal([]byte(text), &arguments) == nil {
				v["arguments"] = arguments
			}
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// TestRequestsBecomeTheChatsThatVLLMRenders compares what is sent to /tokenize with the result of vLLM's own code.
func TestRequestsBecomeTheChatsThatVLLMRenders(t *testing.T) {
	for _, x := range translations(t) {
		t.Run(x.Name, func(t *testing.T) {
			q := query(t, dialectOf(x.Path), []byte(x.Body))
			f := readFields(q.Request)
			j := newJob(q, &f)
			if !j.prepare() || j.path != tokenizePath {
				t.Fatalf("it is not sent to /tokenize: %+v", f)
			}
			check := func(body []byte, messages []any) {
				t.Helper()
				var sent struct {
					Messages, Tools    []any
					ChatTemplateKwargs map[string]any `json:"chat_template_kwargs"`
				}
				if err := json.Unmarshal(body, &sent); err != nil {
					t.Fatalf("%s: %v", body, err)
				}
				delete(x.Want.Kwargs, "add_generation_prompt") // members of their own
				delete(x.Want.Kwargs, "continue_final_message")
				if sent.ChatTemplateKwargs == nil {
					sent.ChatTemplateKwargs = map[string]any{}
				}
				for name, pair := range map[string][2]any{"messages": {messages, sent.Messages},
					"tools": {x.Want.Tools, sent.Tools}, "arguments": {x.Want.Kwargs, sent.ChatTemplateKwargs}} {
					if diff := cmp.Diff(plain(pair[0]), plain(pair[1])); diff != "" {
						t.Errorf("%s (-vLLM +gateway):\n%s", name, diff)
					}
				}
			}
			check(j.body, x.Want.Messages)
			if x.Want.Merged != nil {
				if !j.inline || !j.mergeSystem() {
					t.Fatal("its system messages are not merged")
				}
				check(j.body, x.Want.Merged)
			}
		})
	}
}

// agentTurns are turns of an agent in three dialects. messages and tools have the words of each dialect.
func agentTurns(d openai.Dialect, turns int) object {
	schema := object{"type": "object", "properties": object{"path": object{"type": "string"}}}
	var items []object
	for i := range turns {
		id, path, result := fmt.Sprintf("call_%d", i), object{"path": fmt.Sprint("file", i)}, long(i, 60)
		arguments, _ := json.Marshal(path)
		switch d {
		case openai.Messages:
			items = append(items, object{"role": "assistant", "content": []object{{"type": "text", "text": "I read it."},
				{"type": "tool_use", "id": id, "name": "read", "input": path}}},
				object{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": id, "content": result},
					{"type": "text", "text": "go on"}}})
		case openai.Responses:
			items = append(items, object{"type": "message", "role": "assistant", "content": []object{{"type": "output_text",
				"text": "I read it."}}},
				object{"type": "function_call", "call_id": id, "name": "read", "arguments": string(arguments)},
				object{"type": "function_call_output", "call_id": id, "output": result})
		default:
			items = append(items, object{"role": "assistant", "content": "I read it.", "tool_calls": []object{{"id": id,
				"type": "function", "function": object{"name": "read", "arguments": string(arguments)}}}},
				object{"role": "tool", "tool_call_id": id, "content": result})
		}
	}
	ask := object{"role": "user", "content": "read all"}
	rules := "You are an agent. " + long(99, 300)
	switch d {
	case openai.Messages:
		return object{"model": "m", "max_tokens": 1, "system": []object{{"type": "text", "text": rules}},
			"tools":    []object{{"name": "read", "description": "Reads a file", "input_schema": schema}},
			"messages": append([]object{ask}, items...)}
	case openai.Responses:
		return object{"model": "m", "store": false, "instructions": rules, "reasoning": object{"effort": "low"},
			"tools": []object{{"type": "function", "name": "read", "description": "Reads a file", "parameters": schema}},
			"input": append([]object{ask}, items...)}
	}
	return object{"model": "m", "response_format": object{"type": "json_object"}, "tool_choice": "required",
		"tools": []object{{"type": "function", "function": object{"name": "read", "description": "Reads a file",
			"parameters": schema}}},
		"messages": append([]object{{"role": "system", "content": rules}, ask}, items...)}
}

// TestTurnsOfAgentsSendTheirNewMessagesOnly states that the requests of agents are tokenized like plain chats: exactly,
// and after the first turn without the known messages.
func TestTurnsOfAgentsSendTheirNewMessagesOnly(t *testing.T) {
	for _, d := range []openai.Dialect{openai.Chat, openai.Messages, openai.Responses} {
		t.Run(d.String(), func(t *testing.T) {
			w := &counting{Poster: &templateEngine{render: agentic, tokens: words}}
			s := source(w)
			s.inParts.Store(firstCompared)
			for turns := range 12 {
				q := query(t, d, agentTurns(d, turns))
				f := readFields(q.Request)
				j := newJob(q, &f)
				if !j.prepare() {
					t.Fatal("not translated")
				}
				tokens, err := source(w.Poster).requestTokens(t.Context(), tokenizePath, j.body)
				if err != nil {
					t.Fatal(err)
				}
				w.taken()
				p := lookup(t, s, q)
				if p.Tokens == 0 {
					t.Fatalf("turn %d is not known", turns)
				}
				check(t, q, p, tokens)
				if paths, bytes := w.taken(); turns > 1 && bytes > 3000 {
					t.Errorf("turn %d sends %d bytes in %d requests, %+v", turns, bytes, len(paths), s.Counts())
				}
				if again := lookup(t, s, q); again.Tokens != p.Tokens {
					t.Errorf("turn %d is not kept", turns)
				}
			}
			if c := s.Counts(); c.Mismatched > 0 || c.Failed > 0 || c.Parts < 9 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// agentic is marked, with the calls of tools and their results.
func agentic(c *chat, answer bool) (string, bool) {
	var b strings.Builder
	for _, t := range c.Tools {
		fmt.Fprintf(&b, "<tool>%s", t)
	}
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "<start>%s\n%s", m.Role, m.Content)
		for _, call := range m.Calls {
			fmt.Fprintf(&b, "<call>%s %s", call.Function.Name, call.Function.Arguments)
		}
		b.WriteString("<end>\n")
	}
	if answer {
		b.WriteString("<start>assistant\n")
	}
	return b.String(), true
}

// TestSystemMessagesBetweenOthersGoWhereTheEnginePutsThem: vLLM moves them to the front if the template takes none
// later.
func TestSystemMessagesBetweenOthersGoWhereTheEnginePutsThem(t *testing.T) {
	front := func(c *chat, answer bool) (string, bool) {
		for i, m := range c.Messages {
			if m.Role == "system" && i > 0 {
				return "", false
			}
		}
		return marked(c, answer)
	}
	body := object{"model": "m", "max_tokens": 1, "system": "rules ", "messages": []object{say("user", long(1, 40)),
		say("system", "reminder"), say("user", "bye")}}
	for name, c := range map[string]struct {
		render func(*chat, bool) (string, bool)
		want   []object
	}{
		"anywhere": {marked, []object{say("system", "rules "), say("user", long(1, 40)), say("system", "reminder"),
			say("user", "bye")}},
		"first": {front, []object{say("system", "rules reminder"), say("user", long(1, 40)), say("user", "bye")}},
	} {
		w := &templateEngine{render: c.render, tokens: words}
		q := query(t, openai.Messages, body)
		want := tokenize(t, w, query(t, openai.Chat, object{"model": "m", "messages": c.want}))
		if p := lookup(t, source(w), q); p.Tokens == 0 {
			t.Errorf("%s: not known", name)
		} else {
			check(t, q, p, want)
		}
	}
}

// TestRequestsWithoutAnEquivalentChatAreNotTokenized: the engine would add what the gateway does not know.
func TestRequestsWithoutAnEquivalentChatAreNotTokenized(t *testing.T) {
	w := &counting{Poster: &templateEngine{render: marked, tokens: words}}
	s := source(w)
	for _, q := range []*Query{
		query(t, openai.Responses, object{"model": "m", "input": "hello", "previous_response_id": "resp_1"}),
		query(t, openai.Responses, object{"model": "m", "input": "hello", "conversation": "conv_1"}),
		query(t, openai.Responses, object{"model": "m", "input": []object{{"type": "item_reference", "id": "x"}}}),
		query(t, openai.Responses, object{"model": "m", "input": []object{{"type": "message", "role": "assistant",
			"status": "incomplete", "content": "an"}}}),
		query(t, openai.Messages, object{"model": "m", "max_tokens": 1, "messages": []object{{"role": "user",
			"content": []object{{"type": "tool_addition"}}}}}),
	} {
		if p := lookup(t, s, q); p.Tokens != 0 || len(p.Keys) > 0 {
			t.Errorf("%s: %+v", q.Request.Body, p)
		}
	}
	if paths, _ := w.taken(); len(paths) > 0 {
		t.Error(paths)
	}
}

// TestAFormThatTheEngineCountsDifferentlyIsSuspended: one difference suspends a new form, three in a row a proven one.
func TestAFormThatTheEngineCountsDifferentlyIsSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &templateEngine{render: marked, tokens: words}
		s, stop := run(Config{Worker: func() Poster { return w }})
		defer stop()
		body := object{"model": "m", "messages": []object{say("user", long(1, 50))}}
		look := func(more string, value any) Prompt {
			all := object{}
			for name, v := range body {
				all[name] = v
			}
			if more != "" {
				all[more] = value
			}
			return s.Lookup(t.Context(), query(t, openai.Chat, all), nil)
		}
		format := func() Prompt { return look("response_format", object{"type": "json_object"}) }
		p := format()
		if p.Tokens == 0 {
			t.Fatal("a format falls back to the history")
		}
		s.Judge(p.Form, p.Tokens, p.Tokens+7) // the template renders the format
		if p := format(); p.Tokens > 0 || len(p.Keys) > 0 {
			t.Errorf("after a wrong count: %+v", p)
		}
		plain := look("", nil)
		if plain.Tokens == 0 {
			t.Error("a chat without a format is suspended too")
		}
		s.Judge(plain.Form, plain.Tokens, plain.Tokens)
		for range wrongInARow - 1 {
			s.Judge(plain.Form, plain.Tokens, plain.Tokens+1)
		}
		if p := look("", nil); p.Tokens == 0 {
			t.Error("two wrong counts suspend a proven form")
		}
		s.Judge(plain.Form, plain.Tokens, plain.Tokens+1)
		if p := look("", nil); p.Tokens > 0 {
			t.Error("three wrong counts do not suspend a proven form")
		}
		time.Sleep(suspendedFor)
		if p := format(); p.Tokens == 0 {
			t.Error("an hour later the form is suspended")
		}
		if c := s.Counts(); c.Miscounted != 4 {
			t.Errorf("%+v", c)
		}
	})
}

// TestTheEffortOfReasoningIsAnArgumentOfTheTemplate states it for /tokenize, which has no such member.
func TestTheEffortOfReasoningIsAnArgumentOfTheTemplate(t *testing.T) {
	w := &recording{Poster: &templateEngine{render: marked, tokens: words}}
	lookup(t, source(w), query(t, openai.Chat, object{"model": "m", "reasoning_effort": "none",
		"messages": []object{say("user", "hello")}}))
	if !bytes.Contains(w.first, []byte(`"chat_template_kwargs":{"enable_thinking":false,"reasoning_effort":"none"}`)) {
		t.Errorf("%s", w.first)
	}
}
