package engines

import (
	"fmt"
	"strings"
	"testing"
)

// Agents add messages of their own around the words of a person.
func TestToolsAreCalledForAPersonsWordsBesideAnAgentsOwn(t *testing.T) {
	const after, block = "Agents that can use calculate and web_search.", `<system-reminder>\nUse calculate.\n</system-reminder>`
	const asked = "search the web"
	message := func(role, words string) string { return fmt.Sprintf(`{"role":%q,"content":"%s"}`, role, words) }
	parts := func(kind string, words ...string) string {
		list := make([]string, len(words))
		for i, text := range words {
			list[i] = fmt.Sprintf(`{"type":%q,"text":"%s"}`, kind, text)
		}
		return `{"role":"user","content":[` + strings.Join(list, ",") + `]}`
	}
	kinds := map[string]string{"chat": "text", "responses": "input_text", "messages": "text"}
	for dialect, a := range agents {
		kind := kinds[dialect]
		for name, row := range map[string]struct{ history, called string }{
			"a system message follows": {message("user", asked) + "," + message("system", after), "web_search"},
			"a developer message and a system message follow": {message("user", asked) + "," + message("developer", after) +
				"," + message("system", after), "web_search"},
			"a system message and no question":   {message("user", "hi") + "," + message("system", after), ""},
			"a block before the words":           {parts(kind, block, asked), "web_search"},
			"a block after the words":            {parts(kind, asked, block), "web_search"},
			"a block within the words":           {message("user", block+`\n\n`+asked+`\n`+block), "web_search"},
			"a message that is a block":          {message("user", asked) + "," + message("user", block), "web_search"},
			"a list of tools before the words":   {parts(kind, after, asked), "web_search"},
			"blocks and no question":             {parts(kind, block, "hi", block), ""},
			"nothing but a block":                {message("user", `<task>`+asked+`</task>`), "web_search"},
			"a tag that is not closed":           {message("user", `<b> `+asked), "web_search"},
			"words in a person's own mark-up":    {message("user", `Please <b>search</b> it`), "web_search"},
			"an earlier question was answered":   {message("user", asked) + "," + message("assistant", "42") + "," + message("user", "hi"), ""},
			"an answer, then a system message":   {message("user", asked) + "," + message("assistant", "42") + "," + message("system", after), ""},
			"two questions, the last one counts": {message("user", "calculate") + "," + message("user", asked), "web_search"},
		} {
			got := a.run(t, row.history, "", "calculate", "web_search")
			if got[0] != row.called || len(got) > 2 {
				t.Errorf("%s, %s: called %q, want %q", dialect, name, got, row.called)
			}
		}
	}
}

// The tools are those of coding agents and of examples in documentation.
func TestTheCalledToolIsTheOneThatTheWordsName(t *testing.T) {
	agents := map[string][]string{
		"Claude Code": {"Task", "Bash", "CronList", "Edit", "Glob", "Grep", "Read", "TaskList", "WebSearch", "Write"},
		"Codex":       {"exec_command", "write_stdin", "view_image", "update_goal"},
		"opencode":    {"bash", "edit", "glob", "grep", "read", "task", "todowrite", "webfetch", "write"},
		"qwen-code":   {"tool_search", "list_directory", "read_file", "grep_search", "run_shell_command", "todo_write"},
		"Cline":       {"execute_command", "read_file", "list_files", "attempt_completion"},
		"examples":    {"getWeather", "get_stock_price", "add", "multiply", "get_current_time"},
	}
	for _, row := range []struct{ agent, words, want string }{
		{"Claude Code", "list the files here", "Bash"},
		{"Claude Code", "Which files are in this folder?", "Bash"},
		{"Claude Code", "Run the tests", "Bash"},
		{"Claude Code", "Read README.md", "Read"},
		{"Claude Code", "Use Glob to list the files", "Glob"},
		{"Claude Code", "Search the web", "WebSearch"},
		{"Claude Code", "hi", ""},
		{"Codex", "list the files here", "exec_command"},
		{"Codex", "hi", ""},
		{"opencode", `"list the files here"`, "bash"},
		{"qwen-code", "list the files here", "run_shell_command"},
		{"qwen-code", "List the directory", "list_directory"},
		{"Cline", "list the files here", "list_files"},
		{"Cline", "run a command", "execute_command"},
		{"examples", "What is the weather in Paris?", "getWeather"},
		{"examples", "What is the price of this stock?", "get_stock_price"},
		{"examples", "What is the weather in Paris, and the price of the stock?", "getWeather get_stock_price"},
		{"examples", "add 3 and 4", "add"},
		{"examples", "What time is it?", "get_current_time"},
		{"examples", "list the files here", ""},
	} {
		tools := make([]*tool, len(agents[row.agent]))
		for i, name := range agents[row.agent] {
			tools[i] = &tool{name: name, function: true}
		}
		var names []string
		for _, called := range namedTools(tools, strings.ToLower(row.words)) {
			names = append(names, called.name)
		}
		if got := strings.Join(names, " "); got != row.want {
			t.Errorf("%s, %q: called %q, want %q", row.agent, row.words, got, row.want)
		}
	}
}
