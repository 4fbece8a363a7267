package server

import (
	"net"
	"sync"
)

// handedOver is the listener of connections that http1.Server has accepted and does not serve.
type handedOver struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	end   func()
}

func newHandedOver(addr net.Addr) *handedOver {
	h := &handedOver{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	h.end = sync.OnceFunc(func() { close(h.done) })
	return h
}

// serveConn gives a connection to Accept, or closes it if the listener is closed.
func (h *handedOver) serveConn(c net.Conn) {
	select {
	case h.conns <- &otherConn{Conn: c}:
	case <-h.done:
		c.Close()
	}
}

// Accept is part of net.Listener.
func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close is part of net.Listener.
func (h *handedOver) Close() error {
	h.end()
	return nil
}

// Addr is part of net.Listener.
func (h *handedOver) Addr() net.Addr { return h.addr }
