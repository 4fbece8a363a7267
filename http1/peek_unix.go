//go:build unix

package http1

import "syscall"

// preparePeek makes quiet ready to be called without allocating.
func (c *conn) preparePeek() {
	if s, ok := c.socket.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.raw, c.peekOnce = raw, c.peek
		}
	}
}

// quiet reports whether an idle connection is still open and has no input. One read that
// does not wait finds out: an end or a reset means that the server has closed it, and
// unrequested bytes could be taken for the answer to the next request. In both cases the
// connection is discarded, so that the byte read is no loss.
func (c *conn) quiet() bool {
	if c.raw == nil {
		return true
	}
	c.empty = false
	err := c.raw.Read(c.peekOnce)
	return err == nil && c.empty
}

func (c *conn) peek(fd uintptr) bool {
	n, err := syscall.Read(int(fd), c.one[:])
	c.empty = n < 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
	return true // never wait
}
