package prompt

import (
	"encoding/json"
	"strings"
	"testing"

	"tierway/openai"
)

// TestUserTextIsWhatAPersonWrote has the forms in which agents and chat programs add to a user's message.
func TestUserTextIsWhatAPersonWrote(t *testing.T) {
	type m = map[string]any
	text := func(texts ...string) (parts []any) {
		for _, s := range texts {
			parts = append(parts, m{"type": "text", "text": s})
		}
		return parts
	}
	user := func(content any) m { return m{"role": "user", "content": content} }
	rules := strings.Repeat("Answer with a function in Python. ", 5)
	for _, tt := range []struct {
		name     string
		messages []any
		want     string
	}{
		{"a reminder before the words", []any{user("<system-reminder>\ncode\n</system-reminder>\n\nhi")}, "hi"},
		{"a reminder after the words", []any{user("hi\n<system-reminder>code</system-reminder>")}, "hi"},
		{"a reminder in the middle", []any{user("hi <system-reminder>code</system-reminder> there")}, "hi  there"},
		{"a reminder as last part", []any{user(text("hi", "<system_reminder>code</system_reminder>"))}, "hi"},
		{"a reminder with attributes", []any{user(`<system-reminder source="x">code</system-reminder>hi`)}, "hi"},
		{"nested reminders", []any{user("<agent-context>a<agent-context>b</agent-context>c</agent-context>hi")}, "hi"},
		{"a reminder alone", []any{user("first"), user("<system-reminder>code</system-reminder>")}, "first"},
		{"no person at all", []any{user("<system-reminder>code</system-reminder>")}, ""},
		{"a reminder after a tool's result", []any{user("first"), user([]any{
			m{"type": "tool_result", "tool_use_id": "1", "content": "code"},
			m{"type": "text", "text": "<system-reminder>code</system-reminder>"}})}, "first"},
		{"the environment",
			[]any{user(text("<task>\nhi\n</task>", "<environment_details>\nmain.go\n</environment_details>"))},
			"<task>\nhi\n</task>"},
		{"the environment in one word", []any{user("<context>\ncode\n</context>\nhi")}, "hi"},
		{"a tag of another namespace",
			[]any{user("<qwen:user-prompt-submit-context>code</qwen:user-prompt-submit-context>hi")}, "hi"},
		{"a tag in capitals", []any{user("<EXTRA_INFO>code</EXTRA_INFO>\nhi")}, "hi"},
		{"a tag in capitals as last part",
			[]any{user(text("hi", "<RUNTIME_INFORMATION>code</RUNTIME_INFORMATION>"))}, "hi"},
		{"a summary of the chat", []any{user("<conversation-summary>code</conversation-summary>\nhi")}, "hi"},
		{"a tag in camel case", []any{user("<reminderInstructions>code</reminderInstructions>\nhi")}, "hi"},
		{"a marked request",
			[]any{user("<user_info>linux</user_info>\n<x>code</x>\n<user_query>\nhi\n</user_query>\nmore")}, "hi"},
		{"a marked request in camel case", []any{user("code\n<userRequest>hi</userRequest>")}, "hi"},
		{"a task about a chat",
			[]any{user("### Task:\nExtract\n### Output:\nJSON\n<chat_history>\nUSER: code\n</chat_history>")}, ""},
		{"a task about a chat, with a heading after it",
			[]any{user("### Task:\nExtract\n<chat_history>\nUSER: code\n</chat_history>\n#### Output:\n")}, "#### Output:"},
		{"a task with context", []any{user("### Task:\nJSON\n<context>\ncode\n</context>\n\nhi")}, "hi"},
		{"a task that a person wrote", []any{user("### Task:\nhi")}, "### Task:\nhi"},
		{"skills and tools as parts",
			[]any{user(text("<available_skills>code</available_skills>", "<mcp-tools>x</mcp-tools>", "hi"))},
			"hi"},
		{"a file as parts before the words",
			[]any{user(text("Called the Read tool with the following input: {}", "func main", "hi"))},
			"hi"},
		{"a file as parts after the words",
			[]any{user(text("hi", "Called the Read tool with the following input: {}", "func main"))},
			"hi"},
		{"a tool's result as the user's text",
			[]any{user("hi"), user(text("[read_file for 'main.go'] Result:", "func main",
				"<environment_details>x</environment_details>"))},
			"hi"},
		{"a tool's result in one string", []any{user("hi"), user("[read_file for 'main.go'] Result:\nfunc main")}, "hi"},
		{"an observation", []any{user("hi"), user("Observation: func main")}, "hi"},
		{"a tool's response in tags", []any{user("hi"), user("<tool_response>\n{}\n</tool_response>")}, "hi"},
		{"an output of a command", []any{user("hi"), user("<returncode>0</returncode>\n<output>\ncode\n</output>")}, "hi"},
		{"rules of the system prompt in the string",
			[]any{m{"role": "system", "content": "Be brief.\n\n" + rules}, user("hi\n\n" + rules)}, "hi"},
		{"rules of the first message in the string",
			[]any{user("Follow these.\n" + rules), m{"role": "assistant", "content": "Ok."}, user("hi\n" + rules + "\n")}, "hi"},
		{"words that are sent again", []any{user(rules), m{"role": "assistant", "content": "x"}, user(rules)}, rules},
		{"a short phrase of the system prompt",
			[]any{m{"role": "system", "content": "x\nin Go"}, user("Sort\nin Go")}, "Sort\nin Go"},
		{"a question about a reminder", []any{user("what is <system-reminder>?")}, "what is <system-reminder>?"},
		{"a page of HTML", []any{user("<div>\n<b>x</b>\n</div> why?")}, "<div>\n<b>x</b>\n</div> why?"},
		{"a component", []any{user("<ContextMenu>\nx\n</ContextMenu> why?")}, "<ContextMenu>\nx\n</ContextMenu> why?"},
		{"an element in a line", []any{user("use <rules>x</rules> here")}, "use <rules>x</rules> here"},
		{"a comparison", []any{user("is a<b or b>c?")}, "is a<b or b>c?"},
		{"an equation", []any{user("if a < b = c > d, < = > and <=x>")}, "if a < b = c > d, < = > and <=x>"},
		{"an empty element", []any{user("<system-reminder/>x")}, "<system-reminder/>x"},
		{"many tags without an end",
			[]any{user(strings.Repeat("<a-context>", 1000) + "hi")}, strings.Repeat("<a-context>", 1000) + "hi"},
	} {
		body, err := json.Marshal(m{"model": "m", "messages": tt.messages}) // escapes < and >
		if err != nil {
			t.Fatal(err)
		}
		var plain strings.Builder
		e := json.NewEncoder(&plain)
		e.SetEscapeHTML(false)
		if err := e.Encode(m{"model": "m", "messages": tt.messages}); err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{string(body), plain.String()} {
			r := mustParse(t, openai.Chat, body)
			if got := string(AppendUserText([]byte("> "), r, 1<<20)); got != "> "+tt.want {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
			if string(r.Body) != body {
				t.Errorf("%s: the body is now %s", tt.name, r.Body)
			}
		}
	}
}

// TestWrittenTextOfOtherDialects: the system prompt of Messages and Responses has its own field, and the input of
// Responses may be a string.
func TestWrittenTextOfOtherDialects(t *testing.T) {
	rules := strings.Repeat("Answer with a function in Python. ", 5)
	for _, tt := range []struct {
		d    openai.Dialect
		body string
	}{
		{openai.Messages, `{"model":"m","system":[{"type":"text","text":"S\n` + rules + `"}],"messages":[{"role":"user","content":"hi\n` + rules + `"}]}`},
		{openai.Responses, `{"model":"m","instructions":"S\n` + rules + `","input":[{"role":"user","content":[{"type":"input_text","text":"hi\n` + rules + `"}]}]}`},
		{openai.Responses, `{"model":"m","input":"<system-reminder>code</system-reminder>hi"}`},
		{openai.Responses, `{"model":"m","input":[{"role":"user","content":"hi"},{"role":"user","content":[{"type":"input_text","text":"<environment_context>code</environment_context>"}]}]}`},
	} {
		if got := string(AppendUserText(nil, mustParse(t, tt.d, tt.body), 1<<20)); got != "hi" {
			t.Errorf("%s %s: %q, want hi", tt.d, tt.body, got)
		}
	}
}
