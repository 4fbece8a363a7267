package openai

import (
	"bytes"
	"slices"
	"strconv"
)

// AnswerCleaner removes from answers what the stages of a hand-over have added to them. It is not safe for
// concurrent use.
type AnswerCleaner struct {
	// ID is the request ID with the addresses of engines that the engine received, and Public its replacement.
	// Empty: none.
	ID, Public []byte
	// TokenIDs keeps token IDs, because the client has requested them.
	TokenIDs bool
	// Cached replaces the number of cached prompt tokens, with SetCached: an engine counts the tokens that it has read
	// from another one as cached.
	Cached    int64
	SetCached bool

	cuts []change
	out  []byte
}

// Body returns a whole answer without the additions. The result shares memory with body.
func (a *AnswerCleaner) Body(d Dialect, body []byte) []byte {
	data, changed := a.clean(d, body, nil)
	if changed {
		return data
	}
	return body
}

// Event returns an event without the additions. It is valid until the next call, and as long as ev.
func (a *AnswerCleaner) Event(d Dialect, ev Event) Event {
	data, changed := a.clean(d, ev.Data, a.out[:0])
	if !changed {
		return ev
	}
	a.out = data
	inPlace, end := ev.at > 0, ev.at+len(ev.Data)
	raw := make([]byte, 0, len(ev.Raw)+len(data))
	if inPlace && end <= len(ev.Raw) {
		raw = append(append(append(raw, ev.Raw[:ev.at]...), data...), ev.Raw[end:]...)
		ev.Raw, ev.Data = raw, raw[ev.at:ev.at+len(data)]
		return ev
	}
	if len(ev.Name) > 0 {
		raw = append(append(append(raw, "event: "...), ev.Name...), '\n')
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		raw = append(append(append(raw, "data: "...), line...), '\n')
	}
	ev.Raw, ev.Data, ev.at = append(raw, '\n'), data, 0
	return ev
}

// clean appends the cleaned payload to dst, and reports whether it differs. A payload that is not an object is not
// searched for members.
func (a *AnswerCleaner) clean(d Dialect, data, dst []byte) (_ []byte, changed bool) {
	a.cuts = a.cuts[:0]
	c := NewReader(data)
	if c.Next() == '{' {
		a.cleanObject(&c, d, 0)
	}
	if changed = len(a.cuts) > 0 && c.AtEnd(); changed {
		slices.SortStableFunc(a.cuts, func(x, y change) int { return x.from - y.from })
		done := 0
		for _, cut := range a.cuts {
			if cut.from < done { // inside a removed member
				continue
			}
			dst = append(append(dst, data[done:cut.from]...), cut.replacement...)
			done = cut.to
		}
		dst = append(dst, data[done:]...)
		data = dst
	}
	if len(a.ID) > 0 && bytes.Contains(data, a.ID) {
		return bytes.ReplaceAll(data, a.ID, a.Public), true
	}
	return data, changed
}

// cleanObject reads a payload or, at level 1, the response or message in it, or a choice, and collects its
// changes.
func (a *AnswerCleaner) cleanObject(c *Reader, d Dialect, level int) {
	const none = -1
	end := none               // of the last member that stays, or of a removed one after it
	first := span{from: none} // removed members before the first one that stays
	for c.Enter('{'); c.More('}'); {
		from := c.i
		switch removed := a.removes(c, d, level); {
		case removed && end != none:
			a.cuts = append(a.cuts, change{span: span{end, c.i}})
			end = c.i
		case removed:
			if first.from == none {
				first.from = from
			}
			first.to = c.i
		default:
			if first.from != none && end == none {
				first.to = from // with the comma
			}
			end = c.i
		}
	}
	if first.from != none {
		a.cuts = append(a.cuts, change{span: first})
	}
}

// removes reads the next member, collects the changes inside it, and reports whether the member is to be removed.
func (a *AnswerCleaner) removes(c *Reader, d Dialect, level int) bool {
	switch string(c.Name()) {
	case "kv_transfer_params":
		c.Skip()
		return true
	case "prompt_token_ids", "token_ids":
		return c.nonEmpty() && !a.TokenIDs
	case "usage":
		if a.SetCached && c.Next() == '{' {
			a.setCached(c, d)
			return false
		}
	case "choices":
		if c.Next() == '[' && level == 0 {
			for c.Enter('['); c.More(']'); {
				if c.Next() == '{' {
					a.cleanObject(c, d, 1)
				}
			}
			return false
		}
	case "response", "message":
		if c.Next() == '{' && level == 0 {
			a.cleanObject(c, d, 1)
			return false
		}
	}
	c.Skip()
	return false
}

// setCached reads a usage object and collects the changes that set its number of cached tokens. In the Messages
// dialect, input_tokens excludes them.
func (a *AnswerCleaner) setCached(c *Reader, d Dialect) {
	var input, read span
	var inputTokens, readTokens int64
	for c.Enter('{'); c.More('}'); {
		switch string(c.Name()) {
		case "input_tokens":
			c.Next()
			input.from = c.i
			inputTokens, _ = c.readInteger()
			input.to = c.i
		case "cache_read_input_tokens":
			c.Next()
			read.from = c.i
			readTokens, _ = c.readInteger()
			read.to = c.i
		case "prompt_tokens_details", "input_tokens_details":
			if c.Next() != '{' {
				c.Skip()
				continue
			}
			for c.Enter('{'); c.More('}'); {
				a.setCount(c, string(c.Name()))
			}
		}
	}
	if d != Messages || read == (span{}) {
		return
	}
	cached := min(a.Cached, inputTokens+readTokens)
	a.replaceCount(read, cached)
	if input != (span{}) {
		a.replaceCount(input, inputTokens+readTokens-cached)
	}
}

// setCount replaces a count of cached tokens in the details of a usage; the next value is that of name.
func (a *AnswerCleaner) setCount(c *Reader, name string) {
	first := c.Next()
	from := c.i
	hasContent := c.nonEmpty()
	switch {
	case name == "cached_tokens" && first != 'n':
		a.replaceCount(span{from, c.i}, a.Cached)
	case name == "cached_tokens_per_turn" && first == '[' && hasContent: // a request in two stages has one turn
		a.cuts = append(a.cuts, change{span: span{from, c.i},
			replacement: append(strconv.AppendInt([]byte{'['}, a.Cached, 10), ']')})
	}
}

func (a *AnswerCleaner) replaceCount(at span, n int64) {
	a.cuts = append(a.cuts, change{span: at, replacement: strconv.AppendInt(nil, n, 10)})
}
