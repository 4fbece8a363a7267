package http1

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sweepInterval is the time between two looks at waiting connections, so a connection may wait longer by this.
	sweepInterval = time.Second
	// longestPoll is the longest time between two looks at the connections during Shutdown.
	longestPoll = 500 * time.Millisecond
	// The pause after a failed accept, for example without a free descriptor, grows from the first to the last.
	firstAcceptPause = 5 * time.Millisecond
	lastAcceptPause  = time.Second
	// timedOut is waitsUntil of a connection that has waited too long. It is closed, unless it has unread bytes.
	timedOut = -1
)

// Server serves usual HTTP/1.1 requests: a known method, a path, at most a Content-Length, and nothing that changes the
// protocol. A connection that begins any other request goes to Fallback, with all bytes of that request. Nothing of the
// request is answered before, so net/http decides each case that is not clear. The fields must not change after Serve.
type Server struct {
	Handler     http.Handler
	Fallback    func(net.Conn)  // starts to serve the rest of a connection
	Base        context.Context //nolint:containedctx // parent of the contexts of all requests
	HeadTimeout time.Duration   // for the head of a request, and for the first byte of a new connection
	IdleTimeout time.Duration   // for the first byte of a later request
	OnPanic     func(p any)     // gets what a request panics with, except for http.ErrAbortHandler

	watcher  watcher
	closing  atomic.Bool
	lastDate atomic.Pointer[dateText]

	mu       sync.Mutex
	open     sync.WaitGroup           // connections; Add is called under mu
	conns    map[*servedConn]struct{} // guarded by mu
	listener net.Listener             // guarded by mu
}

// Serve accepts connections until Shutdown or Close, and then returns http.ErrServerClosed. If the server is already
// closed, it returns at once. Any other error is that of the listener, which is closed in all cases.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close() // Shutdown returns the error
	s.mu.Lock()
	s.conns, s.listener = map[*servedConn]struct{}{}, l
	over := s.closing.Load()
	s.mu.Unlock()
	if over {
		return http.ErrServerClosed
	}
	ended := make(chan struct{})
	go s.sweepUntil(ended)
	defer func() {
		go func() { // the connections need both
			s.open.Wait()
			s.watcher.close()
			close(ended)
		}()
	}()
	pages, pause := newPages(), firstAcceptPause
	for {
		socket, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = firstAcceptPause
			if c := newServedConn(s, socket, pages); s.add(c) {
				go c.serve()
			}
		case s.closing.Load():
			return http.ErrServerClosed
		case errors.As(err, &temporary) && temporary.Temporary():
			time.Sleep(pause)
			pause = min(2*pause, lastAcceptPause)
		default:
			return err
		}
	}
}

// add keeps a new connection. It closes it and returns false if the server is closed.
func (s *Server) add(c *servedConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		_ = c.socket.Close()
		return false
	}
	s.conns[c] = struct{}{}
	s.open.Add(1)
	return true
}

// remove forgets a connection that has ended or has gone to Fallback.
func (s *Server) remove(c *servedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.open.Done()
}

// sweepUntil closes connections that have waited too long for a request, until ended is closed.
func (s *Server) sweepUntil(ended <-chan struct{}) {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			s.closeWaiting(now.UnixNano())
		case <-ended:
			return
		}
	}
}

// closeWaiting ends the wait of the connections that wait for a request until a Unix time in ns, or an earlier one. It
// returns the number of all connections. Their goroutines close and remove them.
func (s *Server) closeWaiting(by int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		until := c.waitsUntil.Load()
		if until > 0 && until <= by && c.waitsUntil.CompareAndSwap(until, timedOut) {
			_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // a closed connection ends without it
		}
	}
	return len(s.conns)
}

// Shutdown closes the listener and all waiting connections, and returns when the requests in progress have ended, or
// with the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.closeListener()
	for poll := time.Millisecond; s.closeWaiting(math.MaxInt64) > 0; poll = min(2*poll, longestPoll) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
	return err
}

// Close closes the listener and all connections.
func (s *Server) Close() error {
	err := s.closeListener()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.socket.Close()
	}
	return err
}

func (s *Server) closeListener() error {
	s.closing.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}
