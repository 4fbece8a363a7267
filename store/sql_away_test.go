package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tierway/store"
)

// planted is a password that no error may contain, with characters that have several encodings.
const planted = "pl4nt3d-s/e c%r?t"

func TestUnreachableSeparatesOutagesFromRefusals(t *testing.T) {
	pg := func(code string) error { return fmt.Errorf("x: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {store.ErrNotFound, false}, {store.ErrConflict, false}, {context.Canceled, false},
		{errors.New("x"), false},
		{context.DeadlineExceeded, true}, {io.ErrUnexpectedEOF, true},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, true}, {&net.DNSError{Err: "no such host", Name: "h"}, true},
		{pg("57P01"), true}, {pg("57P02"), true}, {pg("57P03"), true}, {pg("53300"), true}, {pg("53100"), true},
		{pg("08006"), true},
		{pg("40P01"), true}, {pg("25006"), true}, {pg("57014"), true},
		{pg("23505"), false}, {pg("42601"), false}, {pg("42P01"), false}, {pg("22021"), false}, {pg("28P01"), false},
		{pg("3D000"), false}, {pg("42501"), false}, {pg(""), false},
	} {
		if got := store.Unreachable(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

func TestBusySQLiteFileIsAnOutageAndARefusalIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		address := file(t)
		s, db := open(t, address), raw(t, address)
		migrate(t, s)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO overrides (worker, made_at) VALUES ('w', 1)"); err != nil {
			t.Fatal(err)
		}
		change := func(ctx context.Context) error {
			return s.SetOverride(ctx, actor, store.Override{Worker: "w", Drain: true})
		}
		ctx, done := context.WithTimeout(t.Context(), 1500*time.Microsecond)
		defer done()
		if err := change(ctx); !store.Unreachable(err) {
			t.Errorf("while another writes: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(1500*time.Microsecond, cancel)
		if err := change(ctx); !errors.Is(err, context.Canceled) { // it would be a timeout if it ignored the context
			t.Errorf("while another writes, after the caller has left: %v", err)
		}
		if got := contents(t, s).Overrides; len(got) > 0 { // and readers do not wait
			t.Errorf("what nobody has committed is read: %v", got)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "DROP TABLE overrides"); err != nil {
			t.Fatal(err)
		}
		if err := s.SetOverride(t.Context(), actor, store.Override{Worker: "w", Drain: true}); err == nil ||
			store.Unreachable(err) {
			t.Errorf("without its table: %v", err)
		}
	})
}

// RS-10: a gateway opens an unreachable database. Each call returns Unreachable.
func TestEachCallOnAnUnreachableDatabaseIsAnOutage(t *testing.T) {
	wire := &wire{}
	wire.cut()
	checkUnreachable(t, wire.open(t, "postgres://u:p@127.0.0.1/db?sslmode=disable", nil))
}

func checkUnreachable(t *testing.T, s *store.SQL) {
	t.Helper()
	for what, call := range map[string]func() error{
		"ping":     func() error { return s.Ping(t.Context()) },
		"contents": func() error { _, err := s.Contents(t.Context()); return err },
		"migrate":  func() error { _, err := s.Migrate(t.Context()); return err },
		"a change": func() error { return s.SetOverride(t.Context(), actor, store.Override{Worker: "w", Drain: true}) },
		"rows":     func() error { _, err := s.WriteRows(t.Context(), []store.Row{{ID: "1"}}); return err },
	} {
		if err := call(); !store.Unreachable(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestErrorsDoNotContainThePassword(t *testing.T) {
	user := url.UserPassword("u", planted).String()
	addresses := map[string]string{"nobody there": "postgres://" + user + "@127.0.0.1:1/db",
		"in the query": "postgres://u@127.0.0.1:1/db?" + url.Values{"password": {planted}, "sslmode": {"disable"}}.Encode()}
	if os.Getenv(realPostgres) != "" {
		u, err := url.Parse(schema(t))
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(u.User.Username(), planted)
		addresses["wrong password"] = u.String()
	}
	for what, address := range addresses {
		s := open(t, address)
		_, migrating := s.Migrate(t.Context())
		_, changing := s.CreateTenant(t.Context(), actor, everything("acme"))
		for _, err := range []error{s.Ping(t.Context()), migrating, changing} {
			if err == nil {
				t.Errorf("%s: it works", what)
				continue
			}
			for _, form := range []string{planted, url.QueryEscape(planted), url.PathEscape(planted), user} {
				if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, form) {
					t.Errorf("%s: the password is in %s", what, text)
				}
			}
			if away := store.Unreachable(err); away != (what != "wrong password") {
				t.Errorf("%s: unreachable is %v: %v", what, away, err)
			}
		}
	}
}
