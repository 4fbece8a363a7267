//go:build unix && (!linux || race)

package http1

import "syscall"

// hasNoInput reports whether the socket is open and has no input. It may read a byte.
func (c *conn) hasNoInput(fd uintptr) bool {
	n, err := syscall.Read(int(fd), c.one[:])
	return n < 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
}
