//go:build !unix

package http1

// preparePeek does nothing on systems without non-blocking reads of a socket.
func (c *conn) preparePeek() {}

// quiet reports true: if the worker has closed the connection, the write of the request fails and
// the request is sent again.
func (c *conn) quiet() bool { return true }
