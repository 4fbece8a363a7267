package openai

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

const (
	// MaxEvent is the default limit of an event: 4 MiB holds a chunk of base64 audio or a
	// partial image.
	MaxEvent = 4 << 20

	// firstBuffer is the length of the initial buffer: it holds several token chunks of about 300 bytes.
	firstBuffer = 4 << 10
	// keptBuffer is the largest buffer that is kept after a large event, and that reserves no memory.
	keptBuffer = 64 << 10
	// smallEvents is the number of events that would fit in keptBuffer before a larger buffer is
	// released. A stream of large events keeps its buffer; a single large event does not.
	smallEvents   = 32
	byteOrderMark = "\xef\xbb\xbf"
	// emptyReads is the number of consecutive reads without bytes or error before
	// io.ErrNoProgress, as in bufio.
	emptyReads = 100
)

// ErrEventTooLarge means that an event exceeds the reader's limit. The stream cannot be read
// further.
var ErrEventTooLarge = errors.New("reading an event: its size exceeds the limit")

// Event is one event of a text/event-stream body. Its slices are valid until the reader's next
// call of Next or Reset.
type Event struct {
	// Raw is all bytes of the event, including its blank line, if it has one, and without a byte order
	// mark.
	Raw []byte
	// Name is the value of its `event:` line; empty without one.
	Name []byte
	// Data is the value of its `data:` line; several are joined with '\n'. It
	// points into Raw when there is one line.
	Data []byte
	// Comment reports that the event has nothing for clients. It consists of comments, blank lines or
	// fields without data, or its data is JSON without members, such as null or a number. An event
	// named "error" is never a comment.
	Comment bool

	at      int  // start of Data in Raw; 0: Data does not point into Raw
	unended bool // no blank line ends the event
}

// EventReader splits a text/event-stream body into events. It accepts LF, CRLF and CR line
// ends, in any split into reads, and a leading byte order mark. It is not safe for concurrent
// use.
//
// Engines write two failures that are not events by the standard: a field `error: {…}` and a
// line of bare JSON. Both are returned as an event named "error". Some engines omit the blank line
// between events. If the first data line of an event is a whole JSON value, the next data line begins
// another event.
type EventReader struct {
	r      io.Reader
	waiter Waiter // r, if r is a Waiter and pages is set
	max    int
	err    error      // sticky error of reading
	pages  *sync.Pool // of *Page; nil: the reader keeps its buffer
	buf    []byte
	join   []byte // data of events with several data lines

	start, end int // the unread bytes are buf[start:end]
	next       int // start of the next event
	pos        int // end of the searched bytes
	line       int // start of the line at pos
	lf         int // no line feed is in buf[pos:lf]
	small      int // consecutive events that would fit in keptBuffer
	ready      bool
	memory     Memory
	reserved   int64 // of memory, for a buffer longer than keptBuffer
	begun      bool  // an event was returned: only the first one may follow a byte order mark
	bareCR     bool  // the last line ended in CR without LF

	lines   eventLines // of the event at start, before line
	unended bool       // no blank line ends the event before pos
	oneLine bool       // the stream omits blank lines, so a whole value ends its event
}

type eventLines struct {
	fields lineField
	data   span // value of the first data line, relative to the event's start
	broken bool // that value is not whole, so only a blank line ends the event
}

// lineField is the field of a line: one bit of a set.
type lineField uint8

const (
	dataField lineField = 1 << iota
	nameField
	idField
	errorField
)

// NewPagedReader returns a reader without a body, for Reset. Its initial buffers are from pages, a pool of *Page. If
// the body is a Waiter, a reader without unread bytes has no page while it waits. A longer buffer stays.
func NewPagedReader(pages *sync.Pool) *EventReader { return &EventReader{pages: pages, max: MaxEvent} }

// NewEventReader returns a reader of r's events. An event of more than max bytes is
// ErrEventTooLarge; max ≤ 0 means MaxEvent.
func NewEventReader(r io.Reader, max int) *EventReader {
	e := &EventReader{}
	e.Reset(r, max, nil)
	return e
}

// Reset prepares the reader for another body with another limit, as in NewEventReader. An event
// that needs a buffer of more than 64 KiB reserves it from memory, whose error ends the reading;
// nil means no limit. Reset keeps the buffer unless it is large or a page, so readers can be pooled.
// Reset(nil, 0, nil) releases the body and the memory.
func (r *EventReader) Reset(body io.Reader, max int, memory Memory) {
	r.returnMemory()
	if cap(r.buf) > keptBuffer || r.pages != nil {
		r.setBuffer(nil)
	}
	buf, join := r.buf, r.join
	if cap(join) > keptBuffer {
		join = nil
	}
	if max <= 0 {
		max = MaxEvent
	}
	*r = EventReader{r: body, max: max, memory: memory, pages: r.pages, buf: buf, join: join[:0]}
	if r.pages != nil {
		r.waiter, _ = body.(Waiter)
	}
}

// Next returns the next event.
//
// io.EOF means that the body ended after an event. io.ErrUnexpectedEOF means that it ended elsewhere:
// with an event if only its blank line or the line end of a whole value is missing, or without an event
// if the last line is incomplete and lost. llama.cpp omits the blank line after [DONE]. AppendEvent adds
// a missing one, because SDKs drop an event without it. Every other error is the body's own or
// ErrEventTooLarge, and comes without an event. After an error, each call returns an error.
func (r *EventReader) Next() (Event, error) {
	r.start = r.next
	empty := 0
	for !r.Buffered() {
		if r.err != nil {
			return r.remainder()
		}
		n := r.fill()
		if n > 0 {
			empty = 0
		} else if empty++; empty >= emptyReads && r.err == nil {
			r.err = io.ErrNoProgress
		}
	}
	r.next, r.ready = r.pos, false
	ev := r.parse(r.buf[r.start:r.next])
	ev.unended = r.unended
	return ev, nil
}

// Buffered reports whether Next can return a whole event without reading. A caller that
// forwards events delays the flush until it is false.
func (r *EventReader) Buffered() bool {
	if !r.ready {
		r.ready = r.findEventEnd()
	}
	return r.ready
}

// findEventEnd searches the buffered bytes for the end of the event at start, and leaves pos after it.
// That is a blank line, or the beginning of the next event. It examines each byte once, and the first
// data line of an event with several ones twice.
func (r *EventReader) findEventEnd() bool {
	for r.pos < r.end || r.line < r.end && r.err != nil {
		at, n := r.lineEnd()
		if n == 0 && !r.endsInWholeValue() {
			r.pos = at
			return false
		}
		ends := at == r.line
		if r.unended = !ends; r.unended {
			field := r.fieldAt(at)
			if r.beginsNext(field) {
				at, n, ends, r.oneLine = r.line, 0, true, true
			} else {
				ends = r.addLine(field, at)
			}
		}
		r.bareCR = n == 1 && r.buf[at] == '\r'
		r.pos = at + n
		r.line = r.pos
		if ends {
			r.lines = eventLines{}
			return true
		}
	}
	return false
}

// fieldAt returns the field of the line that ends before at.
func (r *EventReader) fieldAt(at int) lineField {
	line := r.buf[r.line:at]
	if !r.begun && r.line == r.start {
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	return lineFieldOf(line)
}

// addLine adds the line that ends before at, and reports whether it ends the event without a blank line.
func (r *EventReader) addLine(field lineField, at int) bool {
	if field == dataField && r.lines.fields&dataField == 0 {
		from := r.line + bytes.IndexByte(r.buf[r.line:at], ':') + 1
		r.lines.data = span{from - r.start, at - r.start}
	}
	r.lines.fields |= field
	return r.oneLine && field == dataField && r.hasWholeValue()
}

// lineFieldOf returns the field of a line, if it is one that can begin an event.
func lineFieldOf(line []byte) lineField {
	switch {
	case len(line) == 0:
	case line[0] == 'd' && bytes.HasPrefix(line, []byte("data:")):
		return dataField
	case line[0] == 'e' && bytes.HasPrefix(line, []byte("event:")):
		return nameField
	case line[0] == 'i' && bytes.HasPrefix(line, []byte("id:")):
		return idField
	case line[0] == '{', line[0] == 'e' && bytes.HasPrefix(line, []byte("error:")):
		return errorField
	}
	return 0
}

// beginsNext reports whether a line of that field begins the next event, although no blank line precedes
// it: the event at start has a whole value, which further data would break, or has the field already.
func (r *EventReader) beginsNext(field lineField) bool {
	seen := r.lines.fields
	return field != 0 && seen&dataField != 0 && (field&(dataField|errorField) != 0 || seen&field != 0) && r.hasWholeValue()
}

// endsInWholeValue reports whether the body has ended in a data line that lacks only its line end.
func (r *EventReader) endsInWholeValue() bool {
	value, isData := bytes.CutPrefix(r.buf[r.line:r.end], []byte("data:"))
	return isData && errors.Is(r.err, io.EOF) && isWholeValue(value)
}

// hasWholeValue reports whether the first data line of the event at start is a JSON value or [DONE].
func (r *EventReader) hasWholeValue() bool {
	l := &r.lines
	l.broken = l.broken || !isWholeValue(r.buf[r.start+l.data.from:r.start+l.data.to])
	return !l.broken
}

// isWholeValue reports whether a text is a JSON value or [DONE].
func isWholeValue(text []byte) bool {
	c := NewReader(text)
	begins := c.Next() != 0
	c.Skip()
	return begins && c.AtEnd() || isDone(text)
}

// isDone reports whether data is [DONE], in any case and with or without its brackets and blanks.
func isDone(data []byte) bool {
	if len(data) == 0 || data[0] == '{' { // the usual event
		return false
	}
	return bytes.EqualFold(bytes.Trim(data, " \t\r\n[]"), []byte("DONE"))
}

// lineEnd returns the end of the line at pos and the length of its line break. A length of 0
// means that the line break was not read yet; all bytes before at then belong to the line.
//
// A CR as the last buffered byte may be half of a CRLF, so it waits for the next byte. A stream
// with bare CR line breaks does not wait at a blank line, or every event would be delayed until
// the next one. A following LF is then another blank line, which has the same meaning.
func (r *EventReader) lineEnd() (at, n int) {
	if r.lf < r.pos {
		r.lf = r.pos
	}
	if r.lf < r.end && r.buf[r.lf] != '\n' {
		if i := bytes.IndexByte(r.buf[r.lf:r.end], '\n'); i >= 0 {
			r.lf += i
		} else {
			r.lf = r.end
		}
	}
	cr := bytes.IndexByte(r.buf[r.pos:r.lf], '\r')
	if cr < 0 {
		if r.lf < r.end {
			return r.lf, 1
		}
		return r.end, 0
	}
	cr += r.pos
	switch {
	case cr == r.line && r.bareCR:
		return cr, 1
	case cr+1 < r.end:
		if r.buf[cr+1] == '\n' {
			return cr, 2
		}
		return cr, 1
	case r.err != nil:
		return cr, 1
	}
	return cr, 0
}

// remainder returns the rest of a body that ended within an event.
func (r *EventReader) remainder() (Event, error) {
	whole, rest := r.buf[r.start:r.line], r.end-r.line
	r.start, r.next, r.pos, r.line = r.end, r.end, r.end, r.end
	switch {
	case !errors.Is(r.err, io.EOF):
		return Event{}, r.err
	case rest > 0:
		return Event{}, io.ErrUnexpectedEOF
	case len(whole) > 0:
		ev := r.parse(whole)
		ev.unended = true
		return ev, io.ErrUnexpectedEOF
	}
	return Event{}, io.EOF
}

func (r *EventReader) parse(raw []byte) Event {
	if len(raw) <= keptBuffer/2 {
		r.small++
	} else {
		r.small = 0
	}
	if !r.begun {
		raw = bytes.TrimPrefix(raw, []byte(byteOrderMark))
		r.begun = true
	}
	ev := Event{Raw: raw}
	rest := raw
	carriage := bytes.IndexByte(rest, '\r') >= 0
	lines := 0
	for len(rest) > 0 {
		var line []byte
		from := len(raw) - len(rest)
		line, rest = cutLine(rest, carriage)
		field, value, skipped := cutField(line)
		switch string(field) {
		case "data":
			lines++
			if lines == 1 {
				ev.Data, ev.at = value, from+skipped
				continue
			}
			if lines == 2 {
				r.join = append(r.join[:0], ev.Data...)
			}
			r.join = append(append(r.join, '\n'), value...)
			ev.Data, ev.at = r.join, 0
		case "event":
			ev.Name = value
		case "error":
			if lines == 0 {
				ev.Name, ev.Data = field, value
			}
		}
	}
	ev.Comment = ev.isEmpty()
	return ev
}

// isEmpty reports whether the event has nothing for clients. An empty object has its meaning from the
// event's name, if there is one.
func (ev *Event) isEmpty() bool {
	if string(ev.Name) == "error" {
		return false
	}
	c := NewReader(ev.Data)
	switch c.Next() {
	case 0:
		return len(bytes.TrimSpace(ev.Data)) == 0
	case '{':
		if c.Inside() != '}' || len(ev.Name) > 0 {
			return false
		}
	case '[':
		if _, isError := ErrorOf(ev.Data); isError {
			return false
		}
	}
	c.Skip()
	return c.AtEnd()
}

// cutLine splits b after its first line break. carriage means that b contains a CR, so that
// each byte must be examined.
func cutLine(b []byte, carriage bool) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if carriage {
		i = bytes.IndexAny(b, "\r\n")
	}
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i+1:]
}

// cutField splits a line into the name and value of its field; skipped is the start of the
// value. A comment has no name. A line of bare JSON, which frameworks write after a failure in
// mid-stream, is the field "error".
func cutField(line []byte) (field, value []byte, skipped int) {
	if len(line) > 0 && line[0] == '{' {
		return []byte("error"), line, 0
	}
	i := bytes.IndexByte(line, ':')
	if i < 0 {
		return line, nil, len(line)
	}
	skipped = i + 1
	if skipped < len(line) && line[skipped] == ' ' {
		skipped++
	}
	return line[:i], line[skipped:], skipped
}
