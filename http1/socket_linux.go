//go:build linux && !race

package http1

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// directMax is the size in bytes up to which data is read or written directly. Copying more takes so long that the
// scheduler must know.
const directMax = 64 << 10

// transfer is the reading or the writing side of a socket. Its system calls do not tell Go's scheduler that they may
// block, because the sockets are non-blocking. A call that tells it while all processors are idle wakes the scheduler's
// monitor thread, which then looks at them every 20 µs: at 1,000 requests/s this costs a sixth of the processor time
// (docs/performance.md). Builds for the race detector use the calls of the net package, which order memory accesses.
type transfer struct {
	once  func(fd uintptr) bool // the method value of try, created once
	call  uintptr               // number of the system call
	bytes []byte                // of a single piece
	vec   []syscall.Iovec       // of several pieces
	n     int                   // result of the call
	errno syscall.Errno         // result of the call; 0 without an error
}

// prepareTransfers makes the transfers ready to be used without allocating. A connection of another type may change
// what it reads or writes.
func (c *conn) prepareTransfers() {
	switch c.socket.(type) {
	case *net.TCPConn, *net.UnixConn:
		c.direct = c.raw
		c.in.once, c.out.once, c.fillOnce = c.in.try, c.out.try, c.fillEmpty
	}
}

// try is called with the socket's descriptor, until it returns true. In between, the socket becomes ready.
func (t *transfer) try(fd uintptr) bool {
	at, length := unsafe.Pointer(unsafe.SliceData(t.bytes)), len(t.bytes)
	if t.call == syscall.SYS_WRITEV {
		at, length = unsafe.Pointer(unsafe.SliceData(t.vec)), len(t.vec)
	}
	for {
		n, _, errno := syscall.RawSyscall(t.call, fd, uintptr(at), uintptr(length))
		if errno == syscall.EINTR {
			continue
		}
		t.n, t.errno = int(n), errno
		return errno != syscall.EAGAIN
	}
}

// hasNoInput reports whether the socket is open and has no input. It may read a byte.
func (c *conn) hasNoInput(fd uintptr) bool {
	c.in.call, c.in.bytes = syscall.SYS_READ, c.one[:]
	return !c.in.try(fd)
}

// receive reads once from the socket. The end is io.EOF.
func (c *conn) receive(p []byte) (int, error) {
	if c.direct == nil || len(p) == 0 || len(p) > directMax {
		return c.socket.Read(p)
	}
	c.in.call, c.in.bytes = syscall.SYS_READ, p
	return c.readOnce(c.in.once)
}

// receivePage reads once into the empty buffer. A direct connection has no buffer until bytes have arrived.
func (c *conn) receivePage() (int, error) {
	if c.direct == nil {
		return c.receivePlainly()
	}
	return c.readOnce(c.fillOnce)
}

// fillEmpty is try with a page as the buffer. If no bytes have arrived, it returns the page to the pool.
func (c *conn) fillEmpty(fd uintptr) bool {
	if c.buf == nil {
		c.takePage()
	}
	c.in.call, c.in.bytes = syscall.SYS_READ, c.buf
	done := c.in.try(fd)
	if !done {
		c.in.bytes = nil
		c.dropBuffer()
	}
	return done
}

// readOnce reads by a function that is called until it returns true.
func (c *conn) readOnce(once func(fd uintptr) bool) (int, error) {
	err := c.direct.Read(once)
	c.in.bytes = nil
	switch {
	case err != nil:
		return 0, err
	case c.in.errno != 0:
		return 0, c.socketError("read", c.in.errno)
	case c.in.n == 0:
		return 0, io.EOF
	}
	return c.in.n, nil
}

// transmit writes all of p, or returns an error and how much it has written.
func (c *conn) transmit(p []byte) (written int, err error) {
	if c.direct == nil || len(p) > directMax {
		return c.socket.Write(p)
	}
	for len(p) > 0 && err == nil {
		c.out.call, c.out.bytes = syscall.SYS_WRITE, p
		var n int
		n, err = c.writeOnce("write")
		written, p = written+n, p[n:]
	}
	c.out.bytes = nil
	return written, err
}

// maxVec is the number of pieces that one system call writes.
const maxVec = 64

// transmitAll is transmit with several pieces. It consumes them.
func (c *conn) transmitAll(pieces net.Buffers) (written int64, err error) {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	if c.direct == nil || total > directMax {
		return writeBuffers(c.socket, pieces)
	}
	for len(pieces) > 0 && err == nil {
		c.out.vec = c.out.vec[:0]
		for _, p := range pieces[:min(len(pieces), maxVec)] {
			if len(p) > 0 {
				c.out.vec = append(c.out.vec, syscall.Iovec{Base: unsafe.SliceData(p)})
				c.out.vec[len(c.out.vec)-1].SetLen(len(p))
			}
		}
		n := 0
		if len(c.out.vec) > 0 {
			c.out.call = syscall.SYS_WRITEV
			n, err = c.writeOnce("writev")
			clear(c.out.vec) // the pieces may be large
		}
		written += int64(n)
		for len(pieces) > 0 && n >= len(pieces[0]) {
			n -= len(pieces[0])
			pieces[0], pieces = nil, pieces[1:]
		}
		if n > 0 {
			pieces[0] = pieces[0][n:]
		}
	}
	return written, err
}

// writeBuffers is a function of its own, because WriteTo moves its receiver to the heap.
func writeBuffers(to net.Conn, pieces net.Buffers) (int64, error) { return pieces.WriteTo(to) }

// writeOnce writes some of what c.out has.
func (c *conn) writeOnce(call string) (int, error) {
	switch err := c.direct.Write(c.out.once); {
	case err != nil:
		return 0, err
	case c.out.errno == 0 && c.out.n == 0:
		return 0, io.ErrUnexpectedEOF // as net does
	case c.out.errno != 0:
		return 0, c.socketError(call, c.out.errno)
	}
	return c.out.n, nil
}

// socketError returns an error as the net package does.
func (c *conn) socketError(call string, errno syscall.Errno) error {
	op := "write"
	if call == "read" {
		op = call
	}
	return &net.OpError{Op: op, Net: c.socket.LocalAddr().Network(), Source: c.socket.LocalAddr(),
		Addr: c.socket.RemoteAddr(), Err: os.NewSyscallError(call, errno)}
}
