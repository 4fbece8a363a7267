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

// quiet reports whether an idle connection is open and has no input. A non-blocking read detects an
// end or a reset, which means that the server has closed it. It also detects unrequested bytes,
// which could be taken for the next answer. In all these cases the connection is discarded, so the
// byte that was read is no loss.
func (c *conn) quiet() bool {
	if c.raw == nil {
		return true
	}
	c.empty = false
	err := c.raw.Read(c.peekOnce)
	return err == nil && c.empty
}

func (c *conn) peek(fd uintptr) bool {
	c.empty = c.hasNoInput(fd)
	return true // never wait
}
