package http1

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxRequestHead is the length in bytes from which a head is left to Fallback. Keys and trace headers need less.
const maxRequestHead = 16 << 10

// errUnusual means that the next request is not usual.
var errUnusual = errors.New("an unusual request")

// servedConn is a client's connection. One goroutine owns it, except for the atomic fields.
type servedConn struct {
	*conn
	server *Server
	cancel context.CancelFunc // ends the context of its requests
	blank  *http.Request      // what its requests have in common, with their context

	// waitsUntil is the Unix time in ns by which a request must begin. It is 0 while one is served, and timedOut after
	// that time or when the server is closing.
	waitsUntil atomic.Int64
	clientLeft atomic.Bool // the client has closed its side

	background backgroundRead
	deadline   time.Time   // for writes; zero without one. It stays set between requests
	broken     bool        // a read of a body has failed: no other request is served
	emptyBytes int         // CR and LF that may precede the next request, as net/http allows after a POST
	header     http.Header // of the answer
	head       []byte      // scratch: the head of an answer, and what leaves with it
	held       []byte      // the part of an answer's body that has not left
}

func newServedConn(s *Server, socket net.Conn, pages *sync.Pool) *servedConn {
	c := &servedConn{conn: newConn(socket, pages), server: s, header: http.Header{}}
	c.blank = &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: socket.RemoteAddr().String()}
	c.waitsUntil.Store(c.opened.Add(s.HeadTimeout).UnixNano())
	return c
}

// serve serves requests until the connection ends or goes to Fallback.
func (c *servedConn) serve() {
	ctx, cancel := context.WithCancel(context.WithValue(c.server.Base, http.LocalAddrContextKey, c.socket.LocalAddr()))
	defer cancel()
	c.cancel, c.blank = cancel, c.blank.WithContext(ctx)
	unwatch := c.server.watcher.add(c)
	given := false
	defer func() {
		if p := recover(); p != nil {
			c.server.OnPanic(p)
		}
		unwatch()
		if !given {
			_ = c.socket.Close()
		}
		c.server.remove(c)
	}()
	for {
		x, err := c.readRequest()
		if errors.Is(err, errUnusual) {
			c.endWait()
			given = true
			unwatch()
			if !c.deadline.IsZero() {
				_ = c.socket.SetWriteDeadline(time.Time{}) // an error shows at the next write too
			}
			c.server.Fallback(&unreadConn{Conn: c.socket, unread: bytes.Clone(c.buf[c.r:c.w])})
			return
		}
		if err != nil || !c.serveRequest(x) {
			return
		}
		if c.r == c.w {
			c.dropBuffer()
		}
		c.waitsUntil.Store(time.Now().Add(c.server.IdleTimeout).UnixNano())
		if c.server.closing.Load() || c.broken {
			return
		}
	}
}

// endWait is called when the first bytes of a request are there. It removes the deadline of closeWaiting.
func (c *servedConn) endWait() {
	if c.waitsUntil.Swap(0) == timedOut {
		c.server.mu.Lock() // closeWaiting sets the deadline under it
		defer c.server.mu.Unlock()
		_ = c.socket.SetReadDeadline(time.Time{}) // an error shows at the next read too
	}
}

// readRequest waits for a request and parses its head. The bytes of an unusual request stay in the buffer.
func (c *servedConn) readRequest() (*served, error) {
	block, err := c.readRequestHead()
	if err != nil {
		return nil, err
	}
	h, ok := parseRequestHead(block)
	if !ok {
		return nil, errUnusual
	}
	c.r += len(block)
	return &served{c: c, head: h, r: *c.blank, length: -1, unread: h.length, arrived: int64(c.w-c.r) >= h.length}, nil
}

// readRequestHead waits for the head of a request. The result has its empty line, and its bytes stay in the buffer.
func (c *servedConn) readRequestHead() ([]byte, error) {
	scan, line, timed := 0, 0, false // offsets from c.r
	for {
		for ; c.emptyBytes > 0 && c.r < c.w && (c.buf[c.r] == '\r' || c.buf[c.r] == '\n'); c.emptyBytes-- {
			c.r++
		}
		in := c.buf[c.r:c.w]
		lf := bytes.IndexByte(in[scan:], '\n')
		if lf < 0 {
			scan = len(in)
			if scan >= maxRequestHead {
				return nil, errUnusual
			}
			if scan > 0 && !timed {
				timed = true
				c.endWait()
				_ = c.socket.SetReadDeadline(time.Now().Add(c.server.HeadTimeout)) // an error shows at the read too
			}
			if err := c.fill(maxRequestHead); err != nil {
				if c.waitsUntil.Load() == timedOut && c.hasInput() {
					c.endWait()
					continue
				}
				return nil, err
			}
			continue
		}
		end := scan + lf
		if end == 0 || in[end-1] != '\r' {
			return nil, errUnusual
		}
		scan = end + 1
		if end != line+1 {
			line = scan
			continue
		}
		c.endWait()
		if timed {
			_ = c.socket.SetReadDeadline(time.Time{}) // an error shows at the next read too
		}
		return in[:scan], nil
	}
}

// serveRequest serves one request, and reports whether the connection may carry another one.
func (c *servedConn) serveRequest(x *served) bool {
	x.head.fill(&x.r)
	if x.r.Body = http.NoBody; x.unread > 0 {
		x.r.Body = x
	} else {
		x.watchClient()
	}
	keep := x.handle() && x.end()
	clear(c.header) // the values may belong to a long head
	if c.emptyBytes = 0; x.head.method == http.MethodPost {
		c.emptyBytes = 4
	}
	return c.background.stop(c.conn) && keep
}

// cancelIfLeft cancels the request in progress if the client has left: it has closed its side, and nothing is unread.
func (c *servedConn) cancelIfLeft() {
	if c.clientLeft.Load() && c.ended() {
		c.cancel()
	}
}

// backgroundRead notices the end of a connection without a watcher: it reads while the client waits for its answer.
type backgroundRead struct {
	done chan struct{} // nil: it does not run
	n    int
	one  [1]byte
}

// start begins to read. onEnd is called if the connection ends.
func (b *backgroundRead) start(socket net.Conn, onEnd func()) {
	done := make(chan struct{})
	b.done = done
	go func() {
		defer close(done)
		var err error
		if b.n, err = socket.Read(b.one[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			onEnd()
		}
	}()
}

// stop ends the read and puts a byte that was read into the buffer. It reports whether there is room.
func (b *backgroundRead) stop(c *conn) bool {
	if b.done == nil {
		return true
	}
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // a closed connection has ended the read
	<-b.done
	b.done = nil
	_ = c.socket.SetReadDeadline(time.Time{}) // an error shows at the next read too
	if b.n == 0 {
		return true
	}
	if c.buf == nil {
		c.takePage()
	}
	if c.w == len(c.buf) {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	if c.w == len(c.buf) {
		return false
	}
	c.buf[c.w] = b.one[0]
	c.w++
	return true
}

// unreadConn is a connection with its first bytes, which were already read.
type unreadConn struct {
	net.Conn
	unread []byte
}

// Read is part of net.Conn.
func (c *unreadConn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// CloseWrite ends the connection for the client's reads, if the connection has this.
func (c *unreadConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}
