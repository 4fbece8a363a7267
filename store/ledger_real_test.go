package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tierway/e2e/backends"
	"tierway/spool"
	"tierway/store"
)

// running runs a ledger until stop.
func running(t *testing.T, l *store.Ledger) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { l.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

// eventually waits until a condition holds.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(limit), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("after %v: %s", limit, what)
		case <-tick.C:
		}
	}
}

func TestLedgerRowsReachTheDatabase(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		l := store.NewLedger(store.LedgerConfig{SQL: s, Retention: time.Hour})
		stop := running(t, l)
		for i := range 3000 {
			l.Add(store.Row{ID: fmt.Sprint(i), At: time.Now(), Tenant: "acme", Outcome: "ok", Output: 2})
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		if got := l.Stats(); got != (spool.Stats{Written: 3000}) {
			t.Errorf("the ledger says %+v", got)
		}
		var requests, output int64
		for _, u := range must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme"}))(t) { // of two days, around midnight
			requests, output = requests+u.Requests, output+u.Output
		}
		if requests != 3000 || output != 6000 {
			t.Errorf("the database says %d requests and %d tokens", requests, output)
		}
	})
}

// RL-11: PostgreSQL is killed during writes. Every row arrives once, within two seconds of its
// return, and the log has one line for the outage and one for its end.
func TestRowsSurviveACrashOfTheDatabase(t *testing.T) {
	server := backends.Postgres(t)
	s := open(t, server.URL)
	migrate(t, s)
	var mu sync.Mutex
	var log bytes.Buffer
	l := store.NewLedger(store.LedgerConfig{SQL: s,
		Log: slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	stop := running(t, l)
	added := int64(0)
	add := func(n int) {
		for range n {
			l.Add(store.Row{ID: fmt.Sprint(added), At: noon, Tenant: "acme", Outcome: "ok"})
			added++
		}
	}
	for _, outage := range []struct{ begin, end func() }{{server.Kill, server.Restart}, {server.Hang, server.Resume}} {
		add(1200)
		outage.begin()
		add(1200)
		eventually(t, 15*time.Second, "the outage is not detected", func() bool { return l.Stats().Err != nil })
		outage.end()
		eventually(t, 2*time.Second, "the rows still wait", func() bool { return l.Stats().Waiting == 0 })
	}
	stop()
	used := must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme"}))(t)
	if len(used) != 1 || used[0].Requests != added || l.Stats().Written != added || l.Stats().Dropped != 0 {
		t.Errorf("of %d rows the database has %+v, the ledger says %+v", added, used, l.Stats())
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "\n"); n != 4 {
		t.Errorf("%d lines tell of two outages:\n%s", n, log.String())
	}
}

// locked is a buffer that several goroutines write to.
type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	before := goleak.IgnoreCurrent()
	for _, d := range databases() {
		s, err := store.OpenSQL(store.SQLConfig{URL: d.url(t)})
		if err != nil {
			t.Fatal(err)
		}
		migrate(t, s)
		l := store.NewLedger(store.LedgerConfig{SQL: s, Retention: time.Hour})
		stop := running(t, l)
		l.Add(store.Row{ID: "1", At: noon})
		stop()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, before)
}
