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
		r.addMessage(objectOf(body))
	case openai.Responses:
		r.addResponse(objectOf(body))
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
	switch r.dialect {
	case openai.Messages:
		r.addMessageEvent(objectOf(ev.Data))
	case openai.Responses:
		if o := objectOf(ev.Data); o.isText("type", "response.completed") || o.isText("type", "response.done") {
			r.AddWhole(o["response"])
		}
	default:
		r.addChunk(ev.Data)
	}
}

// objectOf returns the members of an object; nil if the value is none.
func objectOf(data []byte) (o members) {
	if json.Unmarshal(data, &o) != nil {
		return nil
	}
	return o
}

// listOf returns the elements of an array of objects; nil if the value is none.
func listOf(data []byte) (list []members) {
	if json.Unmarshal(data, &list) != nil {
		return nil
	}
	return list
}

// textOf returns the value of a string; "" for another value.
func textOf(v json.RawMessage) (text string) {
	if json.Unmarshal(v, &text) != nil {
		return ""
	}
	return text
}

func (o members) isText(name, text string) bool { return textOf(o[name]) == text }

// set keeps a copy of a member.
func (o members) set(name string, v json.RawMessage) { o[name] = bytes.Clone(v) }

// join returns the members by their names, each after a comma.
func (o members) join() string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(o)) {
		b = append(openai.AppendText(append(b, ','), name), ':')
		var line bytes.Buffer
		if json.Compact(&line, o[name]) != nil { // an event has one line
			continue
		}
		b = append(b, line.Bytes()...)
	}
	return string(b)
}

// keepUsage keeps the counts of a usage, which a later one may complete.
func (r *Recorder) keepUsage(v json.RawMessage) {
	for name, count := range objectOf(v) {
		r.usage.set(name, count)
	}
}

// addChunk adds a whole answer or a chunk of chat or completions.
func (r *Recorder) addChunk(data []byte) {
	for name, v := range objectOf(data) {
		switch name {
		case "id", "object", "created", "timings", "prompt_token_ids", "prompt_logprobs", "kv_transfer_params":
		case "model":
			r.content.Model = textOf(v)
		case "usage":
			r.keepUsage(v)
		case "choices":
			for _, choice := range listOf(v) {
				r.addChoice(choice)
			}
		default:
			if openai.HasContent(v) {
				r.top.set(name, v)
			}
		}
	}
}

// addChoice adds a choice of chat or completions.
func (r *Recorder) addChoice(choice members) {
	for name, v := range choice {
		switch name {
		case "index":
			if string(v) != "0" {
				r.reject(Choices)
			}
		case "text":
			r.text.WriteString(textOf(v))
		case "finish_reason":
			if why := textOf(v); why != "" {
				r.content.Finish, r.complete = why, true
			}
		case "message", "delta":
			r.addChatMessage(objectOf(v))
		case "logprobs", "token_ids", "prompt_token_ids", "prompt_logprobs":
			if openai.HasContent(v) {
				r.reject(Logprobs)
			}
		default:
			if openai.HasContent(v) {
				r.choice.set(name, v)
			}
		}
	}
}

// addChatMessage adds a chat's message, or a delta of it.
func (r *Recorder) addChatMessage(m members) {
	thought := ""
	for name, v := range m {
		switch name {
		case "role":
		case "content":
			if text := textOf(v); text != "" {
				r.text.WriteString(text)
			} else if openai.HasContent(v) {
				r.reject(MoreContent)
			}
		case "reasoning", "reasoning_content": // vLLM sends both with one text
			if text := textOf(v); text != "" {
				thought, r.named[name] = text, true
			}
		default:
			if openai.HasContent(v) {
				r.reject(MoreContent)
			}
		}
	}
	r.thought.WriteString(thought)
}

// addMessage adds a whole answer of Messages.
func (r *Recorder) addMessage(m members) {
	r.addHead(m)
	for _, block := range listOf(m["content"]) {
		r.addBlock(block)
	}
	r.addStop(m)
	r.complete = true
}

// addHead adds the members that a message begins with.
func (r *Recorder) addHead(m members) {
	r.content.Model = textOf(m["model"])
	r.keepUsage(m["usage"])
}

// addStop adds how a message ended.
func (r *Recorder) addStop(m members) {
	r.content.Finish = textOf(m["stop_reason"])
	if v := m["stop_sequence"]; openai.HasContent(v) {
		r.choice.set("stop_sequence", v)
	}
}

// addBlock adds a block of a message, which is empty at its start in a stream. Kept are at most one block of reasoning
// and then one of text.
func (r *Recorder) addBlock(block members) {
	kind := textOf(block["type"])
	r.blocks = append(r.blocks, kind)
	if order := strings.Join(r.blocks, ","); order != "text" && order != "thinking" && order != "thinking,text" {
		r.reject(MoreContent)
	}
	r.addParts(block)
}

// addParts adds the members of a block, or of a delta of it.
func (r *Recorder) addParts(part members) {
	for name, v := range part {
		switch name {
		case "type":
		case "text":
			r.text.WriteString(textOf(v))
		case "thinking":
			r.thought.WriteString(textOf(v))
		case "signature":
			r.content.Signature += textOf(v)
		default:
			if openai.HasContent(v) {
				r.reject(MoreContent)
			}
		}
	}
}

// addMessageEvent adds an event of a stream of Messages.
func (r *Recorder) addMessageEvent(ev members) {
	switch textOf(ev["type"]) {
	case "message_start":
		r.addHead(objectOf(ev["message"]))
	case "content_block_start":
		r.addBlock(objectOf(ev["content_block"]))
	case "content_block_delta":
		r.addParts(objectOf(ev["delta"]))
	case "message_delta":
		r.addStop(objectOf(ev["delta"]))
		r.keepUsage(ev["usage"])
		r.complete = true
	}
}

// addResponse adds a Responses object.
func (r *Recorder) addResponse(o members) {
	r.complete = true
	for name, v := range o {
		switch name {
		case "id", "object", "created_at", "completed_at", "metadata", "user", "kv_transfer_params", "output_text":
		case "status":
			r.content.Finish = textOf(v)
		case "model":
			r.content.Model = textOf(v)
		case "usage":
			r.keepUsage(v)
		case "output":
			for _, item := range listOf(v) {
				r.addItem(item)
			}
		default:
			r.top.set(name, v)
		}
	}
}

// addItem adds an item of the output: reasoning, and then one message with one text.
func (r *Recorder) addItem(item members) {
	more := openai.HasContent(item["summary"]) || openai.HasContent(item["encrypted_content"])
	switch kind := textOf(item["type"]); {
	case kind == "reasoning" && r.text.Len() == 0 && !more:
		for _, part := range listOf(item["content"]) {
			r.thought.WriteString(textOf(part["text"]))
		}
	case kind == "message" && r.text.Len() == 0:
		parts := listOf(item["content"])
		if len(parts) != 1 || !parts[0].isText("type", "output_text") || openai.HasContent(parts[0]["annotations"]) ||
			openai.HasContent(parts[0]["logprobs"]) {
			r.reject(MoreContent)
			return
		}
		r.text.WriteString(textOf(parts[0]["text"]))
	default:
		r.reject(MoreContent)
	}
}
