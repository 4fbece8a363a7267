package answers

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"tierway/openai"
)

// Replay writes a kept content as a new answer.
type Replay struct {
	Dialect  openai.Dialect
	Content  *Content
	ID       string // 32 hexadecimal digits, new for each answer
	Created  time.Time
	Usage    bool   // of a stream of chat or completions: the client requested the usage
	Metadata []byte // of the request, for Responses; nil if absent
	User     []byte // as Metadata
}

// usageOf returns a usage in the form of the dialect.
func usageOf(d openai.Dialect, prompt, output int64) string {
	in, out, total := `{"prompt_tokens":`, `,"completion_tokens":`, true
	switch d {
	case openai.Messages:
		in, out, total = `{"input_tokens":`, `,"output_tokens":`, false
	case openai.Responses:
		in, out = `{"input_tokens":`, `,"output_tokens":`
	}
	b := strconv.AppendInt([]byte(in), prompt, 10)
	b = strconv.AppendInt(append(b, out...), output, 10)
	if total {
		b = strconv.AppendInt(append(b, `,"total_tokens":`...), prompt+output, 10)
	}
	return string(append(b, '}'))
}

// AppendWhole appends the answer as one JSON object.
func (p *Replay) AppendWhole(b []byte) []byte {
	c := p.Content
	switch p.Dialect {
	case openai.Messages:
		b = p.appendMessage(b, true)
		return append(b, '}')
	case openai.Responses:
		return p.appendResponse(b, "completed")
	case openai.Completions:
		b = p.appendHead(b, "cmpl-", "text_completion")
		b = append(p.appendText(append(b, `,"choices":[{"index":0,"text":`...), c.Text), `,"logprobs":null`...)
	default:
		b = p.appendHead(b, "chatcmpl-", "chat.completion")
		b = append(b, `,"choices":[{"index":0,"message":{"role":"assistant","content":`...)
		b = p.appendReasoning(p.appendText(b, c.Text))
		b = append(b, `,"refusal":null},"logprobs":null`...)
	}
	b = p.appendFinish(b)
	return append(append(append(b, `],"usage":`...), c.Usage...), '}')
}

// AppendStream appends the answer as the events of a stream.
func (p *Replay) AppendStream(b []byte) []byte {
	switch p.Dialect {
	case openai.Messages:
		return p.appendMessageEvents(b)
	case openai.Responses:
		return p.appendResponseEvents(b)
	}
	return p.appendChunks(b)
}

func (p *Replay) appendText(b []byte, text string) []byte { return openai.AppendText(b, text) }

// appendHead appends the beginning of an object of chat or completions, up to the choices.
func (p *Replay) appendHead(b []byte, prefix, object string) []byte {
	b = append(append(append(b, `{"id":"`...), prefix...), p.ID...)
	b = append(append(append(b, `","object":"`...), object...), `","created":`...)
	b = strconv.AppendInt(b, p.Created.Unix(), 10)
	b = p.appendText(append(b, `,"model":`...), p.Content.Model)
	return append(b, p.Content.Top...)
}

func (p *Replay) appendReasoning(b []byte) []byte {
	if p.Content.Names == "" {
		return b
	}
	for name := range strings.SplitSeq(p.Content.Names, ",") {
		b = append(append(append(b, `,"`...), name...), `":`...)
		b = p.appendText(b, p.Content.Reasoning)
	}
	return b
}

func (p *Replay) appendFinish(b []byte) []byte {
	b = p.appendText(append(b, `,"finish_reason":`...), p.Content.Finish)
	return append(append(b, p.Content.Choice...), '}')
}

// appendChunks appends the events of chat or completions.
func (p *Replay) appendChunks(b []byte) []byte {
	usage := ""
	if p.Usage {
		usage = `,"usage":null`
	}
	chunk := func(choices func([]byte) []byte) {
		b = append(b, "data: "...)
		if p.Dialect == openai.Completions {
			b = p.appendHead(b, "cmpl-", "text_completion")
		} else {
			b = p.appendHead(b, "chatcmpl-", "chat.completion.chunk")
		}
		b = append(choices(append(b, `,"choices":[`...)), ']')
		b = append(append(b, usage...), "}\n\n"...)
	}
	const open = `,"logprobs":null,"finish_reason":null}`
	delta := func(members func([]byte) []byte) {
		chunk(func(b []byte) []byte {
			return append(append(members(append(b, `{"index":0,"delta":{`...)), '}'), open...)
		})
	}
	c := p.Content
	if p.Dialect == openai.Completions {
		chunk(func(b []byte) []byte {
			return append(p.appendText(append(b, `{"index":0,"text":`...), c.Text), open...)
		})
		chunk(func(b []byte) []byte { return p.appendFinish(append(b, `{"index":0,"text":"","logprobs":null`...)) })
	} else {
		delta(func(b []byte) []byte { return append(b, `"role":"assistant","content":""`...) })
		if c.Names != "" {
			delta(func(b []byte) []byte {
				at := len(b)
				b = p.appendReasoning(b)
				return append(b[:at], b[at+1:]...) // without the first comma
			})
		}
		delta(func(b []byte) []byte { return p.appendText(append(b, `"content":`...), c.Text) })
		chunk(func(b []byte) []byte { return p.appendFinish(append(b, `{"index":0,"delta":{},"logprobs":null`...)) })
	}
	if p.Usage {
		usage = `,"usage":` + c.Usage
		chunk(func(b []byte) []byte { return b })
	}
	return append(b, "data: [DONE]\n\n"...)
}

// appendMessage appends a message without its closing brace: the whole one, or the empty one of message_start.
func (p *Replay) appendMessage(b []byte, whole bool) []byte {
	c := p.Content
	b = append(append(append(b, `{"id":"msg_`...), p.ID...), `","type":"message","role":"assistant","model":`...)
	b = append(p.appendText(b, c.Model), `,"content":[`...)
	stop := `"stop_reason":null,"stop_sequence":null`
	if whole {
		if c.Reasoning != "" {
			b = p.appendText(append(b, `{"type":"thinking","thinking":`...), c.Reasoning)
			b = append(p.appendText(append(b, `,"signature":`...), c.Signature), "},"...)
		}
		b = append(p.appendText(append(b, `{"type":"text","text":`...), c.Text), '}')
		stop = p.stop()
	}
	b = append(append(append(b, "],"...), stop...), `,"usage":`...)
	return append(b, c.Usage...)
}

func (p *Replay) stop() string {
	b := p.appendText([]byte(`"stop_reason":`), p.Content.Finish)
	if p.Content.Choice == "" {
		return string(append(b, `,"stop_sequence":null`...))
	}
	return string(append(b, p.Content.Choice...))
}

// event appends an event with its name. members appends the members after the type.
func event(b []byte, name string, members func([]byte) []byte) []byte {
	b = append(append(append(b, "event: "...), name...), "\ndata: {\"type\":\""...)
	b = append(append(b, name...), '"')
	return append(members(b), "}\n\n"...)
}

func (p *Replay) appendMessageEvents(b []byte) []byte {
	c := p.Content
	b = event(b, "message_start", func(b []byte) []byte {
		return append(p.appendMessage(append(b, `,"message":`...), false), '}')
	})
	at := 0
	block := func(empty string, deltas ...[2]string) {
		index := `,"index":` + strconv.Itoa(at)
		at++
		b = event(b, "content_block_start", func(b []byte) []byte {
			return append(append(append(b, index...), `,"content_block":`...), empty...)
		})
		for _, d := range deltas {
			b = event(b, "content_block_delta", func(b []byte) []byte {
				b = append(append(append(b, index...), `,"delta":{"type":"`...), d[0]...)
				b = append(append(append(b, `_delta","`...), d[0]...), `":`...)
				return append(p.appendText(b, d[1]), '}')
			})
		}
		b = event(b, "content_block_stop", func(b []byte) []byte { return append(b, index...) })
	}
	if c.Reasoning != "" {
		block(`{"type":"thinking","thinking":"","signature":""}`, [2]string{"thinking", c.Reasoning},
			[2]string{"signature", c.Signature})
	}
	block(`{"type":"text","text":""}`, [2]string{"text", c.Text})
	b = event(b, "message_delta", func(b []byte) []byte {
		b = append(append(append(b, `,"delta":{`...), p.stop()...), `},"usage":`...)
		return append(b, c.Usage...)
	})
	return event(b, "message_stop", func(b []byte) []byte { return b })
}

// appendResponse appends a Responses object with a status. Its output is empty unless it is completed.
func (p *Replay) appendResponse(b []byte, status string) []byte {
	c := p.Content
	at := strconv.FormatInt(p.Created.Unix(), 10)
	b = append(append(append(b, `{"id":"resp_`...), p.ID...), `","object":"response","created_at":`...)
	b = append(append(append(b, at...), `,"status":"`...), status...)
	b = p.appendText(append(b, `","model":`...), c.Model)
	b = appendCompact(append(b, `,"metadata":`...), p.Metadata, "{}")
	b = appendCompact(append(b, `,"user":`...), p.User, "null")
	b = append(b, c.Top...)
	if status != "completed" {
		return append(b, `,"output":[],"usage":null}`...)
	}
	b = append(append(append(b, `,"completed_at":`...), at...), `,"output":[`...)
	if c.Reasoning != "" {
		b = append(p.appendReasoningItem(b, true), ',')
	}
	b = append(p.appendMessageItem(b, true), `],"usage":`...)
	return append(append(b, c.Usage...), '}')
}

// appendCompact appends a value of the request without its line breaks, which would end the line of an event. If the
// request has no such value, it appends absent.
func appendCompact(b, v []byte, absent string) []byte {
	var line bytes.Buffer
	if json.Compact(&line, v) != nil { // no value
		return append(b, absent...)
	}
	return append(b, line.Bytes()...)
}

// appendReasoningItem appends the item with the reasoning, empty unless it is whole.
func (p *Replay) appendReasoningItem(b []byte, whole bool) []byte {
	b = append(append(append(b, `{"type":"reasoning","id":"rs_`...), p.ID...), `","summary":[],"content":[`...)
	if !whole {
		return append(b, `],"status":"in_progress"}`...)
	}
	return append(p.appendReasoningPart(b, p.Content.Reasoning), `],"status":"completed"}`...)
}

func (p *Replay) appendReasoningPart(b []byte, text string) []byte {
	return append(p.appendText(append(b, `{"type":"reasoning_text","text":`...), text), '}')
}

// appendMessageItem appends the item with the text, empty unless it is whole.
func (p *Replay) appendMessageItem(b []byte, whole bool) []byte {
	b = append(append(append(b, `{"type":"message","id":"msg_`...), p.ID...), `","role":"assistant","content":[`...)
	if !whole {
		return append(b, `],"status":"in_progress"}`...)
	}
	return append(p.appendTextPart(b, p.Content.Text), `],"status":"completed"}`...)
}

func (p *Replay) appendTextPart(b []byte, text string) []byte {
	b = append(b, `{"type":"output_text","annotations":[],"logprobs":[],"text":`...)
	return append(p.appendText(b, text), '}')
}

type responseEvents struct {
	*Replay
	b      []byte
	number int // the next sequence_number
	output int // index of the current item
}

func (w *responseEvents) add(name string, members func([]byte) []byte) {
	w.b = event(w.b, name, func(b []byte) []byte {
		b = strconv.AppendInt(append(b, `,"sequence_number":`...), int64(w.number), 10)
		return members(b)
	})
	w.number++
}

// addItem appends the events of an item with one part: its names, id, and functions that append it.
func (w *responseEvents) addItem(text, prefix, content string, item func([]byte, bool) []byte,
	part func([]byte, string) []byte) {
	place := `,"output_index":` + strconv.Itoa(w.output)
	w.output++
	inside := place + `,"item_id":"` + prefix + w.ID + `","content_index":0`
	logprobs := ""
	if text == "output_text" {
		logprobs = `,"logprobs":[]`
	}
	items := func(whole bool) func([]byte) []byte {
		return func(b []byte) []byte { return item(append(append(b, place...), `,"item":`...), whole) }
	}
	parts := func(content string) func([]byte) []byte {
		return func(b []byte) []byte { return part(append(append(b, inside...), `,"part":`...), content) }
	}
	value := func(name string) func([]byte) []byte {
		return func(b []byte) []byte {
			b = append(append(append(b, inside...), logprobs...), `,"`...)
			return w.appendText(append(append(b, name...), `":`...), content)
		}
	}
	reasoning := text == "reasoning_text"
	w.add("response.output_item.added", items(false))
	if !reasoning {
		w.add("response.content_part.added", parts(""))
	}
	w.add("response."+text+".delta", value("delta"))
	w.add("response."+text+".done", value("text"))
	if !reasoning {
		w.add("response.content_part.done", parts(content))
	}
	w.add("response.output_item.done", items(true))
}

func (p *Replay) appendResponseEvents(b []byte) []byte {
	w := &responseEvents{Replay: p, b: b}
	object := func(status string) func([]byte) []byte {
		return func(b []byte) []byte { return p.appendResponse(append(b, `,"response":`...), status) }
	}
	w.add("response.created", object("in_progress"))
	w.add("response.in_progress", object("in_progress"))
	if c := p.Content; c.Reasoning != "" {
		w.addItem("reasoning_text", "rs_", c.Reasoning, p.appendReasoningItem, p.appendReasoningPart)
	}
	w.addItem("output_text", "msg_", p.Content.Text, p.appendMessageItem, p.appendTextPart)
	w.add("response.completed", object("completed"))
	return w.b
}
