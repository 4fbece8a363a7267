package memnet

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// Conn is one end of a connection. It is safe for concurrent use.
type Conn struct {
	in, out       *pipe
	local, remote net.Addr
	closed        atomic.Bool
	resets        atomic.Bool // Close resets the connection
}

var _ net.Conn = (*Conn)(nil)

// connect returns both ends of a new connection.
func connect(client, server net.Addr) (clientEnd, serverEnd *Conn) {
	up, down := newPipe(), newPipe()
	return &Conn{in: down, out: up, local: client, remote: server},
		&Conn{in: up, out: down, local: server, remote: client}
}

// Read is part of net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.in.readData(b, c.closedErr)
	return n, c.describe("read", err)
}

// Readable reports whether Read would return at once: with data, at the end, or after a reset.
func (c *Conn) Readable() bool {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return len(c.in.data) > 0 || c.in.reset || c.in.ended
}

// Write is part of net.Conn. It returns when the peer can read all of b.
func (c *Conn) Write(b []byte) (int, error) {
	n, err := c.out.writeData(b, c.closedErr)
	return n, c.describe("write", err)
}

// Close is part of net.Conn. The peer reads what was written before, and then io.EOF. After SetLinger(0), the
// peer loses unread bytes, and its reads fail.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return c.describe("close", net.ErrClosed)
	}
	c.out.update(func() {
		c.out.ended = true
		if c.resets.Load() {
			c.out.reset, c.out.data = true, nil
		}
		c.out.written.stop()
	})
	c.in.update(func() {
		c.in.refused, c.in.data = true, nil
		c.in.read.stop()
	})
	return nil
}

// CloseWrite ends the direction to the peer, as net.TCPConn.CloseWrite does. The other direction stays open.
func (c *Conn) CloseWrite() error {
	if c.closed.Load() {
		return c.describe("close", net.ErrClosed)
	}
	c.out.update(func() { c.out.ended = true })
	return nil
}

// SetLinger with 0 makes Close reset the connection, as net.TCPConn.SetLinger does. Other values have no effect.
func (c *Conn) SetLinger(seconds int) error {
	if c.closed.Load() {
		return c.describe("set", net.ErrClosed)
	}
	c.resets.Store(seconds == 0)
	return nil
}

// LocalAddr is part of net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is part of net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline is part of net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline is part of net.Conn. It also applies to a Read that waits.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(c.in, &c.in.read, t) }

// SetWriteDeadline is part of net.Conn. It also applies to a Write that waits.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.out, &c.out.written, t) }

func (c *Conn) setDeadline(p *pipe, d *deadline, t time.Time) error {
	if c.closed.Load() {
		return c.describe("set", net.ErrClosed)
	}
	p.update(func() { d.set(t, func() { p.update(func() {}) }) })
	return nil
}

func (c *Conn) closedErr() error {
	if c.closed.Load() {
		return net.ErrClosed
	}
	return nil
}

// describe returns a failure as package net returns it. io.EOF is no failure.
func (c *Conn) describe(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
