package memnet

import (
	"context"
	"net"
	"slices"
	"sync"
)

// backlog is the number of connections that a listener keeps open before they are accepted, as uvicorn
// sets it. A frozen process accepts none, and its clients still connect.
const backlog = 2048

// listener is a listener of a Network.
type listener struct {
	addr   *net.TCPAddr
	remove func() // from its network

	mu      sync.Mutex // guards the rest
	changed sync.Cond  // its L is mu
	waiting []*Conn    // connected and not yet accepted
	closed  bool
}

func newListener(addr *net.TCPAddr, remove func()) *listener {
	l := &listener{addr: addr, remove: remove}
	l.changed.L = &l.mu
	return l
}

// enqueue adds a connection to the backlog. If the backlog is full, enqueue waits until ctx ends. It returns
// net.ErrClosed if the listener is closed.
func (l *listener) enqueue(ctx context.Context, c *Conn) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) >= backlog && !l.closed {
		defer context.AfterFunc(ctx, l.wake)()
	}
	for len(l.waiting) >= backlog && !l.closed {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.changed.Wait()
	}
	if l.closed {
		return net.ErrClosed
	}
	l.waiting = append(l.waiting, c)
	l.changed.Broadcast()
	return nil
}

func (l *listener) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.Broadcast()
}

// Accept is part of net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, l.failure("accept")
	}
	c := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.changed.Broadcast()
	return c, nil
}

// Close is part of net.Listener. It also closes the connections that were not accepted.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.failure("close")
	}
	l.closed = true
	l.remove()
	for _, c := range l.waiting {
		c.Close() // nothing else has closed it
	}
	l.waiting = nil
	l.changed.Broadcast()
	return nil
}

// Addr is part of net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) failure(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
}
