//go:build unix

package http1

import "syscall"

// preparePeek makes quiet ready to be called without allocating.
func (c *conn) preparePeek() {
	if s, ok := c.socket.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw, c.look = raw, c.peek
		}
	}
}

// quiet reports whether an idle connection is still open and has sent nothing.
// It asks the kernel with one read that does not wait: an end or a reset means
// that the worker closed, and bytes that nobody asked for could be taken for
// the answer to the next request. In all these cases the connection is of no
// more use, so that what the read takes is no loss.
func (c *conn) quiet() bool {
	if c.raw == nil {
		return true
	}
	c.silent = false
	err := c.raw.Read(c.look)
	return err == nil && c.silent
}

func (c *conn) peek(fd uintptr) bool {
	n, err := syscall.Read(int(fd), c.one[:])
	c.silent = n < 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
	return true // never wait
}
