package openai

import (
	"bytes"
	"math"
)

// eventPayload is the top level of a payload, read in one pass for all dialects. Its slices
// point into the payload.
type eventPayload struct {
	choices *eventChoices // records choices; may be nil
	tokens  *eventTokens  // records token counts; may be nil

	kind, object, id, status              []byte
	response, item, delta, message, block []byte // nested values, unread
	incomplete                            []byte // incomplete_details, unread
	count                                 int    // number of choices; -1: no such array, or one without a choice in it
	next                                  int64  // sequence_number + 1; 0 without one
	mark                                  Mark   // marks of the choices
	deltas, text                          int    // choices with content, and the token parts in their text
	usage, stop, errorNull, errorSet      bool
	unstopped                             bool // stop_reason is null
}

// read parses the payload, which must be exactly one JSON object.
func (p *eventPayload) read(data []byte) bool {
	p.count = -1
	c := NewReader(data)
	for c.Enter('{'); c.More('}'); {
		p.readMember(&c, c.Name())
	}
	return c.AtEnd()
}

// readMember reads one top-level member. Unknown members and unused nested values are skipped.
func (p *eventPayload) readMember(c *Reader, key []byte) {
	switch string(key) {
	case "choices":
		p.readChoices(c)
	case "usage":
		if p.usage = p.tokens != nil && c.Next() == '{'; p.usage {
			p.tokens.readUsage(c)
		}
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
		if n, ok := c.readInteger(); ok && n < math.MaxInt64-2 { // the numbers of two more events follow
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

// errorMark reports whether the payload is an error: it has a non-empty error member, or it is
// the error itself, as `"object": "error"` of vLLM or `"type": "error"` of Responses and
// Messages.
func (p *eventPayload) errorMark() Mark {
	switch {
	case p.errorSet, string(p.object) == "error", string(p.kind) == "error":
		return MarkError
	case p.errorNull:
		return MarkNullError
	}
	return 0
}

// names reports whether the payload's type must replace the event's name, because the event has none
// or the default one.
func (p *eventPayload) names(name []byte) bool {
	if len(name) > 0 && string(name) != "message" || len(p.kind) == 0 {
		return false
	}
	for _, c := range p.kind {
		if (c < 'a' || 'z' < c) && c != '_' {
			return false
		}
	}
	return true
}

// aborts reports whether a finish_reason means that the engine aborted generation.
func aborts(reason []byte) bool { return string(reason) == "abort" || string(reason) == "error" }

// cancelled reports whether the engine aborted a Responses object with this status and
// incomplete_details, which contains only a reason.
func cancelled(status, details []byte) bool {
	return string(status) == "cancelled" || bytes.Contains(details, []byte(`"abort"`))
}

// readChoices reads the array of choices. Elements without members are no choices.
func (p *eventPayload) readChoices(c *Reader) {
	if c.Next() != '[' {
		return
	}
	p.count = 0
	for c.Enter('['); c.More(']'); {
		switch {
		case c.Next() == '{' && c.Inside() != '}':
			p.count = max(p.count, 0) + 1
			p.readChoice(c)
		case p.count == 0:
			p.count = -1
		}
	}
}

// readChoice reads one choice of a chunk or of a whole response. Token IDs and log
// probabilities count as content even if their text is empty, because a token can end within a
// character: a client that received them cannot continue with another worker.
func (p *eventPayload) readChoice(c *Reader) {
	var index int64
	finished, content := false, false
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "index":
			index, _ = c.readInteger()
		case "error":
			if c.nonEmpty() {
				p.mark |= MarkError
			}
		case "finish_reason":
			v := c.Skip()
			finished = HasContent(v)
			if finished && aborts(bytes.Trim(v, `"`)) {
				p.mark |= MarkAborted
			}
		case "text":
			v := c.Skip()
			content = HasContent(v) || content
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
		p.choices.record(index, finished)
	}
}

// readDelta reports whether a chat delta has content: any non-empty member except role, because
// engines add their own members for reasoning, audio and images. It counts the text. Reasoning
// under both of vLLM's names counts once.
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
		content = HasContent(v) || content
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

// AppendEvent appends the event as clients can read it, and returns the result. m is its mark: with
// MarkNullError, the empty `error` member is removed, with MarkNoChoices, the choices are set to [], and
// with MarkUnnamed, the name is added. With MarkResponseDone, name and type follow the status. With
// MarkDone, another spelling becomes [DONE]. A missing blank line is added.
func AppendEvent(dst []byte, ev Event, m Mark) []byte {
	if m.Has(MarkDone) && string(ev.Data) != "[DONE]" {
		return append(dst, "data: [DONE]\n\n"...)
	}
	if m&(MarkNullError|MarkNoChoices|MarkUnnamed|MarkResponseDone) == 0 {
		return ev.appendBlankLine(append(dst, ev.Raw...))
	}
	data := readableData(ev.Data, m)
	if m.Has(MarkResponseDone) {
		name := endOfResponse(ev.Data)
		data = append(append([]byte(`{"type":"`), name...), `",`...)
		data = append(data, fieldsWithout(nil, readableData(ev.Data, m), "type", false)[1:]...)
		if len(ev.Name) > 0 {
			ev.Name = []byte(name)
		}
		ev.at = 0
	}
	end := ev.at + len(ev.Data)
	inPlace := ev.at > 0 && end <= len(ev.Raw)
	if m.Has(MarkUnnamed) {
		var p eventPayload
		p.read(ev.Data)
		ev.Name = p.kind
		hasLine := bytes.HasPrefix(ev.Raw, []byte("event")) || bytes.Contains(ev.Raw, []byte("\nevent"))
		if inPlace = inPlace && !hasLine; inPlace {
			dst = append(append(append(dst, "event: "...), ev.Name...), '\n')
		}
	}
	if inPlace {
		return ev.appendBlankLine(append(append(append(dst, ev.Raw[:ev.at]...), data...), ev.Raw[end:]...))
	}
	if len(ev.Name) > 0 {
		dst = append(append(append(dst, "event: "...), ev.Name...), '\n')
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}

// appendBlankLine ends the event in dst with a blank line, unless it has one.
func (ev *Event) appendBlankLine(dst []byte) []byte {
	if !ev.unended {
		return dst
	}
	if len(dst) > 0 && dst[len(dst)-1] != '\n' { // after CR, LF completes the line end
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// Unchanged reports whether AppendEvent appends the event as it is.
func Unchanged(ev Event, m Mark) bool {
	return m&(MarkNullError|MarkNoChoices|MarkUnnamed|MarkResponseDone) == 0 && !ev.unended &&
		!(m.Has(MarkDone) && string(ev.Data) != "[DONE]")
}

// readableData returns the data of an event with the changes of AppendEvent.
func readableData(data []byte, m Mark) []byte {
	if m.Has(MarkNullError) {
		data = fieldsWithout(nil, data, "error", true)
	}
	if m.Has(MarkNoChoices) {
		rest := fieldsWithout(nil, data, "choices", false)
		data = append([]byte(`{"choices":[],`), rest[1:]...) // usage follows
	}
	return data
}

// endOfResponse returns the name of the event with which a response of that status ends.
func endOfResponse(data []byte) string {
	var p, in eventPayload
	p.read(data)
	in.read(p.response)
	switch string(in.status) {
	case "failed", "cancelled":
		return "response.failed"
	case "incomplete":
		return "response.incomplete"
	}
	return "response.completed"
}

// fieldsWithout appends the object without members of that name, or without those that are empty. A
// value that is not an object is appended unchanged.
func fieldsWithout(dst, object []byte, name string, onlyEmpty bool) []byte {
	start := len(dst)
	c := NewReader(object)
	dst = append(dst, '{')
	for c.Enter('{'); c.More('}'); {
		from := c.i
		named := string(c.Name()) == name
		if hasContent := c.nonEmpty(); named && !(onlyEmpty && hasContent) {
			continue
		}
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(dst, object[from:c.i]...)
	}
	if !c.AtEnd() {
		return append(dst[:start], object...)
	}
	return append(dst, '}')
}
