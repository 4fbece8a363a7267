package openai

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf8"
)

// priorityStep is how far apart the classes lie in an engine's priority. Ten
// leaves room for a client's own order inside its class: a background request
// that says 15 yields to others of its class and still goes before every batch.
const priorityStep = 10

// EnginePriority tells what priority an engine reads of a request of a class,
// 0 for interactive, 1 for background, 2 for batch, and whether an Edit must
// write it: Edit.Priority and Edit.SetPriority take the two. Lower is earlier,
// and an engine takes 0 for a request without one: interactive requests get
// none, background ones 10, batch ones 20. own and given are the client's
// (Request.Priority and PriorityGiven): a value that is not more urgent than its
// class's stays as the client wrote it, any other gives way to the class's, so
// that nobody goes before what its tenant may.
func EnginePriority(class int, own int64, given bool) (value int64, set bool) {
	value = priorityStep * int64(max(class, 0))
	if given && own >= value {
		return own, false
	}
	return value, given || value != 0
}

// priority reads priority and notes where it stands, null included. Whatever it
// is, the request is taken: saying what is wrong with it is for the engine.
func (p *parser) priority() {
	p.Next()
	p.req.place.note(FieldPriority, p.i)
	if raw := p.Skip(); raw != nil {
		p.req.Priority, p.req.PriorityGiven = priorityOf(raw)
	}
}

// priorityOf reads the value of priority. vLLM's reader takes "5", 5.0 and true
// for integers too, and another one may take them for other integers: where a
// value is not one plain integer and might be read as a number, the most urgent
// there is stands for it.
func priorityOf(raw []byte) (value int64, given bool) {
	switch raw[0] {
	case 'n', '{', '[':
		return 0, false
	case '"':
		// Some reader may take a string for a number that has a digit, of ASCII or of another
		// script.
		digit := func(c rune) bool { return '0' <= c && c <= '9' || c >= utf8.RuneSelf }
		if !bytes.ContainsFunc(raw, digit) {
			return 0, false
		}
	case 't', 'f':
	default:
		const digits = 20 // of the least that 64 bits hold, sign included
		if len(raw) <= digits {
			if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
				return n, true
			}
		}
	}
	return math.MinInt64, true
}

// addsPriority tells whether the edit gives a priority to a request whose client
// gave none: by a new member, or in place of null or 0, which is what an engine
// takes where there is none.
func (r *Request) addsPriority(e Edit) bool {
	_, ok := r.priorityChange(e)
	return ok && (!r.PriorityGiven || r.Priority == 0 && e.Priority != 0)
}

// priorityChange returns the cut that makes the edit's priority the body's. What
// nobody takes for a number stays: the engine refuses it.
func (r *Request) priorityChange(e Edit) (c change, ok bool) {
	if !e.SetPriority || r.place.form {
		return c, false
	}
	at := span{}
	if from := r.place.of(FieldPriority); from > 0 {
		if !r.PriorityGiven && r.Body[from] != 'n' {
			return c, false
		}
		value := newReader(r.Body[from:])
		at = span{from, from + len(value.Skip())}
	} else if !dialects[r.Dialect].prioritized {
		return c, false
	}
	return r.set(at, "priority", strconv.AppendInt(nil, e.Priority, 10)), true
}
