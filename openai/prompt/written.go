package prompt

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"tierway/openai"
)

const (
	// writtenLimit is the longest text, in bytes of the body, in which the words of applications are searched. A longer
	// text is used whole.
	writtenLimit = 1 << 20
	// blocksLimit is how many blocks of one text are removed, so that the search takes linear time.
	blocksLimit = 64
	// tagLimit is the longest tag of a block in bytes, with its attributes.
	tagLimit = 200
	// repeatedLeast is the shortest end of a text, in bytes of the body, that counts as repeated from an earlier text. A
	// person repeats shorter phrases by chance.
	repeatedLeast = 100
)

// written is the part of a user's text that a person wrote.
type written struct {
	raw     []byte // as in the body; nil if text is used
	text    []byte // decoded
	results bool   // the following part is the output of a tool
}

func (w *written) empty() bool { return len(w.raw) == 0 && len(w.text) == 0 }

// writtenIn returns the part of a user's text that a person wrote. Agents and chat programs add other text:
// blocks in tags, such as reminders and the state of the environment, the results of tools, and rules that the system
// prompt has too. rules are the raw texts that come before it.
func writtenIn(raw []byte, rules [][]byte) written {
	if len(raw) > writtenLimit {
		return written{raw: raw}
	}
	if result, follows := toolResult(raw); result {
		return written{results: follows}
	}
	raw = cutRepeated(raw, rules)
	if bytes.IndexByte(raw, '<') < 0 && !bytes.Contains(raw, []byte(`\u003`)) {
		return written{raw: raw}
	}
	decoded := make([]byte, len(raw)+utf8.UTFMax)
	n, _ := openai.Unescape(decoded, raw, 0, len(raw))
	return written{text: withoutBlocks(decoded[:n])}
}

// trimBlankEnd removes blanks and escaped line ends from the end of a raw text.
func trimBlankEnd(raw []byte) []byte {
	for {
		cut := bytes.TrimRight(raw, " ")
		if n := len(cut); n > 1 && cut[n-2] == '\\' && strings.IndexByte("nrt", cut[n-1]) >= 0 && escapes(cut, n-2) {
			cut = cut[:n-2]
		}
		if len(cut) == len(raw) {
			return raw
		}
		raw = cut
	}
}

// escapes reports whether the backslash at i of a raw text begins an escape.
func escapes(raw []byte, i int) bool {
	from := i
	for from > 0 && raw[from-1] == '\\' {
		from--
	}
	return (i-from)%2 == 0
}

// toolResult reports whether a raw text is the result of a tool that an agent sends as a user's text, and whether
// the output is in the following part.
func toolResult(raw []byte) (result, follows bool) {
	var buf [tagLimit + utf8.UTFMax]byte
	n, rest := openai.Unescape(buf[:], raw, 0, tagLimit)
	line := bytes.TrimSpace(buf[:n])
	for _, begin := range []string{
		"Observation:", "OBSERVATION:", "EXECUTION RESULT of [", "Tool result", "Tool output", "Function result", "<returncode>",
	} {
		if bytes.HasPrefix(line, []byte(begin)) {
			return true, false
		}
	}
	if bytes.HasPrefix(line, []byte("Called the ")) && bytes.Contains(line, []byte(" tool with the following input")) {
		return true, true
	}
	const end = "] Result:"
	if i := bytes.Index(line, []byte(end)); i > 0 && line[0] == '[' {
		return true, i+len(end) == len(line) && len(rest) == 0
	}
	return false, false
}

// cutRepeated removes the lines at the end of a raw text that also end one of rules, unless no text is left.
func cutRepeated(raw []byte, rules [][]byte) []byte {
	text, longest := trimBlankEnd(raw), 0
	for _, rule := range rules {
		longest = max(longest, commonEnd(text, trimBlankEnd(rule)))
	}
	if longest < repeatedLeast {
		return raw
	}
	for at := len(text) - longest; ; at += 2 {
		i := bytes.Index(text[at:], []byte(`\n`))
		if i < 0 {
			return raw
		}
		if at += i; !escapes(text, at) {
			continue
		}
		if cut := trimBlankEnd(text[:at]); len(cut) > 0 && len(text)-at >= repeatedLeast {
			return cut
		}
		return raw
	}
}

// commonEnd returns the length of the longest common end of a and b.
func commonEnd(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// withoutBlocks removes the blocks of applications from a decoded text, in place. If the text marks the user's request
// by a tag, only that is left.
func withoutBlocks(text []byte) []byte {
	task := bytes.HasPrefix(bytes.TrimLeft(text, "# \t\r\n"), []byte("Task:")) && bytes.HasPrefix(text, []byte("#"))
	whole, left := text, text[:0]
	var request []byte
	removed := false
	for searched := 0; len(text) > 0; {
		i := bytes.IndexByte(text, '<')
		if i < 0 {
			break
		}
		name := tagName(text[i:])
		kind := kindOfTag(name, i == 0 || text[i-1] == '\n')
		if kind == plainTag || searched == blocksLimit {
			left, text = append(left, text[:i+1]...), text[i+1:]
			continue
		}
		searched++
		inner, rest, closed := cutBlock(text[i:], name)
		removed = removed || closed
		switch {
		case !closed:
			left, text = append(left, text[:i+1]...), text[i+1:]
		case kind == requestTag:
			request = inner
			left, text = append(left, text[:i]...), rest
		case task: // the instructions that come before the block are the application's too
			left, text = left[:0], rest
		default:
			left, text = append(left, text[:i]...), rest
		}
	}
	switch request = bytes.TrimSpace(request); {
	case !removed:
		return whole
	case len(request) > 0:
		return request
	}
	return bytes.TrimSpace(append(left, text...))
}

// tagName returns the name of the tag at the start of text; "" if none begins a block there.
func tagName(text []byte) string {
	end := bytes.IndexByte(text[:min(len(text), tagLimit)], '>')
	if end < 2 || text[end-1] == '/' {
		return ""
	}
	name := text[1:end]
	if bytes.IndexByte(name, '=') >= 0 {
		name, _, _ = bytes.Cut(name, []byte(" "))
	}
	for _, c := range name {
		if !isLetter(c) && (c < '0' || c > '9') && strings.IndexByte("-_: ", c) < 0 {
			return ""
		}
	}
	if len(name) == 0 || !isLetter(name[0]) {
		return ""
	}
	return string(name)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// cutBlock returns the inside of the block at the start of text and the text after its end. closed is false without
// an end.
func cutBlock(text []byte, name string) (inner, rest []byte, closed bool) {
	open, end := []byte("<"+name), []byte("</"+name+">")
	from := len(open)
	for depth, at := 1, from; ; {
		i := bytes.Index(text[at:], end)
		if i < 0 {
			return nil, nil, false
		}
		depth += bytes.Count(text[at:at+i], open) - 1
		if at += i + len(end); depth <= 0 {
			inner = text[from : at-len(end)]
			if i := bytes.IndexByte(inner, '>'); i >= 0 {
				inner = inner[i+1:]
			}
			return inner, text[at:], true
		}
	}
}

// kinds of tags
const (
	plainTag   = iota // a person may have written it
	contextTag        // an application's block
	requestTag        // has the user's request
)

// kindOfTag returns the kind of a tag. Names of several words are recognized everywhere, single words at the start of
// a line only, and names in the form of JSX components nowhere.
func kindOfTag(name string, startsLine bool) int {
	if len(name) > 1 && unicode.IsUpper(rune(name[0])) && name != strings.ToUpper(name) {
		return plainTag
	}
	words := strings.Fields(splitWords(name))
	switch {
	case len(words) == 2 && words[0] == "user" && isRequestWord(words[1]):
		return requestTag
	case len(words) == 1 && startsLine && isContextName(words[0]):
		return contextTag
	case len(words) > 1:
		for _, w := range words {
			if isContextWord(w) {
				return contextTag
			}
		}
	}
	return plainTag
}

// splitWords returns the words of a name in lower case, separated by blanks.
func splitWords(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case !isLetter(c) && (c < '0' || c > '9'):
			b.WriteByte(' ')
		case 'A' <= c && c <= 'Z':
			if i > 0 && 'a' <= name[i-1] && name[i-1] <= 'z' {
				b.WriteByte(' ')
			}
			b.WriteByte(c | 0x20)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// isRequestWord reports whether a block named user_WORD has the user's request.
func isRequestWord(w string) bool {
	switch w {
	case "query", "request", "message", "input", "prompt", "question":
		return true
	}
	return false
}

// isContextName reports whether a block of that single word is an application's.
func isContextName(w string) bool {
	switch w {
	case "context", "environment", "instructions", "rules", "skills", "memory", "memories", "attachments", "reminder",
		"system":
		return true
	}
	return false
}

// isContextWord reports whether a block with that word in its name of several words is an application's.
func isContextWord(w string) bool {
	switch w {
	case "reminder", "reminders", "context", "environment", "env", "instructions", "permissions", "skill", "skills",
		"hook", "submit", "caveat", "rules", "memory", "memories", "metadata", "details", "stdout", "stderr", "attachments", "attached",
		"workspace", "editor", "ide", "notification", "notifications", "tool", "tools", "function", "agent", "agents", "mcp",
		"system", "todo", "todos", "repo", "project", "git", "diagnostics", "terminal", "history", "cwd", "info",
		"information", "summary", "viewed", "opened", "transcripts", "date", "datetime", "additional", "session":
		return true
	}
	return false
}
