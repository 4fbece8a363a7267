//go:build !unix

package http1

// preparePeek has nothing to do where a socket cannot be read without waiting.
func (c *conn) preparePeek() {}

// quiet trusts the connection: a request on a closed one is sent again.
func (c *conn) quiet() bool { return true }
