// Package memredis serves a Redis in memory (miniredis) on a network in memory, for tests in virtual time.
package memredis

import (
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"tierway/memnet"
)

// Server is a Redis at an address of a network.
type Server struct {
	*miniredis.Miniredis
	URL string // redis://host:port

	network  *memnet.Network
	address  string
	mu       sync.Mutex
	listener net.Listener // nil: killed
	accepted []*conn
	hung     bool
}

// Start returns an empty Redis that ends with the test.
func Start(t testing.TB, network *memnet.Network) *Server {
	t.Helper()
	s := &Server{Miniredis: miniredis.NewMiniRedis(), network: network, address: "127.0.0.1:0"}
	first, err := s.Dial() // this starts it without a listener of its own
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	s.Restart(t)
	s.address = s.listener.Addr().String()
	s.URL = "redis://" + s.address
	t.Cleanup(func() {
		s.Kill()
		s.Close()
	})
	return s
}

// Network returns the network of the server.
func (s *Server) Network() *memnet.Network { return s.network }

// Hang delays the replies until Resume or Kill. The server accepts connections and executes commands, as a stopped
// process does later.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = true
}

// Resume ends a hang and sends the delayed replies.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = false
	for _, c := range s.accepted {
		_, _ = c.Conn.Write(c.delayed) // fails if the client has disconnected
		c.delayed = nil
	}
}

// conn is a connection that delays its replies while the server hangs.
type conn struct {
	net.Conn
	server  *Server
	delayed []byte // the server's mu guards it
}

// Write sends a reply, or delays it while the server hangs. A blocked Write would keep miniredis' lock.
func (c *conn) Write(p []byte) (int, error) {
	c.server.mu.Lock()
	hung := c.server.hung
	if hung {
		c.delayed = append(c.delayed, p...)
	}
	c.server.mu.Unlock()
	if hung {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Kill ends all connections and refuses new ones. The data stays.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return
	}
	_ = s.listener.Close()
	for _, c := range s.accepted {
		_ = c.Close()
	}
	s.listener, s.accepted, s.hung = nil, nil, false
}

// Restart accepts connections again after Kill.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	l, err := s.network.Listen("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = l
	go s.serve(l)
}

func (s *Server) serve(l net.Listener) {
	for {
		accepted, err := l.Accept()
		if err != nil {
			return
		}
		c := &conn{Conn: accepted, server: s}
		s.mu.Lock()
		killed := s.listener != l
		s.accepted = append(s.accepted, c)
		s.mu.Unlock()
		if killed {
			_ = c.Close()
			continue
		}
		s.Server().ServeConn(c)
	}
}
