package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"tierway/workers"
)

// plainListener accepts connections without TLS and checks the framing of their HTTP/1 requests.
type plainListener struct{ net.Listener }

func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.(*net.TCPConn); ok {
		return &plainConn{TCPConn: tcp}, nil
	}
	return &otherConn{Conn: c}, nil
}

// otherConn is a client's connection of another kind: one that http1.Server has handed over, or one of a network that a
// test gives.
type otherConn struct {
	net.Conn
	framing Framing
}

// CloseWrite ends the connection for the client's reads, if the connection has this.
func (c *otherConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *otherConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.framing.Inspect(p[:n])
	return n, err
}

// plainConn is a client's connection without TLS. It embeds the *net.TCPConn and changes only Read.
type plainConn struct {
	*net.TCPConn
	framing Framing
}

func (c *plainConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.framing.Inspect(p[:n])
	return n, err
}

// secureConn is a client's TLS connection that speaks HTTP/1.
type secureConn struct {
	*tls.Conn
	framing Framing
}

func (c *secureConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.framing.Inspect(p[:n])
	return n, err
}

// tlsListener completes the handshake of a connection before net/http gets it. The handshake decides
// the protocol: the framing of HTTP/1 requests is checked; for HTTP/2 net/http needs the *tls.Conn.
type tlsListener struct {
	net.Listener
	config *tls.Config
	guard  func(work string, step func()) // runs a step and recovers its panics
	ready  chan acceptance
	done   chan struct{} // closed by end
	end    func()
	owned  sync.WaitGroup
}

type acceptance struct {
	conn net.Conn
	err  error
}

// newTLSListener returns a listener that must be closed. guard is Run of a control.Recoverer: a
// handshake reads untrusted bytes, and its panic must not end the process.
func newTLSListener(l net.Listener, config *tls.Config, guard func(string, func())) *tlsListener {
	ctx, cancel := context.WithCancel(context.Background())
	t := &tlsListener{
		Listener: l,
		config:   config.Clone(),
		guard:    guard,
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

func (l *tlsListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close is part of net.Listener. It cuts connections that are still in their handshake.
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
			l.deliver(acceptance{err: err}) // net/http waits before it accepts again
		default:
			l.owned.Go(func() { l.guard("a TLS handshake", func() { l.handshake(ctx, c) }) })
		}
	}
}

// handshake completes one handshake. After a failed handshake the connection goes to net/http
// all the same, because net/http answers the client and logs the error.
func (l *tlsListener) handshake(ctx context.Context, c net.Conn) {
	secure := tls.Server(c, l.config)
	ctx, cancel := context.WithTimeout(ctx, headerTimeout)
	defer cancel()
	delivered := false
	defer func() {
		if !delivered {
			c.Close()
		}
	}()
	a := acceptance{conn: secure}
	if secure.HandshakeContext(ctx) == nil && secure.ConnectionState().NegotiatedProtocol != "h2" {
		a.conn = &secureConn{Conn: secure}
	}
	delivered = l.deliver(a)
}

// deliver passes a to Accept. It returns false if the listener is closed.
func (l *tlsListener) deliver(a acceptance) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.done:
		return false
	}
}

// headerTimeout limits a handshake and the header of a request. Each needs one or two packets; a
// client that needs longer is treated as an attack.
const headerTimeout = 5 * time.Second

// acceptor is a listener that reports failures to accept a connection. net/http only logs them at
// debug level and retries.
type acceptor struct {
	net.Listener
	plane string
	log   *slog.Logger
	// exhausted counts a failure that comes from a lack of file descriptors or memory.
	exhausted func(operation string, err error)
}

func (l acceptor) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	switch {
	case err == nil, errors.Is(err, net.ErrClosed):
	case workers.OutOfResources(err):
		l.exhausted("accept", err)
	default:
		l.log.Warn("accepting a connection failed", "plane", l.plane, "cause", err.Error())
	}
	return c, err
}
