package prompt

import (
	"encoding/json"
	"fmt"
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
	answer := m{"role": "assistant", "content": "Ok."}
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
			[]any{user("hi"), answer, user(text("[read_file for 'main.go'] Result:", "func main",
				"<environment_details>x</environment_details>"))},
			"hi"},
		{"a tool's result in one string",
			[]any{user("hi"), answer, user("[read_file for 'main.go'] Result:\nfunc main")}, "hi"},
		{"an observation", []any{user("hi"), answer, user("Observation: func main")}, "hi"},
		{"a tool's response in tags", []any{user("hi"), user("<tool_response>\n{}\n</tool_response>")}, "hi"},
		{"an output of a command",
			[]any{user("hi"), answer, user("<returncode>0</returncode>\n<output>\ncode\n</output>")}, "hi"},
		{"a tool's result with a label", []any{user("hi"), answer, user("Tool result: code")}, "hi"},
		{"a tool's output on its own line", []any{user("hi"), answer, user("Tool output\ncode")}, "hi"},
		{"a first message that begins like an observation", []any{user("Observation: my code is slow")},
			"Observation: my code is slow"},
		{"a first message that begins like a result", []any{user("[1] Result: code")}, "[1] Result: code"},
		{"a sentence about the results of tools", []any{user("hi"), answer, user("Tool results look wrong")},
			"Tool results look wrong"},
		{"a sentence about a function's result", []any{user("hi"), answer, user("Function result is nil, why?")},
			"Function result is nil, why?"},
		{"instructions in a tag", []any{user("<instructions>\ncode\n</instructions>")},
			"<instructions>\ncode\n</instructions>"},
		{"instructions in a tag after another turn", []any{user("hi"), answer, user("<rules>code</rules>")},
			"<rules>code</rules>"},
		{"instructions in a tag beside others", []any{user("<context>x</context>\n<instructions>code</instructions>")},
			"<instructions>code</instructions>"},
		{"instructions beside a reminder",
			[]any{user(text("<rules>code</rules>", "<system-reminder>x</system-reminder>"))}, "<rules>code</rules>"},
		{"rules of a program in capitals", []any{user("# AGENTS.md\n<INSTRUCTIONS>code</INSTRUCTIONS>"), user("hi")}, "hi"},
		{"a description in a tag", []any{user("<project_description>code</project_description>")},
			"<project_description>code</project_description>"},
		{"a description beside other words", []any{user("<function_description>code</function_description>\nThanks")},
			"<function_description>code</function_description>\nThanks"},
		{"a context of several words alone", []any{user("<task_instructions>code</task_instructions>")},
			"<task_instructions>code</task_instructions>"},
		{"a task of a program that is a context alone",
			[]any{user("### Task:\nJSON\n<context>\ncode\n</context>")}, ""},
		{"a context of a program's words alone", []any{user("<function_code>code</function_code>")},
			"<function_code>code</function_code>"},
		{"a context of a program's words after another turn", []any{user("hi"), user("<git_status>code</git_status>")}, "hi"},
		{"a system prompt in a tag", []any{user("<system>\ncode\n</system>\n<system-reminder>x</system-reminder>")},
			"<system>\ncode\n</system>"},
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

// TestSearchOfUserTextIsBounded: each case repeats what the search reads more than once.
func TestSearchOfUserTextIsBounded(t *testing.T) {
	const n = 2000
	rules := strings.Repeat("x", 2*repeatedLeast)
	block := "<a-reminder>" + rules + "</a-reminder>"
	var tags strings.Builder
	for i := range n {
		fmt.Fprintf(&tags, "<a%d-reminder>", i)
	}
	turn := func(role, text string) string {
		body, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return `{"role":"` + role + `","content":` + string(body) + `},`
	}
	for name, messages := range map[string]string{
		"rules in many turns": strings.Repeat(turn("system", block), n) + strings.Repeat(turn("user", block), n),
		"blanks after rules": strings.Repeat(turn("system", strings.Repeat(" ", n)), n) +
			strings.Repeat(turn("user", "<a-reminder>x</a-reminder>"), n),
		"tags without an end":     turn("user", strings.Repeat("<a-reminder>", n)+rules) + turn("user", tags.String()),
		"tags with too few ends":  strings.Repeat(turn("user", strings.Repeat("<a-reminder>", n)+"</a-reminder>"), 20),
		"many turns of nothing":   strings.Repeat(turn("user", block), 20*n),
		"many turns of own words": strings.Repeat(turn("user", "<a-rules><b-reminder>x</b-reminder></a-rules>"), 20*n),
	} {
		r := mustParse(t, openai.Chat, `{"model":"m","messages":[`+messages+strings.TrimSuffix(turn("assistant", "x"), ",")+`]}`)
		e := newExcerpt(r, nil, 1<<20)
		e.addUser(r.At(openai.FieldMessages), 0)
		if read := searchLimit - e.left; read > searchLimit+writtenLimit {
			t.Errorf("%s: %d bytes are read", name, read)
		}
	}
}
