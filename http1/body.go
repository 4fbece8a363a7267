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
	// maxChunkLine limits the line with a chunk's size and extensions, in bytes. No engine sends
	// extensions. It must be less than bufferSize.
	maxChunkLine = 1 << 10
	// maxExtensions limits the extensions of a whole body, in bytes. They are skipped: without a
	// limit, a server could occupy the client without sending content.
	maxExtensions = 16 << 10
	// maxTrailer limits the trailer, which is dropped, in bytes. It must be less than bufferSize.
	maxTrailer = 2 << 10
)

var errTwoReaders = errors.New("two goroutines read one body")

// framing is the rule by which an answer's body ends.
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
	bodyClosing // Close owns the connection, or was called during a Read, which then releases the connection
	bodyEnded
)

// openAnswer is one answer for its caller: the Response and its Body. One goroutine reads; any
// goroutine may close or cancel.
type openAnswer struct {
	Response
	c     *conn
	idle  *idleConns
	stop  func() bool           // stops watching the context; nil if it cannot be cancelled
	cause atomic.Pointer[error] // why the context ended, set before the connection is closed
	state atomic.Uint32

	framing        framing
	part           chunkPart
	keep           bool  // the connection may carry another exchange
	left           int64 // unread bytes of the body or the chunk
	extensionBytes int   // extension bytes read
	trailerBytes   int   // trailer bytes read
	err            error // result of Read after the end
}

// setResponse sets the Response and the framing from the head (RFC 9112 §6.3).
func (x *openAnswer) setResponse(method string, h answerHead) {
	x.Status, x.Header, x.ContentLength, x.Body = h.status, h.header, h.length, x
	x.keep = !h.hasOption("close")
	if h.oldHTTP {
		x.keep = h.hasOption("keep-alive")
	}
	switch {
	case method == http.MethodHead:
	case h.status == http.StatusNoContent, h.status == http.StatusNotModified:
		x.ContentLength = 0
		// The body of a 204 that announces one must not be read as the next answer.
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

// endIfNoBody ends the exchange and releases its connection if the answer has no body.
func (x *openAnswer) endIfNoBody() {
	if x.framing == framedNone {
		x.err = io.EOF
		x.state.Store(bodyEnded)
		x.release(true)
	}
}

// cancel ends the exchange because its context has ended.
func (x *openAnswer) cancel(cause error) {
	x.cause.Store(&cause)
	_ = x.c.socket.Close()
}

// release releases the connection. It becomes idle if proper is set, the connection may be kept and
// no unread byte is buffered; otherwise it is closed. release is called once per exchange.
func (x *openAnswer) release(proper bool) {
	// If the watch has fired, it is closing the connection.
	watched := x.stop == nil || x.stop()
	if !proper || !watched || !x.keep || x.c.r != x.c.w {
		_ = x.c.socket.Close()
		return
	}
	x.c.dropBuffer()
	x.idle.put(x.c)
}

// Read returns available content at once. An answer that breaks off or is malformed ends in a
// *SendError, never in io.EOF.
func (x *openAnswer) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !x.state.CompareAndSwap(bodyResting, bodyReading) {
		switch x.state.Load() {
		case bodyEnded:
			return 0, x.err
		case bodyClosing:
			return 0, http.ErrBodyReadAfterClose
		default:
			return 0, errTwoReaders
		}
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

// Wait returns when input of the answer is buffered, or the next Read returns its end or an error at once. The input
// may be only a part of the framing, so that Read still waits for content. Meanwhile the caller needs no buffer, and a
// connection on a plain socket of Linux has none.
func (x *openAnswer) Wait() {
	if !x.state.CompareAndSwap(bodyResting, bodyReading) {
		return
	}
	x.c.wait()
	if !x.state.CompareAndSwap(bodyReading, bodyResting) { // Close has closed the connection
		x.err = http.ErrBodyReadAfterClose
		x.state.Store(bodyEnded)
		x.release(false)
	}
}

func (x *openAnswer) failure(err error) error {
	if cause := x.cause.Load(); cause != nil {
		err = *cause
	}
	return &SendError{Phase: PhaseBody, Err: err}
}

// Close ends the exchange. If the body was not read to its end, Close closes the connection, so
// that the engine detects the disconnect. If the end is already buffered, the connection is kept.
func (x *openAnswer) Close() error {
	for {
		switch x.state.Load() {
		case bodyResting:
			if !x.state.CompareAndSwap(bodyResting, bodyClosing) {
				continue
			}
			err := x.discard()
			x.err = http.ErrBodyReadAfterClose
			x.state.Store(bodyEnded)
			x.release(errors.Is(err, io.EOF))
			return nil
		case bodyReading:
			if x.state.CompareAndSwap(bodyReading, bodyClosing) {
				_ = x.c.socket.Close()
				return nil
			}
		default:
			return nil
		}
	}
}

// discard decodes the buffered input and returns io.EOF if that was the rest of the body.
func (x *openAnswer) discard() error {
	var sink [512]byte
	for {
		if _, err := x.decode(sink[:], false); err != nil {
			return err
		}
	}
}

// decode copies content to p and returns io.EOF with the last of it. Without wait it does not read
// from the connection and returns errUnread instead.
func (x *openAnswer) decode(p []byte, wait bool) (int, error) {
	if x.framing == framedChunks {
		return x.decodeChunks(p, wait)
	}
	if x.framing == framedLength && int64(len(p)) > x.left {
		p = p[:x.left]
	}
	n, err := x.readContent(p, wait)
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

// readContent copies buffered input to p. If there is none and wait is set, it reads from the
// connection.
func (x *openAnswer) readContent(p []byte, wait bool) (int, error) {
	if n := x.c.takeBuffered(p); n > 0 {
		return n, nil
	}
	if !wait {
		return 0, errUnread
	}
	return x.c.read(p)
}

// decodeChunks copies content to p from all buffered chunks. It waits only while there is nothing to
// return.
func (x *openAnswer) decodeChunks(p []byte, wait bool) (n int, err error) {
	for {
		var k int
		if x.part == chunkData {
			if n == len(p) {
				return n, nil
			}
			k, err = x.readChunk(p[n:], wait && n == 0)
			n += k
		} else if err = x.readChunkLine(); errors.Is(err, errUnread) && wait && n == 0 {
			err = x.c.fill(bufferSize)
		}
		if errors.Is(err, errUnread) && n > 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// readChunk copies content of the current chunk to p.
func (x *openAnswer) readChunk(p []byte, wait bool) (n int, err error) {
	if int64(len(p)) > x.left {
		p = p[:x.left]
	}
	if n, err = x.readContent(p, wait); err != nil {
		return 0, err
	}
	if x.left -= int64(n); x.left == 0 {
		x.part = chunkEnd
	}
	return n, nil
}

// readChunkLine reads one line between chunks. It returns io.EOF for the empty line that ends the
// body.
func (x *openAnswer) readChunkLine() error {
	switch x.part {
	case chunkSize:
		line, err := x.c.readLine(maxChunkLine)
		if err != nil {
			return err
		}
		return x.startChunk(line)
	case chunkEnd:
		line, err := x.c.readLine(0)
		if errors.Is(err, errUnread) {
			return err
		}
		if err != nil || len(line) != 0 {
			return protocolError("a chunk does not end where its size says")
		}
		x.part = chunkSize
		return nil
	}
	line, err := x.c.readLine(maxTrailer - x.trailerBytes)
	if err != nil {
		return err
	}
	if len(line) == 0 {
		return io.EOF
	}
	if x.trailerBytes += len(line) + len("\r\n"); x.trailerBytes > maxTrailer {
		return protocolError("its trailer is too long")
	}
	_, _, err = parseField(string(line))
	return err
}

// startChunk parses a chunk's first line: hexadecimal digits, and optional extensions after a
// semicolon (RFC 9112 §7.1).
func (x *openAnswer) startChunk(line []byte) error {
	digits, extensions, extended := bytes.Cut(line, []byte{';'})
	size, err := strconv.ParseUint(string(digits), 16, 60)
	if err != nil || len(digits) > 15 { // 15 digits cannot overflow and are more than any chunk has
		return protocolError("a chunk's size is not a number")
	}
	if extended {
		x.extensionBytes += len(";") + len(extensions)
		if x.extensionBytes > maxExtensions || !isFieldValue(extensions) {
			return protocolError("a chunk's extensions are too long or hold a control character")
		}
	}
	x.left, x.part = int64(size), chunkData
	if size == 0 {
		x.part = chunkTrailer
	}
	return nil
}
