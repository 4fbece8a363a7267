package answers

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"
	"unicode/utf8"

	"tierway/openai"
)

// Reason is why a request bypasses the cache, or why its answer is not kept; empty: it does not.
type Reason string

// The reasons that a request has itself.
const (
	Tools       Reason = "tools"       // it offers tools or has a tool_choice
	Media       Reason = "media"       // it contains or requests images, audio, video or files
	Choices     Reason = "choices"     // it requests several answers
	Logprobs    Reason = "logprobs"    // it requests log probabilities
	Stored      Reason = "stored"      // its response is stored, or it continues or refers to a stored object
	Handover    Reason = "handover"    // a field names an engine
	Temperature Reason = "temperature" // its temperature is not 0
	Size        Reason = "size"        // the body, or the answer, is too long
)

// maxBody is the longest body in bytes that is read for the cache: 250,000 tokens of English text. A longer prompt
// rarely comes twice, and its canonical form would take as much memory again.
const maxBody = 1 << 20

// Form is the part of a request that determines its answer. It is valid until its FormReader reads the next one.
type Form struct {
	// Bypass is why the answer must not come from a cache and must not be kept.
	Bypass Reason
	// Sampled reports that the temperature is not 0: the answer is one of many.
	Sampled bool
	// Exact is the hash of all members that count. Rest is the same without the text Text.
	Exact, Rest [sha256.Size]byte
	// Text is the decoded text of the last message, if that is the user's; empty if there is none.
	Text []byte
	// Metadata and User are members of the body that do not count, as JSON; nil if absent. They share memory with it.
	Metadata, User []byte
}

// FormReader reads forms. It is not safe for concurrent use.
type FormReader struct {
	r       openai.Reader
	out     []byte // the canonical form
	spare   []byte
	members []member
	textAt  int // position of the text in the body; 0: none
	text    []byte
	raw     []byte // the text as the body has it
}

// DropBody drops the references to the body of the last request.
func (c *FormReader) DropBody() { c.r, c.raw = openai.Reader{}, nil }

type member struct{ from, name, to int }

// textMark stands for the text in the canonical form, which has no such byte otherwise.
const textMark = 0

// Read reads the form of a request of a dialect that generates. stores reports that the engine stores the response.
// With anyTemperature, the temperature bypasses nothing. Two requests have the same form only if their bodies are
// equal JSON, apart from the order of members, spaces, escapes, and the members that do not count: model, stream,
// stream_options, user, metadata and ids of the request. The caller must have resolved the model.
func (c *FormReader) Read(r *openai.Request, stores, anyTemperature bool) (f Form) {
	switch {
	case r.Tools:
		f.Bypass = Tools
	case r.Media:
		f.Bypass = Media
	case r.N > 1 || r.Prompts() > 1:
		f.Bypass = Choices
	case stores || r.Store || r.Background || r.PreviousResponseID != "" || r.ConversationID != "":
		f.Bypass = Stored
	case len(r.Body) > maxBody:
		f.Bypass = Size
	}
	if f.Bypass != "" {
		return f
	}
	c.out, c.members, c.raw = c.out[:0], c.members[:0], nil
	c.textAt = lastText(r)
	c.r = r.Reader()
	f.Sampled = true
	t := top{form: &f, dialect: r.Dialect}
	c.appendObject(&t)
	if f.Sampled && !anyTemperature && f.Bypass == "" {
		f.Bypass = Temperature
	}
	if f.Bypass != "" {
		return f
	}
	f.Rest = sha256.Sum256(c.out)
	c.text = unescaped(append(c.text[:0], f.Rest[:]...), c.raw)
	f.Exact, f.Text = sha256.Sum256(c.text), c.text[len(f.Rest):]
	return f
}

// top is what the top level of a body says.
type top struct {
	form           *Form
	dialect        openai.Dialect
	hasTemperature bool
}

// counts reads the next member's value for what it says, and reports whether it counts for the answer. The reader is
// at the value afterwards, unless it does not count.
func (t *top) counts(r *openai.Reader, name []byte) bool {
	at := r.Pos()
	switch string(name) {
	case "model", "stream", "stream_options", "request_id", "rid":
		r.Skip()
		return false
	case "metadata":
		t.form.Metadata = r.Skip()
		return false
	case "user":
		t.form.User = r.Skip()
		return false
	case "temperature":
		n, err := strconv.ParseFloat(string(r.Skip()), 64)
		t.form.Sampled = err != nil || n != 0 || t.hasTemperature // parsers differ in which one of two they use
		t.hasTemperature = true
	case "tools", "tool_choice", "functions", "function_call", "mcp_servers", "web_search_options":
		t.bypass(r, Tools)
	case "audio":
		t.bypass(r, Media)
	case "logprobs", "top_logprobs", "prompt_logprobs":
		t.bypass(r, Logprobs)
	case "include": // log probabilities, encrypted reasoning, results of tools
		t.bypass(r, Logprobs)
	case "prompt_embeds":
		t.bypass(r, Media)
	case "prompt":
		if t.dialect == openai.Responses { // a template that is stored with its version
			t.bypass(r, Stored)
		}
	case "conversation", "previous_response_id":
		t.bypass(r, Stored)
	default:
		if slices.Contains(openai.EngineFields[:], string(name)) {
			t.bypass(r, Handover)
		}
	}
	r.Seek(at)
	return true
}

// bypass sets the reason if the next value has content.
func (t *top) bypass(r *openai.Reader, why Reason) {
	if openai.HasContent(r.Skip()) && t.form.Bypass == "" {
		t.form.Bypass = why
	}
}

func (c *FormReader) appendValue() {
	switch c.r.Next() {
	case '"':
		at := c.r.Pos()
		raw := c.r.Str()
		if at == c.textAt {
			c.out, c.raw = append(c.out, textMark), raw
			return
		}
		c.appendText(raw)
	case '{':
		c.appendObject(nil)
	case '[':
		c.out = append(c.out, '[')
		for c.r.Enter('['); c.r.More(']'); {
			c.appendValue()
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, ']')
	default:
		c.out = append(c.out, c.r.Scalar()...)
	}
}

// appendObject appends an object with its members in the order of their names. Members of one name keep their order,
// because parsers differ in which one they use. t is nil below the top level.
func (c *FormReader) appendObject(t *top) {
	first := len(c.members)
	c.out = append(c.out, '{')
	start := len(c.out)
	for c.r.Enter('{'); c.r.More('}'); {
		from := len(c.out)
		c.appendText(c.r.Key())
		name := len(c.out)
		if t != nil && !t.counts(&c.r, c.out[from+1:name-1]) {
			c.out = c.out[:from]
			continue
		}
		c.out = append(c.out, ':')
		c.appendValue()
		c.out = append(c.out, ',')
		c.members = append(c.members, member{from, name, len(c.out)})
	}
	own := c.members[first:]
	byName := func(a, b member) int { return bytes.Compare(c.out[a.from:a.name], c.out[b.from:b.name]) }
	if !slices.IsSortedFunc(own, byName) {
		slices.SortStableFunc(own, byName)
		c.spare = c.spare[:0]
		for _, m := range own {
			c.spare = append(c.spare, c.out[m.from:m.to]...)
		}
		copy(c.out[start:], c.spare)
	}
	c.members = c.members[:first]
	c.out = append(c.out, '}')
}

// appendText appends a string, given without its quotes, with the fewest escapes.
func (c *FormReader) appendText(raw []byte) {
	if !openai.Escaped(raw) {
		c.out = append(append(append(c.out, '"'), raw...), '"')
		return
	}
	c.out = openai.AppendText(c.out, string(unescaped(nil, raw)))
}

// unescaped appends the decoded string to dst.
func unescaped(dst, raw []byte) []byte {
	if !openai.Escaped(raw) {
		return append(dst, raw...)
	}
	n := len(dst)
	dst = slices.Grow(dst, len(raw)+utf8.UTFMax)
	n, _ = openai.Unescape(dst[:cap(dst)], raw, n, n+len(raw))
	return dst[:n]
}

// lastText returns the position of the text that ends the prompt, if it is the user's; else 0.
func lastText(r *openai.Request) int {
	c := r.Reader()
	at := 0
	switch r.Dialect {
	case openai.Chat, openai.Messages:
		at = r.At(openai.FieldMessages)
	case openai.Completions:
		at = r.At(openai.FieldPrompt)
	case openai.Responses:
		at = r.At(openai.FieldInput)
	}
	if at == 0 {
		return 0
	}
	if c.Seek(at); c.Next() == '"' {
		return c.Pos()
	}
	if r.Dialect == openai.Completions || c.Next() != '[' {
		return 0
	}
	last := 0
	for c.Enter('['); c.More(']'); {
		last = contentOfUser(&c)
	}
	if last == 0 {
		return 0
	}
	if c.Seek(last); c.Next() == '"' {
		return c.Pos()
	}
	if c.Next() != '[' {
		return 0
	}
	last = 0
	for c.Enter('['); c.More(']'); {
		last = textOfPart(&c)
	}
	return last
}

// contentOfUser reads a message and returns the position of its content if it is the user's; else 0.
func contentOfUser(c *openai.Reader) (content int) {
	if c.Next() != '{' {
		c.Skip()
		return 0
	}
	user, message := false, true
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "role":
			user = string(c.Word()) == "user"
		case "type":
			message = string(c.Word()) == "message"
		case "content":
			c.Next()
			content = c.Pos()
		}
	}
	if !user || !message {
		return 0
	}
	return content
}

// textOfPart reads a part of a content and returns the position of its text; 0 if it has none.
func textOfPart(c *openai.Reader) (text int) {
	if c.Next() != '{' {
		c.Skip()
		return 0
	}
	isText := false
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "text":
			if c.Next() == '"' {
				text = c.Pos()
			}
		case "type":
			kind := string(c.Word())
			isText = kind == "text" || kind == "input_text"
		}
	}
	if !isText {
		return 0
	}
	return text
}
