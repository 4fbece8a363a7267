package openai

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// readerDepth limits the nesting of unchecked JSON: a Responses object repeats the JSON schemas
// of tools, which have some tens of levels.
const readerDepth = 512

// flatArray is the length in bytes from which an array of numbers is skipped with four passes
// at memory speed instead of byte by byte.
const flatArray = 64

// Reader reads one JSON text forward, without copying and without allocating. Most methods
// expect the value or name that they read next, after optional white space.
//
// The reader of Parse is strict: it checks everything that RFC 8259 requires, also in skipped
// values, and counts the characters of strings. Other readers check the structure (brackets,
// commas, colons, literals, numbers) but not the content of strings, and accept NaN and
// Infinity, which Python engines write. Any input is safe.
//
// After an error, all methods return at once: Next returns 0 and More false. Only the first
// error is kept.
type Reader struct {
	b      []byte
	i      int // the next byte
	at     int // start of the last member's or element's value, or entered, or elsewhere
	bad    bool
	strict bool
	short  bool // the last result of ShortStr is short and has no escapes

	depth, limit int           // open containers, and their maximum
	fail         *RequestError // error of a strict reader
	chars        extent        // size of a strict reader's last string
}

// Values of Reader.at that are not an index.
const (
	elsewhere = -1 // after a container, or anywhere after Seek
	entered   = -2 // in a new container, before the first call of More
)

type extent struct {
	ascii int // characters below 0x80
	wide  int // all other characters
	bytes int // in UTF-8
}

// NewReader returns a reader that is not strict.
func NewReader(b []byte) Reader { return Reader{b: b, limit: readerDepth} }

func (r *Reader) stop() {
	r.bad = true
	r.i, r.at = len(r.b), elsewhere
}

// reject stops the reader; a strict reader keeps the error for the client.
func (r *Reader) reject(reason Code, param, format string, args ...any) {
	if !r.bad && r.strict {
		r.fail = &RequestError{Reason: reason, Param: param, Message: fmt.Sprintf(format, args...)}
	}
	r.stop()
}

// rejectSyntax rejects invalid JSON at byte i. The problem must not quote the body.
func (r *Reader) rejectSyntax(i int, problem string) {
	r.reject(CodeInvalidJSON, "",
		"the request body is not valid JSON: %s at byte %d; send one JSON object in UTF-8", problem, i)
}

// unexpected rejects a next byte that does not begin the wanted token.
func (r *Reader) unexpected(wanted string) {
	switch {
	case !r.strict:
		r.stop()
	case r.i >= len(r.b):
		r.rejectSyntax(len(r.b), "unexpected end instead of "+wanted)
	default:
		r.rejectSyntax(r.i, "expected "+wanted)
	}
}

// Pos returns the index of the next byte.
func (r *Reader) Pos() int { return r.i }

// Seek makes i, the start of a value, the next byte.
func (r *Reader) Seek(i int) { r.i, r.at = i, elsewhere }

// Next skips white space and returns the next byte, or 0 at the end. No JSON token begins with
// 0.
func (r *Reader) Next() byte {
	if r.i < len(r.b) && r.b[r.i] > ' ' {
		return r.b[r.i]
	}
	return r.skipSpace()
}

// skipSpace skips white space and returns the next byte, or 0 at the end.
func (r *Reader) skipSpace() byte {
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

// Inside returns the first byte inside the next object or array.
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

// AtEnd reports whether only white space is left and no error occurred.
func (r *Reader) AtEnd() bool { return r.Next() == 0 && r.i >= len(r.b) && !r.bad }

// Enter enters the object or array that begins with opening. Call More next.
func (r *Reader) Enter(opening byte) {
	switch c := r.Next(); {
	case c != opening && opening == '{':
		r.unexpected("an object")
	case c != opening:
		r.unexpected("an array")
	case r.depth >= r.limit:
		r.reject(CodeJSONTooDeep, "",
			"the request body nests objects and arrays more than %d levels deep at byte %d; reduce the nesting", r.limit, r.i)
	default:
		r.depth++
		r.i++
		r.at = entered
	}
}

// More advances to the next member or element of the container that ends with closing. It
// returns false after the end of the container. A value that was not read is skipped.
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

// Key reads a member's name and advances to its value. The name is raw, without its quotes.
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

// Name is Key with decoded escapes. A long name is cut.
func (r *Reader) Name() []byte { return r.Resolve(r.Key()) }

// Word is Text with decoded escapes, for values that are compared with short words. A longer
// value is cut.
func (r *Reader) Word() []byte {
	if r.Next() != '"' {
		r.Skip()
		return nil
	}
	return r.Resolve(r.ShortStr())
}

// Resolve decodes raw, the last result of Key or ShortStr, like the function Word. The result has the
// length of raw only if raw has no escapes.
func (r *Reader) Resolve(raw []byte) []byte {
	if r.short {
		return raw
	}
	return Word(raw)
}

// ShortStr is Str, optimized for short strings: up to seven bytes are found at once, in less
// time than two calls of bytes.IndexByte.
func (r *Reader) ShortStr() []byte {
	if start := r.i + 1; !r.strict && start+8 <= len(r.b) {
		x := binary.LittleEndian.Uint64(r.b[start:])
		quote, slash := x^'"'*eachByte, x^'\\'*eachByte
		// The lowest set bit belongs to the first quote or backslash, as in plain.
		found := ((quote-eachByte)&^quote | (slash-eachByte)&^slash) & highBits
		if end := start + bits.TrailingZeros64(found)>>3; found != 0 && r.b[end] == '"' {
			r.i, r.short = end+1, true
			return r.b[start:end]
		}
	}
	r.short = false
	return r.Str()
}

// Str reads the string at the next byte, a quote, and returns it raw, without its quotes.
func (r *Reader) Str() []byte {
	if r.strict {
		return r.checkedStr()
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
	r.stop()
	return nil
}

// Text reads a string like Str. It skips any other value and returns nil.
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
		if r.skipNumbers() {
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

// skipNumbers skips a long array of numbers, such as an embedding, and returns true. It returns
// false without effect for other arrays.
func (r *Reader) skipNumbers() bool {
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

// nonEmpty skips a value and reports whether it has content.
func (r *Reader) nonEmpty() bool { return HasContent(r.Skip()) }

// HasContent reports whether a JSON value is not null, false, "", {} or [].
func HasContent(v []byte) bool {
	v = bytes.TrimSpace(v)
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
