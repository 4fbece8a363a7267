package store_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"tierway/store"
)

// wire connects a store.SQL to a PostgreSQL server and can be cut, as a crash of the server does.
type wire struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// open opens a database through the wire; log may be nil.
func (w *wire) open(t testing.TB, url string, log *slog.Logger) *store.SQL {
	t.Helper()
	s, err := store.OpenSQL(store.SQLConfig{URL: url, Log: log, Dial: w.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

// cut ends all connections, and refuses new ones until mend.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, c := range w.conns {
		_ = c.(*net.TCPConn).CloseWrite() // the server ends its session, and the client reads the end
	}
	w.conns = nil
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}
