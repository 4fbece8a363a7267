package openai

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// readerDepth bounds the nesting of a text that is not checked: a Responses object
// repeats the tools' JSON schemas, which are some tens of levels deep.
const readerDepth = 512

// flatArray is from how many bytes on an array of numbers is worth four passes at
// memory speed instead of one byte at a time.
const flatArray = 64

// Reader reads one JSON text forward, without copying it and without allocating. Most
// methods expect the value or name that they read as the next byte but for white space.
//
// The reader of Parse is strict: it checks everything that RFC 8259 asks for, also in
// values that are skipped, and counts the characters of strings. Every other reader
// checks the structure (brackets, commas, colons, literals, numbers) but not what is
// inside strings, and takes NaN and Infinity, which Python engines write. It is safe
// on any bytes.
//
// After a fault every method is harmless: Next returns 0 and More false. Only the first
// fault is kept.
type Reader struct {
	b      []byte
	i      int // the next byte
	at     int // where the last member's or element's value begins, or entered, or elsewhere
	bad    bool
	strict bool
	short  bool // what ShortStr read last is short and has no escapes

	depth, limit int           // containers that are open, and that may be
	fail         *RequestError // of a strict reader, the fault
	chars        extent        // of a strict reader's last string
}

// What Reader.at is beside an index.
const (
	elsewhere = -1 // behind a container, or anywhere after Seek
	entered   = -2 // a container was entered, and More not called
)

// extent is the size of a string's value.
type extent struct {
	ascii int // characters below 0x80, a byte each
	wide  int // all other characters
	bytes int // in UTF-8
}

// newReader returns a reader that is not strict.
func newReader(b []byte) Reader { return Reader{b: b, limit: readerDepth} }

// fault ends the reading.
func (r *Reader) fault() {
	r.bad = true
	r.i, r.at = len(r.b), elsewhere
}

// refuse ends the reading of a strict reader with an error for the sender.
func (r *Reader) refuse(reason Code, param, format string, args ...any) {
	if !r.bad && r.strict {
		r.fail = &RequestError{Reason: reason, Param: param, Message: fmt.Sprintf(format, args...)}
	}
	r.fault()
}

// syntax refuses the JSON at byte i. The problem must not quote the body.
func (r *Reader) syntax(i int, problem string) {
	r.refuse(CodeInvalidJSON, "",
		"the request body is not valid JSON: %s at byte %d; send one JSON object in UTF-8", problem, i)
}

// unexpected refuses the next byte where wanted should stand.
func (r *Reader) unexpected(wanted string) {
	switch {
	case !r.strict:
		r.fault()
	case r.i >= len(r.b):
		r.syntax(len(r.b), "unexpected end instead of "+wanted)
	default:
		r.syntax(r.i, "expected "+wanted)
	}
}

// Pos returns the index of the next byte.
func (r *Reader) Pos() int { return r.i }

// Seek makes i, where a value begins, the next byte.
func (r *Reader) Seek(i int) { r.i, r.at = i, elsewhere }

// Next skips white space and returns the byte that follows, 0 at the end. No JSON
// token begins with a zero byte.
func (r *Reader) Next() byte {
	if r.i < len(r.b) && r.b[r.i] > ' ' {
		return r.b[r.i]
	}
	return r.space()
}

// space is Next where white space or the end may be next.
func (r *Reader) space() byte {
	b, i := r.b, r.i
	for i < len(b) {
		switch b[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			r.i = i
			return b[i]
		}
	}
	r.i = i
	return 0
}

// Inside returns the first byte inside the object or array that is next.
func (r *Reader) Inside() byte {
	r.Next()
	inside := Reader{b: r.b, i: r.i + 1}
	return inside.Next()
}

// Empty reports whether the next value is "", {} or [].
func (r *Reader) Empty() bool {
	switch r.Next() {
	case '"':
		return r.i+1 < len(r.b) && r.b[r.i+1] == '"'
	case '{':
		return r.Inside() == '}'
	case '[':
		return r.Inside() == ']'
	}
	return false
}

// done reports whether only white space is left and there was no fault.
func (r *Reader) done() bool { return r.Next() == 0 && r.i >= len(r.b) && !r.bad }

// Enter enters the object or array that opening begins. More comes next.
func (r *Reader) Enter(opening byte) {
	switch c := r.Next(); {
	case c != opening && opening == '{':
		r.unexpected("an object")
	case c != opening:
		r.unexpected("an array")
	case r.depth >= r.limit:
		r.refuse(CodeJSONTooDeep, "",
			"the request body nests objects and arrays more than %d levels deep at byte %d; reduce the nesting", r.limit, r.i)
	default:
		r.depth++
		r.i++
		r.at = entered
	}
}

// More goes to the next member or element of the container that closing ends. It
// returns false behind the container's end. A value that was not read is skipped.
func (r *Reader) More(closing byte) bool {
	if r.i == r.at {
		r.Skip()
	}
	switch c := r.Next(); {
	case c == ',' && r.at != entered:
		r.i++
		r.Next()
	case c == closing:
		r.i++
		r.depth--
		r.at = elsewhere
		return false
	case r.at == entered:
	case closing == '}':
		r.unexpected("a comma or a closing brace")
	default:
		r.unexpected("a comma or a closing bracket")
	}
	r.at = r.i
	return !r.bad
}

// Key reads a member's name and goes to its value. The name is as written, without its
// quotes.
func (r *Reader) Key() []byte {
	if r.Next() != '"' {
		r.unexpected("a name in quotes")
		return nil
	}
	name := r.ShortStr()
	if r.Next() != ':' {
		r.unexpected("a colon")
		return nil
	}
	r.i++
	r.Next()
	r.at = r.i
	return name
}

// Name is Key with the escapes of the name resolved. A long name is cut.
func (r *Reader) Name() []byte { return r.Resolve(r.Key()) }

// Word is Text with the escapes resolved, for values that are compared with short words.
// A longer value is cut.
func (r *Reader) Word() []byte {
	if r.Next() != '"' {
		r.Skip()
		return nil
	}
	return r.Resolve(r.ShortStr())
}

// Resolve returns the string that Key or ShortStr has just returned with its escapes
// resolved, as Word does. The result is as long as raw only if raw has no escapes.
func (r *Reader) Resolve(raw []byte) []byte {
	if r.short {
		return raw
	}
	return Word(raw)
}

// ShortStr is Str for a string that is probably short: one of up to seven bytes is found
// at once, in less time than two calls of bytes.IndexByte take.
func (r *Reader) ShortStr() []byte {
	if start := r.i + 1; !r.strict && start+8 <= len(r.b) {
		x := binary.LittleEndian.Uint64(r.b[start:])
		quote, slash := x^'"'*eachByte, x^'\\'*eachByte
		// The lowest bit that is set is that of the first quote or backslash, as in plain.
		found := ((quote-eachByte)&^quote | (slash-eachByte)&^slash) & highBits
		if end := start + bits.TrailingZeros64(found)>>3; found != 0 && r.b[end] == '"' {
			r.i, r.short = end+1, true
			return r.b[start:end]
		}
	}
	r.short = false
	return r.Str()
}

// Str reads the string whose quote is the next byte and returns it as written, without
// its quotes.
func (r *Reader) Str() []byte {
	if r.strict {
		return r.checked()
	}
	start := r.i + 1
	for from := start; from <= len(r.b); {
		n := bytes.IndexByte(r.b[from:], '"')
		if n < 0 {
			break
		}
		end := from + n
		slash := end
		for slash > start && r.b[slash-1] == '\\' {
			slash--
		}
		if (end-slash)%2 == 0 {
			r.i = end + 1
			return r.b[start:end]
		}
		from = end + 1
	}
	r.fault()
	return nil
}

// Text reads a string as Str does. It skips any other value and returns nil.
func (r *Reader) Text() []byte {
	if r.Next() == '"' {
		return r.Str()
	}
	r.Skip()
	return nil
}

// Skip reads one value of any kind and returns its bytes.
func (r *Reader) Skip() []byte {
	c := r.Next()
	from := r.i
	switch c {
	case '"':
		r.Str()
	case '{':
		for r.Enter('{'); r.More('}'); {
			r.Key()
			r.Skip()
		}
	case '[':
		if r.numbers() {
			break
		}
		for r.Enter('['); r.More(']'); {
			r.Skip()
		}
	default:
		return r.Scalar()
	}
	if r.bad {
		return nil
	}
	return r.b[from:r.i]
}

// numbers skips a long array of numbers, as embeddings are, or does nothing and returns
// false.
func (r *Reader) numbers() bool {
	rest := r.b[r.i+1:]
	if r.strict || len(rest) < flatArray || rest[0] != '-' && (rest[0] < '0' || rest[0] > '9') {
		return false
	}
	n := bytes.IndexByte(rest, ']')
	if n < flatArray {
		return false
	}
	in := rest[:n]
	if bytes.IndexByte(in, '"') >= 0 || bytes.IndexByte(in, '[') >= 0 || bytes.IndexByte(in, '{') >= 0 {
		return false
	}
	r.i += n + 2
	return true
}

// nonEmpty skips a value and reports whether it has content: null, false, "", [] and {}
// have none.
func (r *Reader) nonEmpty() bool { return nonEmpty(r.Skip()) }

// nonEmpty reports whether a value, as Skip returns it, has content.
func nonEmpty(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	switch v[0] {
	case 'n', 'f':
		return false
	case '"':
		return len(v) > 2
	case '{', '[':
		return len(bytes.TrimSpace(v[1:len(v)-1])) > 0
	}
	return true
}
