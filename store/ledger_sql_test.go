package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

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
