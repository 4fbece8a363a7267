package store

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"tierway/memnet"
)

// hangingPostgres is a PostgreSQL that answers nothing, or nothing after a login.
type hangingPostgres struct {
	network *memnet.Network
	login   bool
	running sync.WaitGroup
}

const postgresAddress = "127.0.0.1:5432"

// newHangingPostgres starts the server in a bubble.
func newHangingPostgres(t *testing.T, login bool) *hangingPostgres {
	t.Helper()
	h := &hangingPostgres{network: memnet.New(), login: login}
	l, err := h.network.Listen("tcp", postgresAddress)
	if err != nil {
		t.Fatal(err)
	}
	h.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.running.Go(func() { h.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		h.running.Wait()
	})
	return h
}

// serve reads until the client closes the connection.
func (h *hangingPostgres) serve(c net.Conn) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	if h.login {
		b.Send(&pgproto3.AuthenticationOk{})
		b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		if b.Flush() != nil {
			return
		}
	}
	for {
		if _, err := b.Receive(); err != nil {
			return
		}
	}
}

// A call ends with its context. Without a deadline it ends after five seconds, or three if there is no connection yet.
func TestHangingDatabaseDelaysNoCallForLong(t *testing.T) {
	for name, c := range map[string]struct {
		login bool
		limit time.Duration // of the context; 0: none
		want  time.Duration
	}{
		"connecting":                  {false, 0, postgresConnect},
		"connecting, with a deadline": {false, 200 * time.Millisecond, 200 * time.Millisecond},
		"a query":                     {true, 0, usualTimeout},
		"a query with a deadline":     {true, 200 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHangingPostgres(t, c.login)
				s, err := OpenSQL(SQLConfig{URL: "postgres://u:p@" + postgresAddress + "/db?sslmode=disable", Dial: h.network.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for what, call := range map[string]func(context.Context) error{
					"contents": func(ctx context.Context) error { _, err := s.Contents(ctx); return err },
					"a change": func(ctx context.Context) error {
						return s.SetOverride(ctx, Actor{}, Override{Worker: "w", Drain: true})
					},
					"rows": func(ctx context.Context) error { _, err := s.WriteRows(ctx, []Row{{ID: "1"}}); return err },
					"ping": s.Ping,
				} {
					ctx := t.Context()
					if c.limit > 0 {
						var done context.CancelFunc
						ctx, done = context.WithTimeout(ctx, c.limit)
						defer done()
					}
					began := time.Now()
					err := call(ctx)
					if took := time.Since(began); took != c.want || !Unreachable(err) {
						t.Errorf("%s took %v, want %v: %v", what, took, c.want, err)
					}
				}
			})
		})
	}
}
