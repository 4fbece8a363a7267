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

// eventually waits until a condition holds, a minute at most.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("after a minute: %s", what)
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

// RL-11: PostgreSQL is lost during writes. Every row arrives once, and the log has one line for the outage and one for
// its end. The ledger's own tests have the times.
func TestRowsSurviveAnOutageOfTheDatabase(t *testing.T) {
	wire := &wire{}
	checkRowsSurvive(t, schema(t), wire, [2]func(){wire.cut, wire.mend}, [2]func(){wire.cut, wire.mend})
}

// TestRealRowsSurviveACrashOfTheDatabase is the same with a server that is killed, and one that hangs.
func TestRealRowsSurviveACrashOfTheDatabase(t *testing.T) {
	backends.InSoak(t)
	server := backends.Postgres(t)
	checkRowsSurvive(t, server.URL, &wire{}, [2]func(){server.Kill, server.Restart}, [2]func(){server.Hang, server.Resume})
}

// checkRowsSurvive writes rows through outages, each of which has a begin and an end.
func checkRowsSurvive(t *testing.T, url string, wire *wire, outages ...[2]func()) {
	t.Helper()
	s := wire.open(t, url, nil)
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
	for _, outage := range outages {
		add(1200)
		outage[0]()
		add(1200)
		eventually(t, "the outage is not detected", func() bool { return l.Stats().Err != nil })
		outage[1]()
		eventually(t, "the rows still wait", func() bool { return l.Stats().Waiting == 0 })
	}
	stop()
	used := must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme"}))(t)
	if len(used) != 1 || used[0].Requests != added || l.Stats().Written != added || l.Stats().Dropped != 0 {
		t.Errorf("of %d rows the database has %+v, the ledger says %+v", added, used, l.Stats())
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "\n"); n != 2*len(outages) {
		t.Errorf("%d lines tell of %d outages:\n%s", n, len(outages), log.String())
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
