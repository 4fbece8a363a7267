package engines

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const hello = `"messages":[{"role":"user","content":"Tell me a story."}]`

// streamed is what a chat stream said.
type streamed struct {
	texts, arguments, finish [4]string
	tokens                   int
	usage                    map[string]any
	roles, names             int
}

func readChat(t *testing.T, body string) streamed {
	t.Helper()
	var s streamed
	events := readEvents(t, body)
	if last := events[len(events)-1]; last.data != "[DONE]" {
		t.Fatalf("the stream ends with %q", last.data)
	}
	for _, ev := range events[:len(events)-1] {
		chunk := object(t, ev.data)
		if _, wrong := chunk["error"]; wrong {
			t.Errorf("a chunk has an error key: %s", ev.data)
		}
		choices := at(t, chunk, "choices").([]any)
		if len(choices) == 0 {
			s.usage = at(t, chunk, "usage").(map[string]any)
			continue
		}
		i := number(t, choices, 0, "index")
		delta := at(t, choices, 0, "delta").(map[string]any)
		if _, ok := delta["role"]; ok {
			s.roles++
		}
		if piece, _ := delta["content"].(string); piece != "" {
			s.texts[i] += piece
			s.tokens++
		}
		if calls, ok := delta["tool_calls"]; ok {
			if _, named := at(t, calls, 0, "function").(map[string]any)["name"]; named {
				s.names++
			}
			if piece := text(t, calls, 0, "function", "arguments"); piece != "" {
				s.arguments[i] += piece
				s.tokens++
			}
		}
		if finish, ok := at(t, choices, 0, "finish_reason").(string); ok {
			s.finish[i] += finish
		}
	}
	return s
}

func TestUsageIsWhatWasWritten(t *testing.T) {
	table := []struct {
		name, fields string
		choices      int
		finish       string
	}{
		{"plain", ``, 1, "stop"},
		{"three choices", `,"n":3`, 3, "stop"},
		{"cut by max_tokens", `,"max_tokens":5`, 1, "length"},
		{"cut by max_completion_tokens", `,"max_completion_tokens":5`, 1, "length"},
		{"going on to the end", `,"ignore_eos":true,"max_tokens":200`, 1, "stop"},
		{"object", `,"response_format":{"type":"json_object"}`, 1, "stop"},
		{"required tool",
			`,"tool_choice":"required","tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]`, 1, "tool_calls"},
	}
	for _, row := range table {
		e := New(Config{Model: "m", Seed: 3})
		_, body := call(t, e, "POST", "/v1/chat/completions",
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},`+hello+row.fields+`}`)
		s := readChat(t, body)
		if s.usage == nil || s.tokens != number(t, s.usage, "completion_tokens") || s.tokens == 0 {
			t.Errorf("%s: %d tokens were written, the usage is %v", row.name, s.tokens, s.usage)
		}
		if w := e.Stats().Written; w.Output != int64(s.tokens) || w.Prompt != int64(number(t, s.usage, "prompt_tokens")) {
			t.Errorf("%s: stats count %+v, the usage is %v", row.name, w, s.usage)
		}
		if s.roles != row.choices || s.finish[row.choices-1] != row.finish {
			t.Errorf("%s: %d roles, finish %q", row.name, s.roles, s.finish)
		}
		if number(t, s.usage, "total_tokens") != number(t, s.usage, "prompt_tokens")+s.tokens {
			t.Errorf("%s: the usage does not add up: %v", row.name, s.usage)
		}
		whole := ask(t, New(Config{Model: "m", Seed: 3}), "/v1/chat/completions", `{"model":"m",`+hello+row.fields+`}`)
		if got := number(t, whole, "usage", "completion_tokens"); got != s.tokens {
			t.Errorf("%s: %d tokens as a stream, %d whole", row.name, s.tokens, got)
		}
		if s.names == 0 && text(t, whole, "choices", 0, "message", "content") != s.texts[0] {
			t.Errorf("%s: stream and whole answer differ", row.name)
		}
		if s.names > 0 && text(t, whole, "choices", 0, "message", "tool_calls", 0, "function",
			"arguments") != s.arguments[0] {
			t.Errorf("%s: the calls of stream and whole answer differ", row.name)
		}
	}
}

func TestUsageIsSentOnlyOnRequest(t *testing.T) {
	_, body := call(t, New(Config{Model: "m"}), "POST", "/v1/chat/completions", `{"model":"m","stream":true,`+hello+`}`)
	if strings.Contains(body, "usage") {
		t.Errorf("usage without a request for it: %s", body)
	}
	_, body = call(t, New(Config{Model: "m"}), "POST", "/v1/chat/completions",
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},`+hello+`}`)
	events := readEvents(t, body)
	for _, ev := range events[:len(events)-2] {
		if usage, there := object(t, ev.data)["usage"]; !there || usage != nil {
			t.Errorf("an early chunk's usage is not null: %s", ev.data)
		}
	}
}

func TestAnswersDependOnSeedAndPromptOnly(t *testing.T) {
	say := func(seed uint64, fields string) string {
		return text(t, ask(t, New(Config{Model: "m", Seed: seed}), "/v1/chat/completions", `{"model":"m",`+hello+fields+`}`),
			"choices", 0, "message", "content")
	}
	first, again := say(1, ""), say(1, "")
	if first != again {
		t.Error("the same request was answered differently")
	}
	if first == say(2, "") || first == say(1, `,"seed":9`) {
		t.Error("seeds change nothing")
	}
}

func TestStopSequencesEndTheAnswer(t *testing.T) {
	e := New(Config{Model: "m", Script: func(string, []byte) Script { return Script{Text: "one two three four five"} }})
	for _, stop := range []string{`"three"`, `["five","three"]`} {
		whole := ask(t, e, "/v1/chat/completions", `{"model":"m",`+hello+`,"stop":`+stop+`}`)
		if text(t, whole, "choices", 0, "message", "content") != "one two " ||
			text(t, whole, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("stop %s: %v", stop, whole["choices"])
		}
	}
	m := ask(t, e, "/v1/messages", `{"model":"m","max_tokens":99,`+hello+`,"stop_sequences":["three"]}`)
	if text(t, m, "stop_reason") != "stop_sequence" || text(t, m, "stop_sequence") != "three" ||
		text(t, m, "content", 0, "text") != "one two " {
		t.Errorf("messages: %v", m)
	}
}

func TestToolsAreCalledOnRequest(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"get_time","parameters":{"type":"object"}}},{"type":"function","function":{"name":"send_letter","parameters":{"type":"object","required":["to"],"properties":{"to":{"type":"string"}}}}}]`
	user := func(s string) string { return `{"role":"user","content":"` + s + `"}` }
	table := []struct{ messages, choice, called string }{
		{user("What time is it?"), `"auto"`, "get_time"},
		{user("Write a LETTER to Ann"), `"auto"`, "send_letter"},
		{user("Hello"), `"auto"`, ""},
		{user("Hello"), `"required"`, "get_time"},
		{user("What time is it?"), `"none"`, ""},
		{user("Hello"), `{"type":"function","function":{"name":"send_letter"}}`, "send_letter"},
		{user("Letter!") +
			`,{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"send_letter","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"letter sent"}`, `"auto"`, ""},
	}
	for _, row := range table {
		for _, stream := range []bool{false, true} {
			e := New(Config{Model: "m"})
			_, body := call(t, e, "POST", "/v1/chat/completions",
				fmt.Sprintf(`{"model":"m","stream":%v,"messages":[%s],"tool_choice":%s,%s}`, stream, row.messages, row.choice,
					tools))
			name, arguments := "", ""
			if stream {
				s := readChat(t, body)
				arguments = s.arguments[0]
				if s.names == 1 {
					_, after, _ := strings.Cut(body, `"name":"`)
					name, _, _ = strings.Cut(after, `"`)
				}
			} else if calls, ok := at(t, object(t, body), "choices", 0, "message").(map[string]any)["tool_calls"]; ok {
				name, arguments = text(t, calls, 0, "function", "name"), text(t, calls, 0, "function", "arguments")
			}
			if name != row.called || name != "" && !json.Valid([]byte(arguments)) {
				t.Errorf("%s with %s, stream %v: called %q with %q, want %q", row.messages, row.choice, stream, name, arguments,
					row.called)
			}
			if name == "send_letter" && !strings.Contains(arguments, `"to"`) {
				t.Errorf("the call lacks its required argument: %s", arguments)
			}
		}
	}
}

func TestCachedTokensGrowWithTheConversation(t *testing.T) {
	e := New(Config{Model: "m", CacheTokens: 1 << 14})
	messages := `{"role":"system","content":"` + strings.Repeat("Be brief and kind. ", 20) +
		`"},{"role":"user","content":"Tell me a story."}`
	before, whole := 0, 0
	for round := range 4 {
		got := ask(t, e, "/v1/chat/completions", `{"model":"m","messages":[`+messages+`]}`)
		cached := number(t, got, "usage", "prompt_tokens_details", "cached_tokens")
		if round == 0 && cached != 0 || round > 0 && cached <= before {
			t.Errorf("round %d: %d tokens cached after %d", round, cached, before)
		}
		// Prompt and answer of the round before are known, all but a part of a block.
		if round > 0 && cached < whole-16 {
			t.Errorf("round %d: %d of the %d tokens so far are cached", round, cached, whole)
		}
		before, whole = cached, number(t, got, "usage", "total_tokens")
		answer, _ := json.Marshal(text(t, got, "choices", 0, "message", "content"))
		messages += `,{"role":"assistant","content":` + string(answer) + `},{"role":"user","content":"Go on."}`
	}
	salted := ask(t, e, "/v1/chat/completions", `{"model":"m","cache_salt":"other","messages":[`+messages+`]}`)
	if got := number(t, salted, "usage", "prompt_tokens_details", "cached_tokens"); got != 0 {
		t.Errorf("another salt found %d tokens", got)
	}
	if without := ask(t, New(Config{Model: "m"}), "/v1/chat/completions", `{"model":"m",`+hello+`}`); number(t, without,
		"usage", "prompt_tokens_details", "cached_tokens") != 0 {
		t.Error("an engine without a cache found something")
	}
}

func TestCompletionsTakeEveryKindOfPrompt(t *testing.T) {
	for prompt, want := range map[string][2]int{`"abcdefgh"`: {2, 1}, `["abcd","efgh"]`: {2, 2}, `[1,2,3]`: {3, 1},
		`[[1,2],[3,4,5]]`: {5, 2}} {
		got := ask(t, New(Config{Model: "m"}), "/v1/completions", `{"model":"m","max_tokens":3,"prompt":`+prompt+`}`)
		if number(t, got, "usage", "prompt_tokens") != want[0] || len(got["choices"].([]any)) != want[1] ||
			number(t, got, "usage", "completion_tokens") != 3*want[1] {
			t.Errorf("%s: %v", prompt, got)
		}
	}
	_, body := call(t, New(Config{Model: "m"}), "POST", "/v1/completions",
		`{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":6,"prompt":"a"}`)
	events := readEvents(t, body)
	if len(events) != 6+1+1+1 || text(t, object(t, events[6].data), "choices", 0, "finish_reason") != "length" ||
		number(t, object(t, events[7].data), "usage", "completion_tokens") != 6 {
		t.Errorf("stream: %s", body)
	}
}
