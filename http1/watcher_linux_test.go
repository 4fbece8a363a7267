package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// oneConn is a listener that accepts one connection.
type oneConn struct {
	conn  chan net.Conn
	ended chan struct{}
}

func (l oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l oneConn) Close() error {
	select {
	case <-l.ended:
	default:
		close(l.ended)
	}
	return nil
}

func (oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// socketPair returns both ends of a connection of the system.
func socketPair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// TestTheWatcherNoticesClientsThatLeave of a request with a body and without, also while the server waits for the last
// requests. Half of a connection is enough.
func TestTheWatcherNoticesClientsThatLeave(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		leave   func(net.Conn) error
		closing bool
	}{
		"closed":        {simpleGet, net.Conn.Close, false},
		"with a body":   {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", net.Conn.Close, false},
		"half closed":   {simpleGet, func(c net.Conn) error { return c.(*net.UnixConn).CloseWrite() }, false},
		"in a shutdown": {simpleGet, net.Conn.Close, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, served := socketPair(t)
			l := oneConn{make(chan net.Conn, 1), make(chan struct{})}
			l.conn <- served
			begun, cancelled := make(chan bool), make(chan bool, 1)
			s := &Server{Base: context.Background(), HeadTimeout: time.Hour, IdleTimeout: time.Hour,
				Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					begun <- true
					<-r.Context().Done()
					cancelled <- true
				})}
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(l) }()
			write(t, client, c.text)
			<-begun
			if c.closing {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				s.closing.Store(true)
				<-ended
				ended <- http.ErrServerClosed
			}
			if len(cancelled) > 0 {
				t.Fatal("the request is cancelled before its client leaves")
			}
			if err := c.leave(client); err != nil {
				t.Fatal(err)
			}
			<-cancelled
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Serve returned %v", err)
			}
			client.Close()
		})
	}
}

// TestTheWatcherNoticesClientsThatLeaveALaterRequest while it is served, and before the server has read it. The request
// before it is not cancelled.
func TestTheWatcherNoticesClientsThatLeaveALaterRequest(t *testing.T) {
	const second = "GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, early := range map[string]bool{"served": false, "unread": true} {
		t.Run(name, func(t *testing.T) {
			client, served := socketPair(t)
			defer client.Close()
			l := oneConn{make(chan net.Conn, 1), make(chan struct{})}
			l.conn <- served
			begun, release, endings := make(chan string), make(chan bool), make(chan error, 2)
			s := &Server{Base: context.Background(), HeadTimeout: time.Hour, IdleTimeout: time.Hour,
				Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					begun <- r.URL.Path
					if r.URL.Path == "/second" {
						<-r.Context().Done()
					} else {
						<-release
					}
					endings <- r.Context().Err()
				})}
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(l) }()
			leave := func() {
				if err := client.(*net.UnixConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
			}
			write(t, client, simpleGet)
			<-begun
			if early {
				write(t, client, second)
				leave()
				for !clientHasLeft(s) {
					runtime.Gosched()
				}
			}
			release <- true
			if err := <-endings; err != nil {
				t.Errorf("the first request ended with %v", err)
			}
			if !early {
				write(t, client, second)
			}
			if path := <-begun; path != "/second" {
				t.Fatalf("the second request is for %s", path)
			}
			if !early {
				leave()
			}
			if err := <-endings; !errors.Is(err, context.Canceled) {
				t.Errorf("the second request ended with %v", err)
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("Serve returned %v", err)
			}
		})
	}
}

// clientHasLeft reports whether the watcher has seen the client of the only connection leave.
func clientHasLeft(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		return c.clientLeft.Load()
	}
	return false
}
