package server

import (
	"bytes"
	"math"
)

// Framing follows the requests in the bytes of an HTTP/1 connection, to find one
// that has a Content-Length beside a Transfer-Encoding, or a Transfer-Encoding in
// HTTP/1.0. A proxy before the gateway may have read such a request with another
// end, so that the rest of it is another client's next request. net/http accepts it
// and hides it from handlers: it drops the Content-Length.
//
// It reads no more than net/http does to find the next request: what it cannot
// follow, net/http refuses.
type Framing struct {
	at      framingState
	name    string // in inName: of the field that the line may have
	matched int    // of name
	last    byte   // of the request line
	empty   bool   // in inTrailer: nothing of the line has come
	old     bool   // the request is of HTTP/1.0
	length  bool   // it has a Content-Length
	chunked bool   // it has a Transfer-Encoding
	digits  int    // of a chunk's size that were read; in afterChunk: bytes
	left    uint64 // of the body or the chunk
}

// framingState is what comes next.
type framingState uint8

const (
	beforeRequest framingState = iota // maybe empty lines, which net/http skips after a POST
	inRequestLine
	atLineStart // of a field
	inName      // which still may be one of the two
	inLength    // the value of Content-Length
	inValue     // any other value, or the rest of a name
	inBody      // of known length
	inChunkSize // digits
	inChunkRest // the rest of a chunk's first line
	inChunk     // its data
	afterChunk  // its CRLF
	inTrailer   // the lines behind the last chunk
	framingLost // net/http refuses the request
)

const (
	// maxSizeDigits is how many digits of a chunk's size net/http accepts.
	maxSizeDigits = 16
	nameLength    = "content-length"
	nameEncoding  = "transfer-encoding"
)

// Inspect follows bytes that were read. It makes net/http refuse an ambiguous
// request, with 400 and the end of the connection, by spoiling its second such
// field: a name without its colon is no field.
func (f *Framing) Inspect(p []byte) {
	for len(p) > 0 {
		switch f.at {
		case inBody, inChunk:
			p = f.skip(p)
		case framingLost:
			return
		case inRequestLine, inValue, inChunkRest, inTrailer:
			p = f.line(p)
		default:
			f.step(&p[0])
			p = p[1:]
		}
	}
}

// skip passes over the body, or a chunk of it.
func (f *Framing) skip(p []byte) []byte {
	n := min(f.left, uint64(len(p)))
	if f.left -= n; f.left == 0 {
		if f.at == inBody {
			*f = Framing{}
		} else {
			f.at, f.digits = afterChunk, 0
		}
	}
	return p[n:]
}

// line passes over the rest of a line that needs no reading.
func (f *Framing) line(p []byte) []byte {
	end := bytes.IndexByte(p, '\n')
	text := p
	if end >= 0 {
		text = p[:end]
	}
	text = bytes.TrimSuffix(text, []byte{'\r'}) // one in the middle of a line is refused by net/http
	if len(text) > 0 {
		f.last, f.empty = text[len(text)-1], false
	}
	if end < 0 {
		return nil
	}
	switch f.at {
	case inRequestLine:
		f.at, f.old = atLineStart, f.last == '0' // HTTP/1.0; 2.0 is refused
	case inValue:
		f.at = atLineStart
	case inChunkRest:
		f.endChunkLine()
	case inTrailer:
		if f.empty {
			*f = Framing{}
		}
		f.empty = true
	}
	return p[end+1:]
}

// step reads one byte.
func (f *Framing) step(b *byte) {
	switch f.at {
	case beforeRequest:
		if *b != '\r' && *b != '\n' {
			f.at = inRequestLine
		}
	case atLineStart:
		f.startLine(*b)
	case inName:
		f.match(b)
	case inLength:
		f.readLength(*b)
	case inChunkSize:
		f.readSize(*b)
	case afterChunk: // exactly CRLF
		if *b != "\r\n"[f.digits] {
			f.at = framingLost
		} else if f.digits++; f.digits == 2 {
			f.at, f.digits = inChunkSize, 0
		}
	}
}

// startLine reads the first byte of a header line.
func (f *Framing) startLine(b byte) {
	switch b {
	case 'c', 'C':
		f.at, f.name, f.matched = inName, nameLength, 1
	case 't', 'T':
		f.at, f.name, f.matched = inName, nameEncoding, 1
	case ' ', '\t': // the line before goes on
		f.at = inValue
		if f.name == nameLength && f.matched == len(nameLength) {
			f.at = inLength
		}
	case '\r':
	case '\n':
		f.endHead()
	default:
		f.at, f.matched = inValue, 0
	}
}

// match reads a byte of a name that still may be one of the two.
func (f *Framing) match(b *byte) {
	switch {
	case f.matched < len(f.name):
		if *b|0x20 == f.name[f.matched] { // the names' letters and hyphen; a carriage return is no hyphen
			f.matched++
			return
		}
	case *b == ':' && f.name == nameLength:
		if f.chunked {
			f.spoil(b)
			return
		}
		f.at, f.length, f.left = inLength, true, 0
		return
	case *b == ':':
		if f.length || f.old {
			f.spoil(b)
			return
		}
		f.at, f.chunked = inValue, true
		return
	}
	f.matched = 0
	f.at = inValue
	if *b == '\n' {
		f.at = atLineStart
	}
}

// spoil makes a field's line none.
func (f *Framing) spoil(colon *byte) {
	*colon = 0
	f.at = framingLost
}

// readLength reads a byte of Content-Length's value, which may be folded.
func (f *Framing) readLength(b byte) {
	switch {
	case '0' <= b && b <= '9':
		if f.left < math.MaxInt64 { // net/http refuses what is larger
			f.left = 10*f.left + uint64(b-'0')
		}
	case b == '\n':
		f.at = atLineStart
	}
}

// endHead decides where the request's body ends.
func (f *Framing) endHead() {
	switch {
	case f.chunked:
		f.at, f.left, f.digits = inChunkSize, 0, 0
	case f.length && f.left > 0:
		f.at = inBody
	default:
		*f = Framing{}
	}
}

// readSize reads a byte of a chunk's size.
func (f *Framing) readSize(b byte) {
	d := hexDigit(b)
	if d < 0 {
		f.at = inChunkRest
		if b == '\n' {
			f.endChunkLine()
		}
		return
	}
	if f.digits++; f.digits > maxSizeDigits {
		f.at = framingLost
		return
	}
	f.left = f.left<<4 | uint64(d)
}

// endChunkLine begins a chunk's data, or after the last one the trailer.
func (f *Framing) endChunkLine() {
	switch {
	case f.digits == 0:
		f.at = framingLost
	case f.left == 0:
		f.at, f.empty = inTrailer, true
	default:
		f.at = inChunk
	}
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}
