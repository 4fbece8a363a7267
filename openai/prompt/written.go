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
	// searchLimit is how many bytes the search reads in all texts of a request, so that it takes at most tens of
	// milliseconds. It suffices for the agents' chats, whose user texts have some 100 KB.
	searchLimit = 8 << 20
	// tagCost is how many bytes take as long as the name of a tag.
	tagCost = 64
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

// search finds what a person wrote in the texts of a request. Texts beyond its limit are used whole.
type search struct {
	left     int  // bytes that it may still read
	answered bool // an assistant's message precedes the text, so that the text may be a tool's result
	keep     int  // the last kind of blocks that is kept
	cutOwn   bool // such a block was removed
}

// writtenIn returns what a person wrote of a user's text. Agents and chat programs add to it: blocks in tags, such as
// reminders and the state of the environment, the results of tools, and rules that the system prompt has too. rules are
// the raw texts that come before it, without the blanks at their ends.
func (s *search) writtenIn(raw []byte, rules [][]byte) written {
	if len(raw) > min(writtenLimit, s.left) {
		return written{raw: raw}
	}
	s.left -= min(len(raw), tagLimit)
	if result, follows := toolResult(raw, s.answered); result {
		return written{results: follows}
	}
	s.left -= len(raw)
	raw = s.cutRepeated(raw, rules)
	if bytes.IndexByte(raw, '<') < 0 && !bytes.Contains(raw, []byte(`\u003`)) {
		return written{raw: raw}
	}
	decoded := make([]byte, len(raw)+utf8.UTFMax)
	n, _ := openai.Unescape(decoded, raw, 0, len(raw))
	return written{text: s.withoutBlocks(decoded[:n])}
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
// the output is in the following part. Only a call of the Read tool can precede the first answer.
func toolResult(raw []byte, answered bool) (result, follows bool) {
	var buf [tagLimit + utf8.UTFMax]byte
	n, rest := openai.Unescape(buf[:], raw, 0, tagLimit)
	line := bytes.TrimSpace(buf[:n])
	if bytes.HasPrefix(line, []byte("Called the ")) && bytes.Contains(line, []byte(" tool with the following input")) {
		return true, true
	}
	if !answered {
		return false, false
	}
	for _, begin := range []string{"Observation:", "OBSERVATION:", "EXECUTION RESULT of [", "<returncode>"} {
		if bytes.HasPrefix(line, []byte(begin)) {
			return true, false
		}
	}
	for _, label := range []string{"Tool result", "Tool output", "Function result"} {
		after, ok := bytes.CutPrefix(line, []byte(label))
		if ok && (len(after) == 0 || strings.IndexByte(":\r\n", after[0]) >= 0) {
			return true, false
		}
	}
	const end = "] Result:"
	if i := bytes.Index(line, []byte(end)); i > 0 && line[0] == '[' {
		return true, i+len(end) == len(line) && len(rest) == 0
	}
	return false, false
}

// cutRepeated removes the lines at the end of a raw text that also end one of rules, unless no text is left.
func (s *search) cutRepeated(raw []byte, rules [][]byte) []byte {
	text, longest := trimBlankEnd(raw), 0
	for _, rule := range rules {
		if s.left <= 0 {
			break
		}
		n := commonEnd(text, rule)
		s.left -= n + 1
		longest = max(longest, n)
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

func commonEnd(a, b []byte) int {
	n := 0
	for n < min(len(a), len(b)) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// withoutBlocks removes the blocks of applications from a decoded text, in place. If the text marks the user's request
// by a tag, only that is left.
func (s *search) withoutBlocks(text []byte) []byte {
	task := bytes.HasPrefix(bytes.TrimLeft(text, "# \t\r\n"), []byte("Task:")) && bytes.HasPrefix(text, []byte("#"))
	whole, left := text, text[:0]
	var request []byte
	removed := false
	for s.left > 0 && len(text) > 0 {
		i := bytes.IndexByte(text, '<')
		if i < 0 {
			break
		}
		name := tagName(text[i:])
		kind := plainTag
		if name != "" {
			s.left -= tagCost
			kind = kindOfTag(name, i == 0 || text[i-1] == '\n')
		}
		if kind == plainTag || kind <= s.keep && !task {
			left, text = append(left, text[:i+1]...), text[i+1:]
			continue
		}
		inner, rest, closed := s.cutBlock(text[i:], name)
		removed = removed || closed
		s.cutOwn = s.cutOwn || closed && kind == ownTag && !task
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
func (s *search) cutBlock(text []byte, name string) (inner, rest []byte, closed bool) {
	open, end := []byte("<"+name), []byte("</"+name+">")
	from := len(open)
	for depth, at := 1, from; ; {
		i := bytes.Index(text[at:], end)
		if i < 0 {
			s.left -= len(text) - at
			return nil, nil, false
		}
		s.left -= i + len(end)
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
	plainTag   = iota // a person wrote it
	ownTag            // an application's block beside other text, a person's if it is all of a message
	sharedTag         // an application's block, a person's if the whole chat has no other text
	contextTag        // an application's block
	requestTag        // has the user's request
)

// kindOfTag returns the kind of a tag. Names of several words are recognized everywhere, single words at the start of
// a line only, and names in the form of JSX components nowhere. Persons write <instructions>; applications write it in
// capitals.
func kindOfTag(name string, startsLine bool) int {
	if len(name) > 1 && unicode.IsUpper(rune(name[0])) && name != strings.ToUpper(name) {
		return plainTag
	}
	words := strings.Fields(splitWords(name))
	switch {
	case len(words) == 2 && words[0] == "user" && isRequestWord(words[1]):
		return requestTag
	case len(words) == 1 && startsLine && name != "instructions":
		return kindOfName(words[0])
	case len(words) > 1 && !isOwnHead(words[len(words)-1]):
		kind := plainTag
		for _, w := range words {
			kind = max(kind, kindOfWord(w))
		}
		return kind
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

// isOwnHead reports whether a block whose name of several words ends with w has a person's words.
func isOwnHead(w string) bool {
	switch w {
	case "description", "task", "request", "question", "prompt", "query", "requirements", "spec", "specification",
		"goal", "story", "problem", "idea", "design", "definition":
		return true
	}
	return false
}

// kindOfName returns the kind of a block of that single word.
func kindOfName(w string) int {
	switch w {
	case "context", "environment", "instructions", "rules", "skills", "memory", "memories", "attachments":
		return ownTag
	case "system":
		return sharedTag
	case "reminder":
		return contextTag
	}
	return plainTag
}

// kindOfWord returns the kind of a block with that word in its name of several words.
func kindOfWord(w string) int {
	switch w {
	case "context", "instructions", "rules", "project", "repo", "details", "info", "information", "additional":
		return ownTag
	case "system", "function", "tool", "agent", "git", "terminal", "editor", "workspace", "session", "metadata",
		"memory", "diagnostics", "date", "datetime":
		return sharedTag
	case "reminder", "reminders", "environment", "env", "permissions", "skill", "skills", "hook", "submit", "caveat",
		"memories", "stdout", "stderr", "attachments", "attached", "ide", "notification", "notifications", "tools", "agents",
		"mcp", "todo", "todos", "history", "summary", "cwd", "viewed", "opened", "transcripts":
		return contextTag
	}
	return plainTag
}
