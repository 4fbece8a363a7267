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

// Server is a handler that listens.
type Server struct {
	URL string // http://127.0.0.1:port

	http    *http.Server
	running sync.WaitGroup // the accept loop, open connections and handlers

	mu    sync.Mutex            // guards conns
	conns map[net.Conn]struct{} // open or hijacked connections
}

// Start serves h on addr, which must be a loopback address; port 0 takes a free one. The caller
// must call Close or Kill.
func Start(h http.Handler, addr string) (*Server, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("starting an engine on %q: %w", addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil,
			fmt.Errorf("starting an engine on %q: simulated engines have no keys and listen on loopback only, as 127.0.0.1:0",
				addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("starting an engine: %w", err)
	}
	return Serve(h, ln), nil
}

// Serve serves h on a listener, which may be one of an in-memory network. The caller must call Close or Kill.
func Serve(h http.Handler, ln net.Listener) *Server {
	s := &Server{URL: "http://" + ln.Addr().String(), conns: make(map[net.Conn]struct{})}
	s.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.running.Add(1) // h may hijack the connection
			defer s.running.Done()
			r.Context().Value(requestsKey{}).(*atomic.Int64).Add(1)
			h.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second, // a gateway on the same host sends headers at once
		ConnState:         s.connState,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, requestsKey{}, new(atomic.Int64))
		},
	}
	s.running.Go(func() {
		// It ends with ErrServerClosed; other failures appear as refused connections.
		_ = s.http.Serve(ln)
	})
	return s
}

// connState tracks the open connections.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.running.Add(1)
		s.conns[c] = struct{}{}
	case http.StateClosed:
		delete(s.conns, c)
		s.running.Done()
	case http.StateHijacked:
		s.running.Done()
	}
}

// Close stops listening, closes all connections and waits until the handlers have ended.
func (s *Server) Close() error {
	err := s.http.Close()
	s.each(func(c net.Conn) { _ = c.Close() }) // hijacked ones; the others are closed
	s.running.Wait()
	return err
}

// Kill ends like a process on a machine that crashed: every connection is reset, unsent data is
// lost, and nothing listens.
func (s *Server) Kill() {
	// RST instead of FIN; fails only on a connection that is closed
	s.each(func(c net.Conn) { _ = c.(interface{ SetLinger(seconds int) error }).SetLinger(0) })
	_ = s.Close() // there is nothing left to fail
}

func (s *Server) each(do func(net.Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		do(c)
	}
}

// requestsKey is the key of the number of requests that a connection has carried.
type requestsKey struct{}

// Reused reports whether the connection of a request carried an earlier request. It
// is false for requests to servers that Start did not make.
func Reused(r *http.Request) bool {
	n, ok := r.Context().Value(requestsKey{}).(*atomic.Int64)
	return ok && n.Load() > 1
}
