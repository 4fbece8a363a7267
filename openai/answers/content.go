package answers

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"tierway/openai"
)

// Reasons for which a complete answer is not kept.
const (
	Finish      Reason = "finish"  // generation did not end by itself, or the answer is not complete
	MoreContent Reason = "content" // it has more than text and reasoning
)

// MaxContent is the largest content in bytes that is kept: 60,000 tokens of English text.
const MaxContent = 256 << 10

// Content is the content of one complete answer. Members of JSON are kept as the engine wrote them. It is immutable.
type Content struct {
	Model     string `json:"model,omitempty"`
	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"`
	// Names are the members of a chat's message that have the reasoning; a comma separates two.
	Names     string `json:"names,omitempty"`
	Signature string `json:"signature,omitempty"` // of the reasoning, in Messages
	Finish    string `json:"finish"`              // finish_reason, stop_reason or status
	Usage     string `json:"usage,omitempty"`     // object in JSON; empty if the engine sent none
	Choice    string `json:"choice,omitempty"`    // further members of the choice, each after a comma
	Top       string `json:"top,omitempty"`       // further members of the top level, each after a comma
}

// Len returns the memory of the content in bytes.
func (c *Content) Len() int {
	return len(c.Model) + len(c.Text) + len(c.Reasoning) + len(c.Names) + len(c.Signature) + len(c.Finish) + len(c.Usage) +
		len(c.Choice) + len(c.Top)
}

// Recorder collects the content of one answer, which is added whole or event by event. The zero Recorder is not
// usable. It keeps at most MaxContent bytes, and no bytes of what is added. It is not safe for concurrent use.
type Recorder struct {
	dialect  openai.Dialect
	text     strings.Builder
	thought  strings.Builder
	named    map[string]bool // members with reasoning
	content  Content
	usage    members
	choice   members
	top      members
	blocks   []string // types of the blocks of a message
	fields   []field  // of the objects of the current answer or event
	why      Reason   // why the answer is not kept
	complete bool     // its end was read
}

// members are members of objects in JSON by their names. The last value of a name counts.
type members map[string]json.RawMessage

// NewRecorder returns a recorder for an answer of a dialect that generates.
func NewRecorder(d openai.Dialect) *Recorder {
	return &Recorder{dialect: d, named: map[string]bool{}, usage: members{}, choice: members{}, top: members{}}
}

// Content returns the content of the answer, or why it is not kept. prompt and output are the usage of an answer
// without one.
func (r *Recorder) Content(prompt, output int64) (*Content, Reason) {
	c := &r.content
	c.Text, c.Reasoning = r.text.String(), r.thought.String()
	c.Names = strings.Join(slices.Sorted(maps.Keys(r.named)), ",")
	c.Choice, c.Top = r.choice.join(), r.top.join()
	if len(r.usage) > 0 {
		c.Usage = "{" + strings.TrimPrefix(r.usage.join(), ",") + "}"
	} else {
		c.Usage = usageOf(r.dialect, prompt, output)
	}
	switch {
	case r.why != "":
		return nil, r.why
	case !r.complete || !endsItself(r.dialect, c.Finish):
		return nil, Finish
	case c.Text == "":
		return nil, MoreContent
	case c.Len() > MaxContent:
		return nil, Size
	}
	return c, ""
}

// endsItself reports whether the model ended its answer.
func endsItself(d openai.Dialect, finish string) bool {
	switch d {
	case openai.Messages:
		return finish == "end_turn" || finish == "stop_sequence"
	case openai.Responses:
		return finish == "completed"
	}
	return finish == "stop"
}

// reject sets why the answer is not kept.
func (r *Recorder) reject(why Reason) {
	if r.why == "" {
		r.why = why
	}
}

// AddWhole adds a whole answer.
func (r *Recorder) AddWhole(body []byte) {
	if len(body) > 4*MaxContent { // escapes may double a text
		r.reject(Size)
		return
	}
	switch r.dialect {
	case openai.Messages:
		r.addMessage(r.objectOf(body))
	case openai.Responses:
		r.addResponse(r.objectOf(body))
	default:
		r.addChunk(body)
	}
}

// AddEvent adds an event of a stream.
func (r *Recorder) AddEvent(ev openai.Event) {
	if r.why != "" || ev.Comment || len(ev.Data) == 0 || ev.Data[0] != '{' {
		return
	}
	if r.text.Len()+r.thought.Len() > MaxContent {
		r.reject(Size)
		return
	}
	r.fields = r.fields[:0]
	switch r.dialect {
	case openai.Messages:
		r.addMessageEvent(r.objectOf(ev.Data))
	case openai.Responses:
		if o := r.objectOf(ev.Data); o.isText("type", "response.completed") || o.isText("type", "response.done") {
			r.AddWhole(o.value("response"))
		}
	default:
		r.addChunk(ev.Data)
	}
}

type field struct{ name, value []byte }

// object has the members of an object, which share memory with the answer or event. It is valid until the next event.
type object []field

// maxFields is the largest number of members of an object. Those of engines have up to 40.
const maxFields = 256

// objectOf returns the members of an object; nil if the value is none. The last value of a name counts. Invalid JSON,
// which clients read in different ways, is not kept.
func (r *Recorder) objectOf(data []byte) object {
	c := openai.NewReader(data)
	if c.Next() != '{' {
		return nil
	}
	from := len(r.fields)
	for c.Enter('{'); c.More('}'); {
		name := c.Key()
		if openai.Escaped(name) {
			name = unescaped(nil, name)
		}
		v := c.Skip()
		if i := slices.IndexFunc(r.fields[from:], func(f field) bool { return bytes.Equal(f.name, name) }); i >= 0 {
			r.fields[from+i].value = v
		} else if r.fields = append(r.fields, field{name, v}); len(r.fields)-from > maxFields {
			r.reject(MoreContent)
			return nil
		}
	}
	if !c.AtEnd() {
		r.reject(MoreContent)
		return nil
	}
	return slices.Clip(object(r.fields[from:]))
}

// listOf returns the elements of an array of objects; nil if the value is none.
func (r *Recorder) listOf(data []byte) (list []object) {
	c := openai.NewReader(data)
	if c.Next() != '[' {
		return nil
	}
	for c.Enter('['); c.More(']'); {
		list = append(list, r.objectOf(c.Skip()))
	}
	return list
}

// value returns the value of a member; nil if it is absent.
func (o object) value(name string) []byte {
	for _, f := range o {
		if string(f.name) == name {
			return f.value
		}
	}
	return nil
}

func (o object) isText(name, text string) bool { return textOf(o.value(name)) == text }

// textOf returns the value of a string; "" for another value.
func textOf(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	return strings.ToValidUTF8(string(unescaped(nil, v[1:len(v)-1])), "\uFFFD")
}

// keep keeps a copy of a member as it is. It must be valid JSON, because it is sent again without being read.
func (r *Recorder) keep(of members, f field) {
	switch {
	case bytes.Equal(of[string(f.name)], f.value): // from an earlier chunk
	case json.Valid(f.value):
		of[string(f.name)] = bytes.Clone(f.value)
	default:
		r.reject(MoreContent)
	}
}

// join returns the members by their names, each after a comma.
func (o members) join() string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(o)) {
		b = append(openai.AppendText(append(b, ','), name), ':')
		var line bytes.Buffer
		_ = json.Compact(&line, o[name]) // an event has one line; the value is valid
		b = append(b, line.Bytes()...)
	}
	return string(b)
}

// keepUsage keeps the counts of a usage, which a later one may complete.
func (r *Recorder) keepUsage(v []byte) {
	for _, count := range r.objectOf(v) {
		r.keep(r.usage, count)
	}
}

// keepModel keeps the name of the model, which each chunk has.
func (r *Recorder) keepModel(v []byte) {
	if m := r.content.Model; len(v) != len(m)+2 || string(v[1:len(v)-1]) != m {
		r.content.Model = textOf(v)
	}
}

// addChunk adds a whole answer or a chunk of chat or completions.
func (r *Recorder) addChunk(data []byte) {
	for _, f := range r.objectOf(data) {
		switch string(f.name) {
		case "id", "object", "created", "timings", "prompt_token_ids", "prompt_logprobs", "kv_transfer_params":
		case "model":
			r.keepModel(f.value)
		case "usage":
			r.keepUsage(f.value)
		case "choices":
			for _, choice := range r.listOf(f.value) {
				r.addChoice(choice)
			}
		default:
			if openai.HasContent(f.value) {
				r.keep(r.top, f)
			}
		}
	}
}

// addChoice adds a choice of chat or completions.
func (r *Recorder) addChoice(choice object) {
	for _, f := range choice {
		switch string(f.name) {
		case "index":
			if string(f.value) != "0" {
				r.reject(Choices)
			}
		case "text":
			r.text.WriteString(textOf(f.value))
		case "finish_reason":
			if why := textOf(f.value); why != "" {
				r.content.Finish, r.complete = why, true
			}
		case "message", "delta":
			r.addChatMessage(r.objectOf(f.value))
		case "logprobs", "token_ids", "prompt_token_ids", "prompt_logprobs":
			if openai.HasContent(f.value) {
				r.reject(Logprobs)
			}
		default:
			if openai.HasContent(f.value) {
				r.keep(r.choice, f)
			}
		}
	}
}

// addChatMessage adds a chat's message, or a delta of it.
func (r *Recorder) addChatMessage(m object) {
	thought := ""
	for _, f := range m {
		switch string(f.name) {
		case "role":
		case "content":
			if text := textOf(f.value); text != "" {
				r.text.WriteString(text)
			} else if openai.HasContent(f.value) {
				r.reject(MoreContent)
			}
		case "reasoning", "reasoning_content": // vLLM sends both with one text
			if text := textOf(f.value); text != "" {
				thought, r.named[string(f.name)] = text, true
			}
		default:
			if openai.HasContent(f.value) {
				r.reject(MoreContent)
			}
		}
	}
	r.thought.WriteString(thought)
}

func (r *Recorder) addMessage(m object) {
	r.addHead(m)
	for _, block := range r.listOf(m.value("content")) {
		r.addBlock(block)
	}
	r.addStop(m)
	r.complete = true
}

func (r *Recorder) addHead(m object) {
	r.keepModel(m.value("model"))
	r.keepUsage(m.value("usage"))
}

func (r *Recorder) addStop(m object) {
	r.content.Finish = textOf(m.value("stop_reason"))
	if v := m.value("stop_sequence"); openai.HasContent(v) {
		r.keep(r.choice, field{[]byte("stop_sequence"), v})
	}
}

// addBlock adds a block of a message, which is empty at its start in a stream. Kept are at most one block of reasoning
// and then one of text.
func (r *Recorder) addBlock(block object) {
	kind := textOf(block.value("type"))
	r.blocks = append(r.blocks, kind)
	if order := strings.Join(r.blocks, ","); order != "text" && order != "thinking" && order != "thinking,text" {
		r.reject(MoreContent)
	}
	r.addParts(block)
}

// addParts adds the members of a block, or of a delta of it.
func (r *Recorder) addParts(part object) {
	for _, f := range part {
		switch string(f.name) {
		case "type":
		case "text":
			r.text.WriteString(textOf(f.value))
		case "thinking":
			r.thought.WriteString(textOf(f.value))
		case "signature":
			r.content.Signature += textOf(f.value)
		default:
			if openai.HasContent(f.value) {
				r.reject(MoreContent)
			}
		}
	}
}

func (r *Recorder) addMessageEvent(ev object) {
	switch textOf(ev.value("type")) {
	case "message_start":
		r.addHead(r.objectOf(ev.value("message")))
	case "content_block_start":
		r.addBlock(r.objectOf(ev.value("content_block")))
	case "content_block_delta":
		r.addParts(r.objectOf(ev.value("delta")))
	case "message_delta":
		r.addStop(r.objectOf(ev.value("delta")))
		r.keepUsage(ev.value("usage"))
		r.complete = true
	}
}

func (r *Recorder) addResponse(o object) {
	r.complete = true
	for _, f := range o {
		switch string(f.name) {
		case "id", "object", "created_at", "completed_at", "metadata", "user", "kv_transfer_params", "output_text":
		case "status":
			r.content.Finish = textOf(f.value)
		case "model":
			r.keepModel(f.value)
		case "usage":
			r.keepUsage(f.value)
		case "output":
			for _, item := range r.listOf(f.value) {
				r.addItem(item)
			}
		default:
			r.keep(r.top, f)
		}
	}
}

// addItem adds an item of the output: reasoning, and then one message with one text.
func (r *Recorder) addItem(item object) {
	more := openai.HasContent(item.value("summary")) || openai.HasContent(item.value("encrypted_content"))
	switch kind := textOf(item.value("type")); {
	case kind == "reasoning" && r.text.Len() == 0 && !more:
		for _, part := range r.listOf(item.value("content")) {
			r.thought.WriteString(textOf(part.value("text")))
		}
	case kind == "message" && r.text.Len() == 0:
		parts := r.listOf(item.value("content"))
		if len(parts) != 1 || !parts[0].isText("type", "output_text") || openai.HasContent(parts[0].value("annotations")) ||
			openai.HasContent(parts[0].value("logprobs")) {
			r.reject(MoreContent)
			return
		}
		r.text.WriteString(textOf(parts[0].value("text")))
	default:
		r.reject(MoreContent)
	}
}
