package openai

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// priorityStep is the distance between two classes in an engine's priority. It leaves room for
// a client's own order inside its class: a background request with priority 15 comes after
// others of its class and before every batch request.
const priorityStep = 10

// EnginePriority returns the priority that an engine reads for a request of a class (0
// interactive, 1 background, 2 batch), and whether an Edit must write it, for Edit.Priority and
// Edit.SetPriority. Lower is earlier, and an engine assumes 0 without the field: interactive
// requests get none, background requests 10, batch requests 20. own and given are
// Request.Priority and PriorityGiven. A client's value that is not more urgent than its class
// is kept; any other value is replaced by that of the class, so that no request exceeds its
// tenant's rights.
func EnginePriority(class int, own int64, given bool) (value int64, set bool) {
	value = priorityStep * int64(max(class, 0))
	if given && own >= value {
		return own, false
	}
	return value, given || value != 0
}

// readPriority reads priority and stores its position, also for null. Invalid values are accepted:
// the engine rejects them.
func (p *parser) readPriority() {
	p.Next()
	p.req.place.record(FieldPriority, p.i)
	if raw := p.Skip(); raw != nil {
		p.req.Priority, p.req.PriorityGiven = priorityOf(raw)
	}
}

// priorityOf parses the value of priority. vLLM accepts "5", 5.0 and true as integers too, and
// other parsers may read them differently. A value that is not a plain integer but may be read
// as a number therefore becomes the most urgent priority.
func priorityOf(raw []byte) (value int64, given bool) {
	switch raw[0] {
	case 'n', '{', '[':
		return 0, false
	case '"':
		// A parser may convert a string with digits, in ASCII or another script, to a number.
		digit := func(c rune) bool { return '0' <= c && c <= '9' || c >= utf8.RuneSelf }
		if !bytes.ContainsFunc(raw, digit) {
			return 0, false
		}
	case 't', 'f':
	default:
		const digits = 20 // length of the smallest 64-bit integer, with its sign
		if len(raw) <= digits {
			if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
				return n, true
			}
		}
	}
	return math.MinInt64, true
}

// addsPriority reports whether the edit sets a priority that the client did not: as a new
// member, or in place of null or 0, the engine's default.
func (r *Request) addsPriority(e Edit) bool {
	_, ok := r.priorityChange(e)
	return ok && (!r.PriorityGiven || r.Priority == 0 && e.Priority != 0)
}

// priorityChange returns the change that sets the edit's priority. A value that no parser takes
// for a number is kept: the engine rejects it.
func (r *Request) priorityChange(e Edit) (c change, ok bool) {
	if !e.SetPriority || r.place.form {
		return c, false
	}
	at := span{}
	if from := r.place.start(FieldPriority); from > 0 {
		if !r.PriorityGiven && r.Body[from] != 'n' {
			return c, false
		}
		value := NewReader(r.Body[from:])
		at = span{from, from + len(value.Skip())}
	} else if !dialects[r.Dialect].prioritized {
		return c, false
	}
	return r.setMember(at, "priority", strconv.AppendInt(nil, e.Priority, 10)), true
}
