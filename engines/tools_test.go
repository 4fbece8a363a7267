package engines

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// agent drives an engine as agents do: it sends what it is called with back as a
// result, until the engine answers with text or calls the last tool.
type agent struct {
	path    string
	tool    string // of a name
	request string // of history, tools and choice
	called  func(t *testing.T, answer map[string]any) (name, echo string)
}

// agents has the three dialects with tools; never written.
var agents = map[string]agent{
	"chat": {
		path: "/v1/chat/completions", tool: `{"type":"function","function":{"name":%q,"parameters":{"type":"object"}}}`,
		request: `{"model":"m","messages":[%s],"tools":[%s]%s}`,
		called: func(t *testing.T, answer map[string]any) (name, echo string) {
			message := at(t, answer, "choices", 0, "message").(map[string]any)
			if message["tool_calls"] == nil {
				return "", ""
			}
			b, _ := json.Marshal(message)
			id := text(t, message, "tool_calls", 0, "id")
			return text(t, message, "tool_calls", 0, "function", "name"), string(b) + `,{"role":"tool","tool_call_id":"` + id +
				`","content":"done: 42"}`
		},
	},
	"responses": {
		path: "/v1/responses", tool: `{"type":"function","name":%q,"parameters":{"type":"object"}}`,
		request: `{"model":"m","input":[%s],"tools":[%s]%s}`,
		called: func(t *testing.T, answer map[string]any) (name, echo string) {
			item := at(t, answer, "output", 0).(map[string]any)
			if item["type"] != "function_call" {
				return "", ""
			}
			b, _ := json.Marshal(item)
			return text(t, item, "name"), string(b) + `,{"type":"function_call_output","call_id":"` + text(t, item, "call_id") +
				`","output":"done: 42"}`
		},
	},
	"messages": {
		path: "/v1/messages", tool: `{"name":%q,"input_schema":{"type":"object"}}`,
		request: `{"model":"m","max_tokens":256,"messages":[%s],"tools":[%s]%s}`,
		called: func(t *testing.T, answer map[string]any) (name, echo string) {
			block := at(t, answer, "content", 0).(map[string]any)
			if block["type"] != "tool_use" {
				return "", ""
			}
			b, _ := json.Marshal(block)
			return text(t, block, "name"), `{"role":"assistant","content":[` + string(b) +
				`]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"` +
				text(t, block, "id") + `","content":"done: 42"},{"type":"text","text":"Remember to search when needed."}]}`
		},
	},
}

// run returns the names of the tools that were called in at most six steps; the last
// is "" where the engine answered with text.
func (a agent) run(t *testing.T, history, choice string, names ...string) []string {
	t.Helper()
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(a.tool, name)
	}
	var called []string
	for range 6 {
		answer := ask(t, New(Config{Model: "m"}), a.path, fmt.Sprintf(a.request, history, strings.Join(tools, ","), choice))
		name, echo := a.called(t, answer)
		called = append(called, name)
		if name == "" || name == "final_answer" {
			break
		}
		history += "," + echo
	}
	return called
}

func TestAgentLoopsEnd(t *testing.T) {
	user := func(s string) string { return `{"role":"user","content":"` + s + `"}` }
	required := map[string]string{"chat": `,"tool_choice":"required"`, "responses": `,"tool_choice":"required"`,
		"messages": `,"tool_choice":{"type":"any"}`}
	auto := map[string]string{"chat": `,"tool_choice":"auto","parallel_tool_calls":false`, "responses": ``,
		"messages": `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`}
	table := []struct {
		name, history string
		choice        map[string]string
		tools, called []string
	}{
		{"a call, its result, an answer", user("search the web"), auto, []string{"web_search", "calculate"},
			[]string{"web_search", ""}},
		{"no call", user("hi"), auto, []string{"web_search", "calculate"}, []string{""}},
		{"required with a tool that finishes", user("hi"), required, []string{"web_search", "calculate", "final_answer"},
			[]string{"web_search", "final_answer"}},
		{"required with one that finishes, listed first", user("calculate it"), required,
			[]string{"final_answer", "web_search", "calculate"}, []string{"calculate", "final_answer"}},
		{"required with nothing but one that finishes", user("hi"), required, []string{"final_answer"},
			[]string{"final_answer"}},
		{"required without one: each in turn", user("hi"), required, []string{"a_tool", "b_tool", "c_tool"},
			[]string{"a_tool", "b_tool", "c_tool", "a_tool", "b_tool", "c_tool"}},
		{"required without one: first what the question names", user("use b_tool please"), required,
			[]string{"first", "b_tool"}, []string{"b_tool", "first", "b_tool", "first", "b_tool", "first"}},
	}
	for dialect, a := range agents {
		for _, row := range table {
			if got := a.run(t, row.history, row.choice[dialect], row.tools...); !slices.Equal(got, row.called) {
				t.Errorf("%s, %s: called %q, want %q", dialect, row.name, got, row.called)
			}
		}
	}
}

// Some agents write calls and results into the conversation as text.
func TestCallsThatWereWrittenAsTextCount(t *testing.T) {
	history :=
		`{"role":"user","content":"hi"},{"role":"assistant","content":"Calling tools: [{'name': 'web_search', 'arguments': {}}]"},{"role":"user","content":"Observation: web_search found 42"}`
	if got := agents["chat"].run(t, history, `,"tool_choice":"required"`, "web_search", "final_answer"); !slices.Equal(got,
		[]string{"final_answer"}) {
		t.Errorf("called %q", got)
	}
}

func TestToolsAreCalledAgainForASecondQuestion(t *testing.T) {
	call := func(name string) string {
		return `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"` + name +
			`","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"42"}`
	}
	history := `{"role":"user","content":"hi"},` + call("web_search") + `,` + call("final_answer") +
		`,{"role":"user","content":"and again"}`
	if got := agents["chat"].run(t, history, `,"tool_choice":"required"`, "web_search", "final_answer"); !slices.Equal(got,
		[]string{"web_search", "final_answer"}) {
		t.Errorf("required: called %q", got)
	}
	history = `{"role":"user","content":"hi"},` + call("web_search") +
		`,{"role":"assistant","content":"It is 42."},{"role":"user","content":"search again"}`
	if got := agents["chat"].run(t, history, ``, "web_search"); !slices.Equal(got, []string{"web_search", ""}) {
		t.Errorf("auto: called %q", got)
	}
}

func TestToolChoiceBindsTheEngine(t *testing.T) {
	const chatAllowed = `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":%q,"tools":[{"type":"function","function":{"name":"calculate"}}]}}`
	const responsesAllowed = `,"tool_choice":{"type":"allowed_tools","mode":%q,"tools":[{"type":"function","name":"calculate"}]}`
	const hosted = `{"type":"web_search"},{"type":"custom","name":"patch"}`
	chat, responses, messages := agents["chat"], agents["responses"], agents["messages"]
	one := func(a agent, question, choice string, tools ...string) (int, string) {
		body := fmt.Sprintf(a.request, `{"role":"user","content":"`+question+`"}`, strings.Join(tools, ","), choice)
		status, answer := call(t, New(Config{Model: "m"}), "POST", a.path, body)
		if status != 200 {
			return status, text(t, object(t, answer), "error", "message")
		}
		name, _ := a.called(t, object(t, answer))
		return status, name
	}
	of := func(a agent, name string) string { return fmt.Sprintf(a.tool, name) }
	table := []struct {
		name, question, choice string
		a                      agent
		tools                  []string
		status                 int
		called                 string
	}{
		{"allowed and required", "hi", fmt.Sprintf(chatAllowed, "required"), chat,
			[]string{of(chat, "web_search"), of(chat, "calculate")}, 200, "calculate"},
		{"allowed, by itself", "search the web", fmt.Sprintf(chatAllowed, "auto"), chat,
			[]string{of(chat, "web_search"), of(chat, "calculate")}, 200, ""},
		{"allowed in Responses", "search the web", fmt.Sprintf(responsesAllowed, "required"), responses,
			[]string{of(responses, "web_search"), of(responses, "calculate")}, 200, "calculate"},
		{"allowed and unknown", "hi", fmt.Sprintf(chatAllowed, "auto"), chat, []string{of(chat, "web_search")}, 400,
			`tool_choice names "calculate", which is not among the tools`},
		{"none", "search the web", `,"tool_choice":"none"`, chat, []string{of(chat, "web_search")}, 200, ""},
		{"none in Messages", "search the web", `,"tool_choice":{"type":"none"}`, messages,
			[]string{of(messages, "web_search")}, 200, ""},
		{"named in Messages", "hi", `,"tool_choice":{"type":"tool","name":"calculate"}`, messages,
			[]string{of(messages, "web_search"), of(messages, "calculate")}, 200, "calculate"},
		{"named in Responses", "hi", `,"tool_choice":{"type":"function","name":"calculate"}`, responses,
			[]string{of(responses, "web_search"), of(responses, "calculate")}, 200, "calculate"},
		{"hosted tools are not called as functions", "search the web", `,"tool_choice":"required"`, responses,
			[]string{hosted, of(responses, "calculate")}, 200, "calculate"},
		{"nothing but hosted tools", "search the web", ``, responses, []string{hosted}, 200, ""},
		{"nothing to call", "hi", `,"tool_choice":"required"`, responses, []string{hosted}, 400,
			"tool_choice requires a call and there are no functions among the tools"},
	}
	for _, row := range table {
		if status, got := one(row.a, row.question, row.choice, row.tools...); status != row.status || got != row.called {
			t.Errorf("%s: %d %q, want %d %q", row.name, status, got, row.status, row.called)
		}
	}
}

// A tool that the words name completely is called beside others, unless the client permits only one call.
func TestNamedToolsAreCalledInParallel(t *testing.T) {
	const both = `{"role":"user","content":"Use web_search and calculate, and then answer"}`
	forbid := map[string]string{"chat": `,"parallel_tool_calls":false`, "responses": `,"parallel_tool_calls":false`,
		"messages": `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`}
	for dialect, a := range agents {
		tools := fmt.Sprintf(a.tool+","+a.tool+","+a.tool, "other_one", "calculate", "web_search")
		for name, row := range map[string]struct{ history, choice, want string }{
			"two are named":           {both, "", "calculate web_search"},
			"parallel calls are off":  {both, forbid[dialect], "calculate"},
			"one is named completely": {`{"role":"user","content":"calculate the search"}`, "", "calculate"},
		} {
			body := fmt.Sprintf(a.request, row.history, tools, row.choice)
			whole, streamed := callsOf(t, a.path, body, dialect), streamedCallsOf(t, a.path, body, dialect)
			for form, got := range map[string][]madeCall{"whole": whole, "streamed": streamed} {
				names, ids := "", map[string]bool{}
				for _, one := range got {
					names += " " + one.name
					ids[one.id] = true
					if one.arguments != "{}" {
						t.Errorf("%s, %s, %s: the arguments %q", dialect, name, form, one.arguments)
					}
				}
				if strings.TrimSpace(names) != row.want || len(ids) != len(got) {
					t.Errorf("%s, %s, %s: called %+v, want %s", dialect, name, form, got, row.want)
				}
			}
		}
	}
}

type madeCall struct{ id, name, arguments string }

// callsOf returns the calls of a complete answer.
func callsOf(t *testing.T, path, body, dialect string) (calls []madeCall) {
	t.Helper()
	answer := ask(t, New(Config{Model: "m"}), path, body)
	switch dialect {
	case "chat":
		list, _ := at(t, answer, "choices", 0, "message", "tool_calls").([]any)
		for _, one := range list {
			calls = append(calls, madeCall{text(t, one, "id"), text(t, one, "function", "name"),
				text(t, one, "function", "arguments")})
		}
	case "responses":
		for _, one := range at(t, answer, "output").([]any) {
			calls = append(calls, madeCall{text(t, one, "call_id"), text(t, one, "name"), text(t, one, "arguments")})
		}
	case "messages":
		for _, one := range at(t, answer, "content").([]any) {
			input, _ := json.Marshal(at(t, one, "input"))
			calls = append(calls, madeCall{text(t, one, "id"), text(t, one, "name"), string(input)})
		}
	}
	return calls
}

// streamedCallsOf returns the calls of a streamed answer, assembled as clients do.
func streamedCallsOf(t *testing.T, path, body, dialect string) []madeCall {
	t.Helper()
	e := New(Config{Model: "m", Interval: 3})
	_, stream := call(t, e, "POST", path, strings.Replace(body, "{", `{"stream":true,`, 1))
	var calls []madeCall
	open := -1 // the index of the call that is being written
	for _, event := range readEvents(t, stream) {
		if event.data == "[DONE]" {
			continue
		}
		o := object(t, event.data)
		switch {
		case dialect == "chat":
			choices := at(t, o, "choices").([]any)
			if len(choices) == 0 {
				continue
			}
			deltas, _ := at(t, choices[0], "delta").(map[string]any)["tool_calls"].([]any)
			for _, one := range deltas {
				if i := number(t, one, "index"); i == len(calls) {
					calls = append(calls, madeCall{id: text(t, one, "id"), name: text(t, one, "function", "name")})
				}
				calls[number(t, one, "index")].arguments += text(t, one, "function", "arguments")
			}
		case o["type"] == "response.output_item.added", o["type"] == "content_block_start":
			item, _ := cmp.Or(o["item"], o["content_block"]).(map[string]any)
			id, _ := cmp.Or(item["call_id"], item["id"]).(string)
			open, calls = len(calls), append(calls, madeCall{id: id, name: text(t, item, "name")})
		case o["type"] == "response.function_call_arguments.delta":
			calls[number(t, o, "output_index")].arguments += text(t, o, "delta")
		case o["type"] == "content_block_delta":
			calls[number(t, o, "index")].arguments += text(t, o, "delta", "partial_json")
		case o["type"] == "response.output_item.done":
			if i := number(t, o, "output_index"); i != open || text(t, o, "item", "arguments") != calls[i].arguments {
				t.Errorf("%s: the end of another item: %s", dialect, event.data)
			}
		case o["type"] == "content_block_stop" && number(t, o, "index") != open:
			t.Errorf("%s: the end of another block: %s", dialect, event.data)
		}
	}
	return calls
}

// A follow-up of a stored response has its calls.
func TestParallelCallsAreContinued(t *testing.T) {
	e := New(Config{Model: "m"})
	const tools = `"tools":[{"type":"function","name":"calculate"},{"type":"function","name":"web_search"}]`
	first := ask(t, e, "/v1/responses", `{"model":"m","input":"web_search and calculate",`+tools+`}`)
	results := ""
	for _, one := range at(t, first, "output").([]any) {
		results += `,{"type":"function_call_output","call_id":"` + text(t, one, "call_id") + `","output":"42"}`
	}
	second := ask(t, e, "/v1/responses", `{"model":"m","previous_response_id":"`+text(t, first, "id")+`","input":[`+
		results[1:]+`],`+tools+`}`)
	if text(t, second, "output", 0, "type") != "message" {
		t.Errorf("the results are not answered: %v", second["output"])
	}
	short := ask(t, e, "/v1/messages", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"web_search and calculate"}],
		"tools":[{"name":"calculate","input_schema":{}},{"name":"web_search","input_schema":{}}]}`)
	if len(at(t, short, "content").([]any)) != 1 || text(t, short, "stop_reason") != "max_tokens" {
		t.Errorf("the limit does not end the calls: %v", short)
	}
}
