package server

import (
	"net"
	"sync"
)

// reservedListener is a listener whose address is taken but not open yet: the system refuses connections,
// so that a proxy sends their requests to another gateway. Accept waits until open is called.
type reservedListener struct {
	addr    net.Addr
	listen  func() (net.Listener, error) // opens the address; called at most once
	release func()                       // gives the address back if listen is not called
	ready   chan struct{}                // closed once the fields below are final, except for inner.Close

	mu    sync.Mutex
	ended bool         // open or Close was called
	inner net.Listener // nil: closed before it was open, or err
	err   error        // of listen
}

// open opens the address. Its error is also that of Accept. After Close it does nothing.
func (l *reservedListener) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return l.err
	}
	l.ended = true
	l.inner, l.err = l.listen()
	close(l.ready)
	return l.err
}

func (l *reservedListener) Accept() (net.Conn, error) {
	<-l.ready
	switch {
	case l.err != nil:
		return nil, l.err
	case l.inner == nil:
		return nil, net.ErrClosed
	}
	return l.inner.Accept()
}

func (l *reservedListener) Addr() net.Addr { return l.addr }

func (l *reservedListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inner != nil {
		return l.inner.Close()
	}
	if !l.ended {
		l.ended = true
		l.release()
		close(l.ready)
	}
	return nil
}
