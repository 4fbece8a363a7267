package engines

import (
	"context"
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
	conns  map[net.Conn]struct{} // that are open, or were hijacked
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
	s := &Server{URL: "http://" + ln.Addr().String(), conns: make(map[net.Conn]struct{})}
	s.http = &http.Server{
		Handler:           s.tracked(h),
		ReadHeaderTimeout: 10 * time.Second, // a gateway on the same host sends headers at once
		ConnState:         s.connState,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, requestsKey{}, new(atomic.Int64))
		},
	}
	s.serving.Go(func() {
		// It ends with ErrServerClosed; what else could end it shows as refused connections.
		_ = s.http.Serve(ln)
	})
	return s, nil
}

// Close stops listening, closes all connections and waits until the handlers ended.
func (s *Server) Close() error {
	s.dropAll(false)
	err := s.http.Close()
	s.serving.Wait()
	s.handlers.Wait()
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
			_ = c.(*net.TCPConn).SetLinger(0) // RST instead of FIN; fails only on a connection that is closed
		}
		_ = c.Close() // a connection that is already closed is as wanted
	}
}

// connState keeps the open connections.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state == http.StateNew && s.closed:
		_ = c.Close() // nobody has used it
	case state == http.StateNew:
		s.conns[c] = struct{}{}
	case state == http.StateClosed:
		delete(s.conns, c)
	}
}

// tracked waits for handlers and counts the requests of each connection.
func (s *Server) tracked(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.admit() {
			panic(http.ErrAbortHandler) // the connection is closed already
		}
		defer s.handlers.Done()
		r.Context().Value(requestsKey{}).(*atomic.Int64).Add(1)
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

// requestsKey is the key of the number of requests that a connection has carried.
type requestsKey struct{}

// Reused reports whether the connection of a request carried an earlier request. It
// is false for requests to servers that Start did not make.
func Reused(r *http.Request) bool {
	n, ok := r.Context().Value(requestsKey{}).(*atomic.Int64)
	return ok && n.Load() > 1
}
