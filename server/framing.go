package server

import (
	"bytes"
	"math"
)

// Framing parses the requests of an HTTP/1 connection to find ambiguous ones, which allow request
// smuggling. A request is ambiguous if it has both Content-Length and Transfer-Encoding, or
// Transfer-Encoding in HTTP/1.0. A proxy in front of the gateway may see another end of such a request
// and take its rest for the next client's request. net/http accepts such a request and drops its
// Content-Length, so a handler cannot detect it.
//
// Framing parses only as much as net/http does to find the next request. It stops at input that
// net/http rejects. The zero value is ready for a new connection.
type Framing struct {
	state     framingState
	name      string // in inName: the field name that the line may have
	matched   int    // bytes of name that matched
	last      byte   // last byte of the request line
	emptyLine bool   // in inTrailer: the line has no bytes so far
	http10    bool   // the request is HTTP/1.0
	length    bool   // the request has a Content-Length
	chunked   bool   // the request has a Transfer-Encoding
	digits    int    // digits of a chunk's size that were read; in afterChunk: bytes of its CRLF
	left      uint64 // bytes of the body or chunk that are still to come
}

// framingState is the part of a request that the next byte belongs to.
type framingState uint8

const (
	beforeRequest framingState = iota // may be an empty line, which net/http skips after a POST
	inRequestLine
	atLineStart // start of a header line
	inName      // a field name that may still be one of the two
	inLength    // the value of Content-Length
	inValue     // any other value, or the rest of a name
	inBody      // a body of known length
	inChunkSize // the digits of a chunk's size
	inChunkRest // the rest of a chunk's first line
	inChunk     // the data of a chunk
	afterChunk  // the CRLF after a chunk
	inTrailer   // the lines after the last chunk
	framingLost // net/http rejects the request; the rest is not parsed
)

const (
	// maxSizeDigits is the number of digits of a chunk's size that net/http accepts.
	maxSizeDigits = 16
	nameLength    = "content-length"
	nameEncoding  = "transfer-encoding"
)

// Inspect parses the next bytes of the connection. In an ambiguous request it overwrites the colon
// of the second of the two fields in p. Without the colon the line is malformed: net/http returns 400
// and closes the connection.
func (f *Framing) Inspect(p []byte) {
	for len(p) > 0 {
		switch f.state {
		case inBody, inChunk:
			p = f.skipBody(p)
		case framingLost:
			return
		case inRequestLine, inValue, inChunkRest, inTrailer:
			p = f.skipLine(p)
		default:
			f.readByte(&p[0])
			p = p[1:]
		}
	}
}

// skipBody skips the body, or a chunk of it, and returns the bytes after it.
func (f *Framing) skipBody(p []byte) []byte {
	n := min(f.left, uint64(len(p)))
	if f.left -= n; f.left == 0 {
		if f.state == inBody {
			*f = Framing{}
		} else {
			f.state, f.digits = afterChunk, 0
		}
	}
	return p[n:]
}

// skipLine skips the rest of a line that needs no parsing, and returns the bytes after it.
func (f *Framing) skipLine(p []byte) []byte {
	end := bytes.IndexByte(p, '\n')
	text := p
	if end >= 0 {
		text = p[:end]
	}
	text = bytes.TrimSuffix(text, []byte{'\r'}) // net/http rejects a CR elsewhere in a line
	if len(text) > 0 {
		f.last, f.emptyLine = text[len(text)-1], false
	}
	if end < 0 {
		return nil
	}
	switch f.state {
	case inRequestLine:
		f.state, f.http10 = atLineStart, f.last == '0' // HTTP/1.0; net/http rejects 2.0
	case inValue:
		f.state = atLineStart
	case inChunkRest:
		f.endChunkLine()
	case inTrailer:
		if f.emptyLine {
			*f = Framing{}
		}
		f.emptyLine = true
	}
	return p[end+1:]
}

// readByte parses one byte of a part that skipBody and skipLine cannot skip.
func (f *Framing) readByte(b *byte) {
	switch f.state {
	case beforeRequest:
		if *b != '\r' && *b != '\n' {
			f.state = inRequestLine
		}
	case atLineStart:
		f.startLine(*b)
	case inName:
		f.matchName(b)
	case inLength:
		f.readLength(*b)
	case inChunkSize:
		f.readSize(*b)
	case afterChunk: // exactly CRLF
		if *b != "\r\n"[f.digits] {
			f.state = framingLost
		} else if f.digits++; f.digits == 2 {
			f.state, f.digits = inChunkSize, 0
		}
	}
}

func (f *Framing) startLine(b byte) {
	switch b {
	case 'c', 'C':
		f.state, f.name, f.matched = inName, nameLength, 1
	case 't', 'T':
		f.state, f.name, f.matched = inName, nameEncoding, 1
	case ' ', '\t': // continues the previous line
		f.state = inValue
		if f.name == nameLength && f.matched == len(nameLength) {
			f.state = inLength
		}
	case '\r':
	case '\n':
		f.endHead()
	default:
		f.state, f.matched = inValue, 0
	}
}

// matchName parses a byte of a name that may still be one of the two.
func (f *Framing) matchName(b *byte) {
	switch {
	case f.matched < len(f.name):
		if *b|0x20 == f.name[f.matched] { // |0x20 folds case; it also maps CR to '-', which net/http rejects
			f.matched++
			return
		}
	case *b == ':' && f.name == nameLength:
		if f.chunked {
			f.spoilField(b)
			return
		}
		f.state, f.length, f.left = inLength, true, 0
		return
	case *b == ':':
		if f.length || f.http10 {
			f.spoilField(b)
			return
		}
		f.state, f.chunked = inValue, true
		return
	}
	f.matched = 0
	f.state = inValue
	if *b == '\n' {
		f.state = atLineStart
	}
}

// spoilField makes the field's line malformed, so that net/http rejects the request.
func (f *Framing) spoilField(colon *byte) {
	*colon = 0
	f.state = framingLost
}

// readLength parses a byte of Content-Length's value, which may continue on the next line.
func (f *Framing) readLength(b byte) {
	switch {
	case '0' <= b && b <= '9':
		if f.left < math.MaxInt64 { // net/http rejects larger values
			f.left = 10*f.left + uint64(b-'0')
		}
	case b == '\n':
		f.state = atLineStart
	}
}

func (f *Framing) endHead() {
	switch {
	case f.chunked:
		f.state, f.left, f.digits = inChunkSize, 0, 0
	case f.length && f.left > 0:
		f.state = inBody
	default:
		*f = Framing{}
	}
}

func (f *Framing) readSize(b byte) {
	d := hexDigit(b)
	if d < 0 {
		f.state = inChunkRest
		if b == '\n' {
			f.endChunkLine()
		}
		return
	}
	if f.digits++; f.digits > maxSizeDigits {
		f.state = framingLost
		return
	}
	f.left = f.left<<4 | uint64(d)
}

// endChunkLine enters the chunk's data, or the trailer after the last chunk.
func (f *Framing) endChunkLine() {
	switch {
	case f.digits == 0:
		f.state = framingLost
	case f.left == 0:
		f.state, f.emptyLine = inTrailer, true
	default:
		f.state = inChunk
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
