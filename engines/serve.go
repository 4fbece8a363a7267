package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a handler that listens on the loopback interface.
type Server struct {
	URL string // http://127.0.0.1:port

	http     *http.Server
	serving  sync.WaitGroup
	handlers sync.WaitGroup

	mu     sync.Mutex // guards the two below, and that no handler starts once closed
	closed bool
	conns  map[*trackedConn]struct{}
}

// Start serves h on addr, which must name a loopback address; port 0 takes a free
// one. The caller owes a Close or a Kill.
func Start(h http.Handler, addr string) (*Server, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("starting an engine on %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("starting an engine on %q: simulated engines have no keys and listen on loopback only, as 127.0.0.1:0", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("starting an engine: %w", err)
	}
	s := &Server{URL: "http://" + ln.Addr().String(), conns: make(map[*trackedConn]struct{})}
	s.http = &http.Server{
		Handler:           s.tracked(h),
		ReadHeaderTimeout: 10 * time.Second, // a gateway on the same host sends headers at once
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	s.serving.Go(func() {
		// It ends with ErrServerClosed; what else could end it shows as refused connections.
		_ = s.http.Serve(&trackingListener{Listener: ln, s: s})
	})
	return s, nil
}

// Close stops listening, closes all connections and waits until the handlers ended.
func (s *Server) Close() error {
	s.dropAll(false)
	err := s.http.Close()
	s.serving.Wait()
	s.handlers.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // Kill before Close is no mistake
	}
	return err
}

// Kill ends like a killed process on a machine that crashed: every connection is
// reset, unsent data is lost, and nothing listens.
func (s *Server) Kill() {
	s.dropAll(true)
	_ = s.Close() // there is nothing left to fail
}

func (s *Server) dropAll(reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		if reset {
			_ = c.SetLinger(0) // fails only on a connection that is closed
		}
		_ = c.Conn.Close() // a connection that is already closed is as wanted
	}
}

// tracked waits for handlers and counts the requests of each connection.
func (s *Server) tracked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.admit() {
			panic(http.ErrAbortHandler) // the connection is closed already
		}
		defer s.handlers.Done()
		if c, ok := r.Context().Value(connKey{}).(*trackedConn); ok {
			c.requests.Add(1)
		}
		h.ServeHTTP(w, r)
	})
}

// admit counts a handler unless the server is closed: Close must not begin to wait
// while a first handler is being added.
func (s *Server) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

type connKey struct{}

// trackedConn knows how many requests came over it and leaves its server's list
// when it is closed.
type trackedConn struct {
	net.Conn
	s        *Server
	requests atomic.Int64
}

func (c *trackedConn) Close() error {
	c.s.mu.Lock()
	delete(c.s.conns, c)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// SetLinger is the method of *net.TCPConn: 0 makes Close send RST instead of FIN.
func (c *trackedConn) SetLinger(seconds int) error {
	return c.Conn.(*net.TCPConn).SetLinger(seconds) // the server listens on TCP only
}

// Reused reports whether the connection of a request carried an earlier request. It
// is false for requests to servers that Start did not make.
func Reused(r *http.Request) bool {
	c, ok := r.Context().Value(connKey{}).(*trackedConn)
	return ok && c.requests.Load() > 1
}

type trackingListener struct {
	net.Listener
	s *Server
}

func (l *trackingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, s: l.s}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.s.closed {
		_ = c.Close() // nobody has used it
		return nil, net.ErrClosed
	}
	l.s.conns[t] = struct{}{}
	return t, nil
}
