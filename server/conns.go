package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// plainListener accepts connections whose HTTP/1 requests are followed by a framing.
type plainListener struct{ net.Listener }

// Accept is part of net.Listener.
func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &plainConn{TCPConn: tcp}, nil
	}
	return c, err
}

// plainConn is a client's connection. It is a *net.TCPConn to net/http but for what
// is read from it.
type plainConn struct {
	*net.TCPConn
	framing Framing
}

// Read is part of net.Conn.
func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.framing.Inspect(p[:n])
	return n, err
}

// secureConn is a client's connection of TLS that speaks HTTP/1.
type secureConn struct {
	*tls.Conn
	framing Framing
}

// Read is part of net.Conn.
func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.framing.Inspect(p[:n])
	return n, err
}

// tlsListener completes the handshake of a connection before net/http gets it. Only
// then it is known whether the client speaks HTTP/1, whose requests are followed, or
// HTTP/2, for which net/http needs the *tls.Conn.
type tlsListener struct {
	net.Listener
	config *tls.Config
	keep   func(work string, step func())
	ready  chan acceptance
	done   chan struct{} // closed by end
	end    func()
	owned  sync.WaitGroup
}

// acceptance is what Accept returns.
type acceptance struct {
	conn net.Conn
	err  error
}

// newTLSListener returns a listener that must be closed. keep is Run of a
// Server: handshakes read what strangers send.
func newTLSListener(l net.Listener, config *tls.Config, keep func(string, func())) *tlsListener {
	ctx, cancel := context.WithCancel(context.Background())
	t := &tlsListener{
		Listener: l,
		config:   config.Clone(),
		keep:     keep,
		ready:    make(chan acceptance),
		done:     make(chan struct{}),
	}
	t.end = sync.OnceFunc(func() {
		cancel()
		close(t.done)
	})
	t.owned.Go(func() { t.run(ctx) })
	return t
}

// Accept is part of net.Listener.
func (l *tlsListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close is part of net.Listener. It cuts the connections whose handshakes are under
// way.
func (l *tlsListener) Close() error {
	err := l.Listener.Close()
	l.end()
	l.owned.Wait()
	return err
}

// run accepts connections until the listener is closed, which ends ctx.
func (l *tlsListener) run(ctx context.Context) {
	for {
		c, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.hand(acceptance{err: err}) // net/http waits before it accepts again
		default:
			l.owned.Go(func() { l.keep("a TLS handshake", func() { l.handshake(ctx, c) }) })
		}
	}
}

// handshake completes one handshake. One that fails is left to net/http, which tells
// the client and the log what went wrong.
func (l *tlsListener) handshake(ctx context.Context, c net.Conn) {
	secure := tls.Server(c, l.config)
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	handed := false
	defer func() {
		if !handed {
			c.Close()
		}
	}()
	a := acceptance{conn: secure}
	if secure.HandshakeContext(ctx) == nil && secure.ConnectionState().NegotiatedProtocol != "h2" {
		a.conn = &secureConn{Conn: secure}
	}
	handed = l.hand(a)
}

// hand gives Accept what to return; false when the listener is closed.
func (l *tlsListener) hand(a acceptance) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.done:
		return false
	}
}

// headerTimeout bounds a handshake, and the header of a request: each is one packet
// or two; slower is an attack.
const headerTimeout = 5 * time.Second
