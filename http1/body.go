package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

const (
	// maxChunkLine bounds one chunk's size with its extensions, which no
	// engine sends; it must stay under the buffer's size.
	maxChunkLine = 1 << 10
	// maxExtensions bounds the extensions of a whole body: they are
	// skipped, and must not keep the client busy without content.
	maxExtensions = 16 << 10
	// maxTrailer bounds the trailer, which is dropped; it must stay under
	// the buffer's size.
	maxTrailer = 2 << 10
)

var errTwoReaders = errors.New("two goroutines read one body")

// framing is how an answer's body ends.
type framing uint8

const (
	framedNone framing = iota
	framedLength
	framedChunks
	framedClose
)

type chunkPart uint8

const (
	chunkSize chunkPart = iota
	chunkData
	chunkEnd
	chunkTrailer
)

// The states of an exchange's body. The goroutine that sets bodyReading owns the connection until
// it sets another state; the one that sets bodyEnded releases it.
const (
	bodyResting uint32 = iota
	bodyReading
	bodyLeaving // Close was called during a Read, which then cleans up
	bodyEnded
)

// exchange is one answer for its caller: the Response and its Body. One goroutine reads; any
// goroutine may close or cancel.
type exchange struct {
	Response
	c     *conn
	idle  *idleConns
	stop  func() bool           // stops watching the context; nil if it cannot be cancelled
	cause atomic.Pointer[error] // why the context ended, set before the connection is closed
	state atomic.Uint32

	framing framing
	part    chunkPart
	keep    bool  // the connection may carry another exchange
	left    int64 // unread bytes of the body or the chunk
	extra   int   // extension bytes read
	trailer int   // trailer bytes read
	err     error // result of Read after the end
}

// setUp fills the Response and chooses the framing (RFC 9112 §6.3).
func (x *exchange) setUp(method string, h answerHead) {
	x.Status, x.Header, x.ContentLength, x.Body = h.status, h.header, h.length, x
	x.keep = !h.option("close")
	if h.oldHTTP {
		x.keep = h.option("keep-alive")
	}
	switch {
	case method == http.MethodHead:
	case h.status == http.StatusNoContent, h.status == http.StatusNotModified:
		x.ContentLength = 0
		// A 204 that announces a body may send one, which must not be taken for the next answer.
		if h.status == http.StatusNoContent && (h.chunked || h.length > 0) {
			x.keep = false
		}
	case h.chunked:
		x.framing = framedChunks
	case h.length > 0:
		x.framing, x.left = framedLength, h.length
	case h.length < 0:
		x.framing, x.keep = framedClose, false
	}
}

// begin ends an exchange without a body and releases its connection.
func (x *exchange) begin() {
	if x.framing == framedNone {
		x.err = io.EOF
		x.state.Store(bodyEnded)
		x.release(true)
	}
}

// cancel ends the exchange because its context has ended.
func (x *exchange) cancel(cause error) {
	x.cause.Store(&cause)
	_ = x.c.socket.Close()
}

// release releases the connection. It becomes idle if the answer reached its proper end and no byte
// follows; otherwise it is closed. It is called once.
func (x *exchange) release(proper bool) {
	// If the watch has fired, it is closing the connection.
	watched := x.stop == nil || x.stop()
	if !proper || !watched || !x.keep || x.c.r != x.c.w {
		_ = x.c.socket.Close()
		return
	}
	x.c.reset()
	x.idle.put(x.c)
}

// Read returns available content at once. An answer that breaks off or is malformed ends in a
// *SendError, never in io.EOF.
func (x *exchange) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !x.state.CompareAndSwap(bodyResting, bodyReading) {
		if x.state.Load() != bodyEnded {
			return 0, errTwoReaders
		}
		return 0, x.err
	}
	n, err := x.decode(p, true)
	if err == nil && x.state.CompareAndSwap(bodyReading, bodyResting) {
		return n, nil
	}
	proper := errors.Is(err, io.EOF)
	if x.err = err; err != nil && !proper {
		x.err = x.failure(err)
	}
	if !x.state.CompareAndSwap(bodyReading, bodyEnded) {
		// Close was called meanwhile and has closed the connection.
		proper, x.err = false, http.ErrBodyReadAfterClose
		x.state.Store(bodyEnded)
	}
	x.release(proper)
	if n > 0 {
		return n, nil
	}
	return 0, x.err
}

func (x *exchange) failure(err error) error {
	if cause := x.cause.Load(); cause != nil {
		err = *cause
	}
	return &SendError{Phase: PhaseBody, Err: err}
}

// Close ends the exchange. If the body was not read to its end, Close closes the connection, so
// that the engine detects the disconnect. If the end is already buffered, the connection is kept.
func (x *exchange) Close() error {
	for {
		switch x.state.Load() {
		case bodyResting:
			if !x.state.CompareAndSwap(bodyResting, bodyReading) {
				continue
			}
			err := x.discard()
			x.err = http.ErrBodyReadAfterClose
			x.state.Store(bodyEnded)
			x.release(errors.Is(err, io.EOF))
			return nil
		case bodyReading:
			if x.state.CompareAndSwap(bodyReading, bodyLeaving) {
				_ = x.c.socket.Close()
				return nil
			}
		default:
			return nil
		}
	}
}

// discard decodes the buffered input and returns io.EOF if that was the rest of the body.
func (x *exchange) discard() error {
	var sink [512]byte
	for {
		if _, err := x.decode(sink[:], false); err != nil {
			return err
		}
	}
}

// decode moves content to p, with io.EOF after the last of it. Without wait it does not read from
// the connection and returns errUnread instead.
func (x *exchange) decode(p []byte, wait bool) (int, error) {
	if x.framing == framedChunks {
		return x.decodeChunks(p, wait)
	}
	if x.framing == framedLength && int64(len(p)) > x.left {
		p = p[:x.left]
	}
	n, err := x.content(p, wait)
	if x.framing == framedClose && errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	if err != nil {
		return 0, err
	}
	if x.framing == framedLength {
		if x.left -= int64(n); x.left == 0 {
			return n, io.EOF
		}
	}
	return n, nil
}

// content moves buffered input to p, or waits for some.
func (x *exchange) content(p []byte, wait bool) (int, error) {
	if n := x.c.take(p); n > 0 {
		return n, nil
	}
	if !wait {
		return 0, errUnread
	}
	return x.c.read(p)
}

// decodeChunks moves content to p from as many chunks as are buffered, and
// waits only while there is nothing to return.
func (x *exchange) decodeChunks(p []byte, wait bool) (n int, err error) {
	for {
		var k int
		if x.part == chunkData {
			if n == len(p) {
				return n, nil
			}
			k, err = x.chunkContent(p[n:], wait && n == 0)
			n += k
		} else if err = x.chunkFrame(); errors.Is(err, errUnread) && wait && n == 0 {
			err = x.c.fill(len(x.c.buf))
		}
		if errors.Is(err, errUnread) && n > 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// chunkContent moves part of one chunk to p.
func (x *exchange) chunkContent(p []byte, wait bool) (n int, err error) {
	if int64(len(p)) > x.left {
		p = p[:x.left]
	}
	if n, err = x.content(p, wait); err != nil {
		return 0, err
	}
	if x.left -= int64(n); x.left == 0 {
		x.part = chunkEnd
	}
	return n, nil
}

// chunkFrame takes one line between the chunks and returns io.EOF for the last one.
func (x *exchange) chunkFrame() error {
	switch x.part {
	case chunkSize:
		line, err := x.c.line(maxChunkLine)
		if err != nil {
			return err
		}
		return x.startChunk(line)
	case chunkEnd:
		line, err := x.c.line(0)
		if errors.Is(err, errUnread) {
			return err
		}
		if err != nil || len(line) != 0 {
			return protocolError("a chunk does not end where its size says")
		}
		x.part = chunkSize
		return nil
	}
	line, err := x.c.line(maxTrailer - x.trailer)
	if err != nil {
		return err
	}
	if len(line) == 0 {
		return io.EOF
	}
	if x.trailer += len(line) + len("\r\n"); x.trailer > maxTrailer {
		return protocolError("its trailer is too long")
	}
	_, _, err = parseField(string(line))
	return err
}

// startChunk reads a chunk's first line: hexadecimal digits, then nothing or
// extensions behind a semicolon (RFC 9112 §7.1).
func (x *exchange) startChunk(line []byte) error {
	digits, extensions, extended := bytes.Cut(line, []byte{';'})
	size, err := strconv.ParseUint(string(digits), 16, 60)
	if err != nil || len(digits) > 15 { // 15 digits cannot overflow and are more than any chunk has
		return protocolError("a chunk's size is not a number")
	}
	if extended {
		x.extra += len(";") + len(extensions)
		if x.extra > maxExtensions || !isFieldValue(extensions) {
			return protocolError("a chunk's extensions are too long or hold a control character")
		}
	}
	x.left, x.part = int64(size), chunkData
	if size == 0 {
		x.part = chunkTrailer
	}
	return nil
}
