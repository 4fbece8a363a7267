package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"tierway/spool"
)

// shelf is a target that keeps rows in memory, can be set to fail, and takes time.
type shelf struct {
	mu     sync.Mutex
	rows   map[string]int // how often each row was written
	order  []string
	batch  int // the largest
	down   error
	takes  time.Duration
	poison string
	pruned []time.Time
	lose   bool        // the next write succeeds, but its result is lost
	bare   atomic.Bool // there is no schema
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

func (s *shelf) hasSchema() bool { return !s.bare.Load() }

func (s *shelf) Ping(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *shelf) WriteRows(ctx context.Context, rows []Row) (int, error) {
	if s.takes > 0 && !wait(ctx, s.takes) {
		return 0, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down != nil:
		return 0, s.down
	case s.bare.Load():
		return 0, errors.New("there is no table")
	}
	for _, r := range rows {
		if r.ID == s.poison {
			return 0, fmt.Errorf("refused: %w", &pgconn.PgError{Code: "22021"})
		}
	}
	if s.rows == nil {
		s.rows = map[string]int{}
	}
	s.batch = max(s.batch, len(rows))
	for _, r := range rows {
		if s.rows[r.ID]++; s.rows[r.ID] == 1 {
			s.order = append(s.order, r.ID)
		}
	}
	if s.lose {
		s.lose = false
		return 0, io.ErrUnexpectedEOF
	}
	return len(rows), nil
}

func (s *shelf) Prune(_ context.Context, before time.Time) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pruned = append(s.pruned, before)
	return 0, nil
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

// started runs a ledger in a bubble; stop ends it and waits.
func started(t *testing.T, l *Ledger) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

func addRows(l *Ledger, from, to int) {
	for i := from; i < to; i++ {
		l.Add(Row{ID: fmt.Sprintf("%06d", i)})
	}
}

func stats(t *testing.T, l *Ledger, want spool.Stats) {
	t.Helper()
	if got := l.Stats(); got != want {
		t.Errorf("the ledger says %+v, want %+v", got, want)
	}
}

func TestARowIsWrittenWithinASecondAndABatchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{}
		l := newLedger(LedgerConfig{}, to)
		defer started(t, l)()
		l.Add(Row{ID: "one"})
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		stats(t, l, spool.Stats{Written: 1})
		addRows(l, 0, 2*ledgerBatch)
		synctest.Wait()
		if got := l.Stats().Written; got < ledgerBatch {
			t.Errorf("%d rows are written before the second is over", got)
		}
		time.Sleep(1001 * time.Millisecond)
		synctest.Wait()
		stats(t, l, spool.Stats{Written: 1 + 2*ledgerBatch})
		if to.batch > ledgerBatch {
			t.Errorf("a batch had %d rows", to.batch)
		}
	})
}

func TestRowsWaitDuringAnOutageAndAreWrittenWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{}
		var log bytes.Buffer
		l := newLedger(LedgerConfig{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
			to)
		stop := started(t, l)
		to.fail(io.EOF)
		for i := range 60 {
			addRows(l, i*100, (i+1)*100)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		stats(t, l, spool.Stats{Waiting: 6000, Err: io.EOF})
		to.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		stats(t, l, spool.Stats{Written: 6000})
		stop()
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("%d lines tell of one outage:\n%s", lines, log.String())
		}
	})
}

// TestRowsWaitForTheSchema, which a database that was down at the start gets later.
func TestRowsWaitForTheSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{}
		to.bare.Store(true)
		l := newLedger(LedgerConfig{}, to)
		stop := started(t, l)
		addRows(l, 0, 10)
		time.Sleep(time.Minute)
		if s := l.Stats(); s.Waiting != 10 || !errors.Is(s.Err, errUnmigrated) || !Unreachable(s.Err) {
			t.Errorf("without a schema: %+v", s)
		}
		to.bare.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		stats(t, l, spool.Stats{Written: 10})
		stop()
	})
}

func TestOldestRowsAreDroppedWhenTooManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{down: io.EOF}
		l := newLedger(LedgerConfig{Max: 1000}, to)
		stop := started(t, l)
		addRows(l, 0, 1300)
		time.Sleep(5 * time.Second)
		stats(t, l, spool.Stats{Waiting: 1000, Dropped: 300, Err: io.EOF})
		to.fail(nil)
		stop()
		stats(t, l, spool.Stats{Written: 1000, Dropped: 300})
		if to.order[0] != "000300" || to.order[999] != "001299" {
			t.Errorf("written are %s to %s", to.order[0], to.order[999])
		}
	})
}

func TestRowDroppedWhileItIsWrittenIsNotCountedAsLost(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			to := &shelf{takes: time.Second}
			l := newLedger(LedgerConfig{Max: 10}, to)
			addRows(l, 0, 10)
			done := make(chan error)
			go func() { done <- l.Flush(t.Context()) }()
			synctest.Wait()
			addRows(l, 10, 14)
			if fails {
				to.fail(io.EOF)
			}
			if err := <-done; (err != nil) != fails {
				t.Fatal(err)
			}
			if fails {
				stats(t, l, spool.Stats{Waiting: 10, Dropped: 4, Err: io.EOF})
			} else {
				stats(t, l, spool.Stats{Waiting: 4, Written: 10})
			}
		})
	}
}

// RL-11: a batch whose result is lost is written again unchanged, so that the database detects it.
func TestBatchWithUnknownResultIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{lose: true}
		l := newLedger(LedgerConfig{}, to)
		stop := started(t, l)
		addRows(l, 0, 700)
		time.Sleep(3 * time.Second)
		stop()
		stats(t, l, spool.Stats{Written: 700})
		if to.count() != 700 || to.rows["000000"] != 2 {
			t.Errorf("%d rows are there, the first came %d times", to.count(), to.rows["000000"])
		}
	})
}

func TestRejectedRowDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{poison: "000003"}
		l := newLedger(LedgerConfig{}, to)
		addRows(l, 0, 10)
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		stats(t, l, spool.Stats{Written: 9, Dropped: 1})
	})
}

func TestRunWritesRemainingRowsForFiveSecondsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{}
		l := newLedger(LedgerConfig{}, to)
		stop := started(t, l)
		addRows(l, 0, 10)
		stop()
		stats(t, l, spool.Stats{Written: 10})

		away := newLedger(LedgerConfig{}, &shelf{down: io.EOF})
		stop = started(t, away)
		addRows(away, 0, 10)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the end took %v", took)
		}
		stats(t, away, spool.Stats{Waiting: 10, Err: io.EOF})
	})
}

func TestOldRowsAreDeletedOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{}
		stop := started(t, newLedger(LedgerConfig{Retention: 24 * time.Hour}, to))
		began := time.Now()
		time.Sleep(150 * time.Minute)
		stop()
		if len(to.pruned) != 3 || !to.pruned[2].Equal(began.Add(2*time.Hour-24*time.Hour)) {
			t.Errorf("pruned before %v", to.pruned)
		}
		never := &shelf{}
		stop = started(t, newLedger(LedgerConfig{}, never))
		time.Sleep(3 * time.Hour)
		stop()
		if len(never.pruned) > 0 {
			t.Error("rows are deleted although nobody asked for it")
		}
	})
}

func TestFlushWaitsNoLongerThanItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(LedgerConfig{}, &shelf{takes: time.Hour})
		l.Add(Row{ID: "one"})
		var slow sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		slow.Go(func() { _ = l.Flush(ctx) })
		synctest.Wait()
		short, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		if err := l.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		cancel()
		slow.Wait()
	})
}

func BenchmarkAddingARow(b *testing.B) {
	l := newLedger(LedgerConfig{}, &shelf{})
	r := Row{ID: "0123456789ab", Tenant: "acme"}
	b.ReportAllocs()
	for b.Loop() {
		l.Add(r)
	}
}
