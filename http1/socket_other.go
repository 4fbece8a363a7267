//go:build !linux || race

package http1

import "net"

// transfer is the reading or the writing side of a socket.
type transfer struct{}

func (c *conn) prepareTransfers() {}

// receive reads once from the socket. The end is io.EOF.
func (c *conn) receive(p []byte) (int, error) { return c.socket.Read(p) }

// receivePage is receive into the empty buffer.
func (c *conn) receivePage() (int, error) { return c.receivePlainly() }

// transmit writes all of p, or returns an error and how much it has written.
func (c *conn) transmit(p []byte) (written int, err error) { return c.socket.Write(p) }

// transmitAll is transmit with several pieces. It consumes them.
func (c *conn) transmitAll(pieces net.Buffers) (written int64, err error) {
	return pieces.WriteTo(c.socket)
}
