package engines

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// pickTools decides which tools the answer calls. The choice depends on the conversation alone and lets
// an agent's loop end. With free choice the engine calls the tools that the question names, and answers
// a result with text. A required call is one, and moves on to another tool.
func pickTools(tools []tool, choice toolChoice, turns []turn) ([]*tool, error) {
	offered, err := choice.offered(tools)
	switch {
	case err != nil:
		return nil, err
	case choice.mode == "required" && len(offered) == 0:
		return nil, badRequest("tools", "tool_choice requires a call and there are no functions among the tools")
	case choice.mode == "none" || len(offered) == 0:
		return nil, nil
	case choice.name != "":
		return offered[:1], nil
	case choice.mode == "required":
		return []*tool{requiredTool(offered, turns)}, nil
	case answering(turns):
		return nil, nil
	}
	named := namedTools(offered, question(turns))
	if choice.single {
		named = named[:min(1, len(named))]
	}
	return named, nil
}

// offered returns the functions that may be called; only the named one if the choice names one.
func (c *toolChoice) offered(tools []tool) ([]*tool, error) {
	names := c.allowed
	if c.name != "" {
		names = []string{c.name}
	}
	for _, name := range names {
		if !slices.ContainsFunc(tools, func(t tool) bool { return t.name == name }) {
			return nil, badRequest("tool_choice", "tool_choice names %q, which is not among the tools", name)
		}
	}
	var offered []*tool
	for i := range tools {
		if tools[i].function && (names == nil || slices.Contains(names, tools[i].name)) {
			offered = append(offered, &tools[i])
		}
	}
	return offered, nil
}

// question returns the last words of a person since the last answer or result, in lower case. Agents
// add messages and blocks of their own before and after them; these count if there is nothing else.
func question(turns []turn) string {
	fallback := ""
	for _, t := range slices.Backward(turns) {
		if t.result || t.role == "assistant" {
			break
		}
		if t.role != "user" {
			continue
		}
		for _, text := range slices.Backward(t.texts) {
			if words := withoutBlocks(text); strings.TrimSpace(words) != "" {
				return strings.ToLower(words)
			}
			fallback = cmp.Or(fallback, text)
		}
	}
	return strings.ToLower(fallback)
}

// mostUnclosed bounds the searches for the ends of blocks in one text.
const mostUnclosed = 100

// withoutBlocks removes blocks of the form <name>…</name> that begin a line, as agents add them to the
// words of a person.
func withoutBlocks(text string) string {
	var kept strings.Builder
	unclosed := 0
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		open, ok := strings.CutPrefix(strings.TrimLeft(line, " \t"), "<")
		if name, _, isTag := strings.Cut(open, ">"); ok && isTag && unclosed < mostUnclosed {
			if end := strings.Index(text, "</"+name+">"); end >= 0 {
				text = text[end+len(name)+len("</>"):]
				continue
			}
			unclosed++
		}
		kept.WriteString(line + "\n")
		text = rest
	}
	return kept.String()
}

// answering reports whether a tool's result has arrived since the last text answer: agents add
// reminders after results.
func answering(turns []turn) bool {
	for _, t := range slices.Backward(turns) {
		switch {
		case t.result:
			return true
		case t.role == "assistant" && len(t.calls) == 0:
			return false
		}
	}
	return false
}

// requiredTool returns the tool of a required call. After a call it is the tool that finishes the
// task. Otherwise it is a tool that the question names and that was not called, or else the one
// whose last call is the oldest.
func requiredTool(offered []*tool, turns []turn) *tool {
	var working []*tool
	var finisher *tool
	for _, t := range offered {
		if !finishes(t.name) {
			working = append(working, t)
		} else if finisher == nil {
			finisher = t
		}
	}
	called := calledTools(offered, turns)
	if finisher != nil && (len(working) == 0 || len(called) > 0 && !finishes(called[len(called)-1])) {
		return finisher
	}
	if named := namedTools(working, question(turns)); len(named) > 0 && !slices.Contains(called, named[0].name) {
		return named[0]
	}
	slices.Reverse(called) // Index finds the last call now, -1 for none
	ago := func(t *tool) int {
		if at := slices.Index(called, t.name); at >= 0 {
			return at
		}
		return len(called)
	}
	return slices.MaxFunc(working, func(a, b *tool) int { return cmp.Compare(ago(a), ago(b)) })
}

// calledTools returns the names of the tools that the conversation has called, in order. Some
// agents write calls into the text of the assistant's turns.
func calledTools(offered []*tool, turns []turn) []string {
	var called []string
	for _, t := range turns {
		if t.role != "assistant" {
			continue
		}
		called = append(called, t.calls...)
		if len(t.calls) > 0 {
			continue
		}
		words := wordsOf(t.text, joiners)
		for _, o := range offered {
			if slices.Contains(words, strings.ToLower(o.name)) {
				called = append(called, o.name)
			}
		}
	}
	return called
}

// finishing are words in the names of tools that end a task; immutable.
var finishing = [...]string{"final", "finish", "finished", "done", "complete", "completed", "completion",
	"submit", "terminate", "respond", "answer"}

func finishes(name string) bool {
	return slices.ContainsFunc(nameWords(name), func(word string) bool { return slices.Contains(finishing[:], word) })
}

// namedTools returns the tools that the text names: by their names, else by all words of the name. Else
// it returns one: in a text about files and commands a shell, else the first with a word of its name.
// Only words of four letters and more count: "get" and "the" carry no meaning.
func namedTools(offered []*tool, text string) []*tool {
	words := wordsOf(text, joiners)
	isSaid := func(word string) bool { return slices.Contains(words, word) }
	isUnsaid := func(word string) bool { return !isSaid(word) }
	isShell := func(word string) bool { return slices.Contains(shellWords[:], word) }
	aboutFiles := slices.ContainsFunc(fileWords[:], isSaid)
	for _, one := range [...]struct {
		maxTools int
		names    func(name string) bool
	}{
		{len(offered), func(name string) bool { return isSaid(strings.ToLower(name)) }},
		{len(offered), func(name string) bool {
			words := longWords(name)
			return len(words) > 0 && !slices.ContainsFunc(words, isUnsaid)
		}},
		{1, func(name string) bool { return aboutFiles && slices.ContainsFunc(nameWords(name), isShell) }},
		{1, func(name string) bool { return slices.ContainsFunc(longWords(name), isSaid) }},
	} {
		named := slices.DeleteFunc(slices.Clone(offered), func(t *tool) bool { return !one.names(t.name) })
		if len(named) > 0 {
			return named[:min(one.maxTools, len(named))]
		}
	}
	return nil
}

// fileWords are words of texts that a shell can serve, and shellWords words in the names of shells;
// immutable.
var (
	fileWords = [...]string{"command", "commands", "directory", "execute", "files", "folder", "ls", "run", "shell",
		"terminal"}
	shellWords = [...]string{"bash", "command", "exec", "powershell", "shell", "terminal"}
)

// longWords returns the words of a tool's name that carry meaning.
func longWords(name string) []string {
	return slices.DeleteFunc(nameWords(name), func(word string) bool { return len(word) < 4 })
}

// nameWords returns the words of a name such as web_search, web-search or webSearch.
func nameWords(name string) []string {
	var spaced strings.Builder
	last := ' '
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(last) {
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(r)
		last = r
	}
	return wordsOf(spaced.String(), "")
}

// joiners are the characters that join the words of a name.
const joiners = "_-"

// wordsOf splits a text into words of letters, digits and joined characters, in lower case.
func wordsOf(text, joined string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(joined, r)
	})
}
