package openai

import (
	"bytes"
	"math"
)

// eventPayload is what one walk over a payload's top level tells, whatever the
// dialect. Its slices point into the payload.
type eventPayload struct {
	choices *eventChoices // where choices are noted; nil: nowhere
	tokens  *eventTokens  // where tokens are noted; nil: nowhere

	kind, object, id, status              []byte
	response, item, delta, message, block []byte // nested values, unread
	incomplete                            []byte // why a response is incomplete, unread
	count                                 int    // how many choices; -1: no such array
	next                                  int64  // after the sequence_number; 0 without one
	mark                                  Mark   // what the choices say
	deltas, text                          int    // how many choices say something, and the parts of tokens in their text
	usage, stop, errorNull, errorSet      bool
	unstopped                             bool // its stop_reason is null
}

// read walks the payload, which must be one JSON object and nothing else.
func (p *eventPayload) read(data []byte) bool {
	p.count = -1
	c := newReader(data)
	for c.Enter('{'); c.More('}'); {
		p.member(&c, c.Name())
	}
	return c.done()
}

// member takes one member of the top level. What it does not know, and nested
// values that nobody asked for, the walk skips.
func (p *eventPayload) member(c *Reader, key []byte) {
	switch string(key) {
	case "choices":
		p.readChoices(c)
	case "usage":
		p.usage = p.tokens != nil && c.Next() == '{' && p.tokens.read(c)
	case "timings":
		if p.tokens != nil && c.Next() == '{' {
			p.tokens.readTimings(c)
		}
	case "error":
		p.errorSet = c.nonEmpty()
		p.errorNull = !p.errorSet
	case "type":
		p.kind = c.Text()
	case "object":
		p.object = c.Text()
	case "id":
		p.id = c.Text()
	case "status":
		p.status = c.Text()
	case "sequence_number":
		if n, ok := c.integer(); ok && n < math.MaxInt64-2 { // the numbers of two more events follow
			p.next = n + 1
		}
	case "stop_reason":
		p.stop = c.nonEmpty()
		p.unstopped = !p.stop
	case "incomplete_details":
		p.incomplete = c.Skip()
	case "response":
		p.response = c.Skip()
	case "item":
		p.item = c.Skip()
	case "delta":
		p.delta = c.Skip()
	case "message":
		p.message = c.Skip()
	case "content_block":
		p.block = c.Skip()
	}
}

// errorMark says whether the payload is an error: it has an error member that
// says something, or it is the error itself, as `"object": "error"` of vLLM or
// `"type": "error"` of the Responses and Messages dialects.
func (p *eventPayload) errorMark() Mark {
	switch {
	case p.errorSet, string(p.object) == "error", string(p.kind) == "error":
		return MarkError
	case p.errorNull:
		return MarkNullError
	}
	return 0
}

// aborts reports whether a finish_reason says that the engine gave up.
func aborts(reason []byte) bool { return string(reason) == "abort" || string(reason) == "error" }

// cancelled reports whether a Responses object with that status and incomplete_details,
// which hold a reason alone, was given up by its engine.
func cancelled(status, details []byte) bool {
	return string(status) == "cancelled" || bytes.Contains(details, []byte(`"abort"`))
}

// readChoices walks the array of choices.
func (p *eventPayload) readChoices(c *Reader) {
	if c.Next() != '[' {
		return
	}
	p.count = 0
	for c.Enter('['); c.More(']'); {
		p.count++
		if c.Next() == '{' {
			p.readChoice(c)
		}
	}
}

// readChoice walks one choice of a chunk or of a whole answer. Token ids and
// log probabilities count as content although their text may be empty (a token
// can end within a character): a client that has them cannot take another
// worker's.
func (p *eventPayload) readChoice(c *Reader) {
	var index int64
	finished, content := false, false
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "index":
			index, _ = c.integer()
		case "finish_reason":
			v := c.Skip()
			finished = nonEmpty(v)
			if finished && aborts(bytes.Trim(v, `"`)) {
				p.mark |= MarkAborted
			}
		case "text":
			v := c.Skip()
			content = nonEmpty(v) || content
			p.text += textParts(v)
		case "logprobs", "token_ids":
			content = c.nonEmpty() || content
		case "delta":
			content = p.readDelta(c) || content
		}
	}
	if content {
		p.mark |= MarkContent
		p.deltas++
	}
	if finished {
		p.mark |= MarkFinish
	}
	if p.choices != nil {
		p.choices.note(index, finished)
	}
}

// readDelta tells whether there is content in a chat delta, which is every
// member but the role that says something, since engines add members of their
// own for reasoning, audio and images. It counts the text; of reasoning
// under both of its names, as vLLM has sent it, once.
func (p *eventPayload) readDelta(c *Reader) (content bool) {
	if c.Next() != '{' {
		return false
	}
	thought := 0
	for c.Enter('{'); c.More('}'); {
		name := c.Name()
		if string(name) == "role" {
			continue
		}
		v := c.Skip()
		content = nonEmpty(v) || content
		switch string(name) {
		case "content", "refusal":
			p.text += textParts(v)
		case "reasoning", "reasoning_content":
			thought = max(thought, textParts(v))
		case "tool_calls", "function_call":
			p.text += callParts(v)
		}
	}
	p.text += thought
	return content
}

// StripNullError appends the event without an `error` member that says nothing
// and returns the result; every other byte stays when the event has one data
// line, else the event is framed anew.
func StripNullError(dst []byte, ev Event) []byte {
	if end := ev.at + len(ev.Data); ev.at > 0 && end <= len(ev.Raw) {
		dst = append(dst, ev.Raw[:ev.at]...)
		dst = fieldsWithout(dst, ev.Data, "error")
		return append(dst, ev.Raw[end:]...)
	}
	if len(ev.Name) > 0 {
		dst = append(append(append(dst, "event: "...), ev.Name...), '\n')
	}
	for line := range bytes.SplitSeq(fieldsWithout(nil, ev.Data, "error"), []byte{'\n'}) {
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}

// fieldsWithout appends the object without the members of that name that say
// nothing. What is no object is appended as it is.
func fieldsWithout(dst, object []byte, name string) []byte {
	start := len(dst)
	c := newReader(object)
	dst = append(dst, '{')
	for c.Enter('{'); c.More('}'); {
		from := c.i
		named := string(c.Name()) == name
		if filled := c.nonEmpty(); named && !filled {
			continue
		}
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(dst, object[from:c.i]...)
	}
	if !c.done() {
		return append(dst[:start], object...)
	}
	return append(dst, '}')
}
