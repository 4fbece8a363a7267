package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// bufferSize is the length of a page. It holds a usual answer's head and its first events; larger reads bypass it.
	bufferSize = 4 << 10
	// maxPieces is the number of body pieces that a connection keeps room for between exchanges; a
	// request has a handful.
	maxPieces = 32
)

// protocolError is the rule of HTTP/1.1 that a server's answer breaks.
type protocolError string

// Error names the rule, never the bytes, which may be content.
func (e protocolError) Error() string { return "the answer is not proper HTTP/1.1: " + string(e) }

// errUnread means that the next part of the answer is not buffered. Callers of the package never
// receive it.
const errUnread = protocolError("more must be read")

// page is a buffer for input. Connections share a pool of pages. A direct connection has no page while it waits.
type page [bufferSize]byte

// newPages returns a pool of pages.
func newPages() *sync.Pool { return &sync.Pool{New: func() any { return new(page) }} }

// conn is one connection with its buffered input. It belongs to one exchange at a time, or to the
// idle connections.
type conn struct {
	socket   net.Conn
	pages    *sync.Pool
	page     *page  // memory of buf; nil if buf is none or longer
	buf      []byte // buf[r:w] is unused input; longer than a page for a long head
	r, w     int
	received bool  // input has arrived in this exchange
	failed   error // error that wait has received; the next read returns it

	opened time.Time
	since  time.Time   // idle since
	pieces net.Buffers // backing array for write

	in, out  transfer
	fillOnce func(fd uintptr) bool // the method value fillEmpty, created once

	raw      syscall.RawConn       // nil if the socket has none
	direct   syscall.RawConn       // for transfers; nil: the socket's own Read and Write are used
	peekOnce func(fd uintptr) bool // the method value peek, created once
	empty    bool                  // the result of peek
	one      [1]byte
}

func newConn(socket net.Conn, pages *sync.Pool) *conn {
	c := &conn{socket: socket, pages: pages, opened: time.Now()}
	c.preparePeek()
	c.prepareTransfers()
	return c
}

// write sends the head and the pieces of the body, in one system call if the kernel has room for
// them. With an error, begun reports whether a byte was sent.
func (c *conn) write(head []byte, body [][]byte) (begun bool, err error) {
	if len(body) == 0 {
		n, err := c.transmit(head)
		return n > 0, err
	}
	c.pieces = append(append(c.pieces[:0], head), body...)
	n, err := c.transmitAll(c.pieces) // which clears the array
	if cap(c.pieces) > maxPieces {
		c.pieces = nil
	}
	return n > 0, err
}

// takePage gives a connection without a buffer a page.
func (c *conn) takePage() {
	c.page = c.pages.Get().(*page)
	c.buf = c.page[:]
}

// dropBuffer removes the buffer, which holds no unused input. Nothing may refer to its bytes.
func (c *conn) dropBuffer() {
	if c.page != nil {
		c.pages.Put(c.page)
	}
	c.page, c.buf, c.r, c.w = nil, nil, 0, 0
}

// fill reads once from the connection into the buffer. It first removes used input, and grows a full buffer up to
// limit. Without unused input, a direct connection has no buffer while fill waits.
func (c *conn) fill(limit int) error {
	if err := c.takeFailure(); err != nil {
		return err
	}
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	if c.w == 0 {
		n, err := c.checkRead(c.receivePage())
		c.w = n
		return err
	}
	if c.w == len(c.buf) {
		if c.w >= limit {
			return protocolError("a line is too long")
		}
		grown := make([]byte, min(2*len(c.buf), limit))
		n := copy(grown, c.buf)
		c.dropBuffer()
		c.buf, c.w = grown, n
	}
	n, err := c.readSocket(c.buf[c.w:])
	c.w += n
	return err
}

// readSocket reads at least one byte from the connection, or returns an error.
func (c *conn) readSocket(p []byte) (int, error) {
	if err := c.takeFailure(); err != nil {
		return 0, err
	}
	return c.checkRead(c.receive(p))
}

// takeFailure returns the error that wait has stored, and clears it.
func (c *conn) takeFailure() error {
	err := c.failed
	c.failed = nil
	return err
}

// checkRead checks the result of a read from the socket, and returns at least one byte or an error.
func (c *conn) checkRead(n int, err error) (int, error) {
	if n > 0 {
		c.received = true
		return n, nil // the next read returns the error again
	}
	switch {
	case err == nil:
		err = io.ErrNoProgress
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF // decode restores io.EOF where an end is proper
	}
	return 0, err
}

// receivePlainly reads once into the empty buffer, which the connection keeps while it waits.
func (c *conn) receivePlainly() (int, error) {
	if c.buf == nil {
		c.takePage()
	}
	return c.receive(c.buf)
}

// wait waits until the buffer has bytes, or the next read returns an error.
func (c *conn) wait() {
	if c.r == c.w && c.failed == nil {
		c.failed = c.fill(bufferSize)
	}
}

// takeBuffered copies buffered input to p, as much as fits, and removes it from the buffer.
func (c *conn) takeBuffered(p []byte) int {
	n := copy(p, c.buf[c.r:c.w])
	c.r += n
	return n
}

// read waits for input and copies it to p. The buffer must be empty.
func (c *conn) read(p []byte) (int, error) {
	if len(p) >= bufferSize {
		c.dropBuffer()
		return c.readSocket(p)
	}
	if err := c.fill(bufferSize); err != nil {
		return 0, err
	}
	return c.takeBuffered(p), nil
}

// readLine returns one line of at most limit bytes without its CRLF, or errUnread if it is not
// completely buffered.
func (c *conn) readLine(limit int) ([]byte, error) {
	in := c.buf[c.r:c.w]
	end := bytes.IndexByte(in, '\n')
	switch {
	case end < 0 && len(in) <= limit+1:
		return nil, errUnread
	case end < 0 || end > limit+1:
		return nil, protocolError("a line is too long")
	case end == 0 || in[end-1] != '\r':
		return nil, protocolError("a line does not end in CRLF")
	}
	c.r += end + 1
	return in[:end-1], nil
}
