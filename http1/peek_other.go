//go:build !unix

package http1

// preparePeek has nothing to do where a socket cannot be read without waiting.
func (c *conn) preparePeek() {}

// quiet trusts the connection: one that the worker has closed shows when the
// request is written, and is sent again.
func (c *conn) quiet() bool { return true }
