package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	ledgerMax   = 100_000 // rows that wait: two minutes of a thousand requests a second, in some 40 MB
	ledgerEvery = time.Second
	// Rows in one transaction: few enough that none takes long, many enough that
	// the cost of a commit is shared.
	ledgerBatch = 500
	// While the database is away it is asked again after the first pause, then
	// after twice that, up to the last: short enough that rows go out within two
	// seconds of its return.
	firstPause = 100 * time.Millisecond
	lastPause  = 800 * time.Millisecond
	// A database that hangs does not answer: a ping that takes longer than this is
	// none, so that pause and ping together stay below two seconds.
	pingTimeout = 700 * time.Millisecond
	// What is left when the gateway ends is written for as long as this.
	lastFlush  = 5 * time.Second
	pruneEvery = time.Hour
)

// LedgerConfig says where rows go.
type LedgerConfig struct {
	SQL       *SQL
	Log       *slog.Logger                              // nil: silent
	Max       int                                       // rows that wait in memory; 0: 100,000
	Every     time.Duration                             // how long a row waits to be written; 0: 1 s
	Retention time.Duration                             // rows that are older are deleted; 0: none is
	OnState   func(spooled int, written, dropped int64) // called after each attempt to write; may be nil
	Recover   Recover                                   // nil: a panic ends the process
}

// Ledger takes the rows of requests and writes them to SQL behind their backs.
// While SQL is away rows wait in memory; when there are too many the oldest is
// dropped and counted. It is safe for concurrent use.
type Ledger struct {
	sql       target
	log       *slog.Logger
	every     time.Duration
	retention time.Duration
	onState   func(spooled int, written, dropped int64)
	recover   Recover
	full      chan struct{} // a batch is there
	turn      chan struct{} // holds one value; who has taken it may write

	mu      sync.Mutex // guards what follows
	ring    []*Row     // rows first, first+1, … of all that were ever added, at their number modulo its length
	first   int64
	next    int64
	writing int64 // rows below it are being written
	doomed  int64 // rows that were dropped while they were being written
	written int64
	dropped int64
	err     error // of the last attempt to write
}

// target is where rows go: SQL.
type target interface {
	Ping(ctx context.Context) error
	WriteRows(ctx context.Context, rows []Row) (int, error)
	Prune(ctx context.Context, rowsBefore time.Time) (int64, error)
}

// LedgerStats is what a ledger has done so far.
type LedgerStats struct {
	Spooled int   // rows that wait
	Written int64 // rows that the database has, those that it had already too
	Dropped int64 // rows that are lost
	Err     error // of the last attempt to write; nil if the database took the rows
}

// NewLedger returns a ledger that holds no row. Rows are written by Run and Flush.
func NewLedger(c LedgerConfig) *Ledger {
	return newLedger(c, c.SQL)
}

func newLedger(c LedgerConfig, to target) *Ledger {
	l := &Ledger{sql: to, log: c.Log, every: c.Every, retention: c.Retention, onState: c.OnState,
		recover: c.Recover.orNone(),
		full:    make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if c.Max <= 0 {
		c.Max = ledgerMax
	}
	if l.every <= 0 {
		l.every = ledgerEvery
	}
	l.ring = make([]*Row, c.Max)
	l.turn <- struct{}{}
	return l
}

// Add takes a row. It never waits for the database; when as many rows wait as may,
// the oldest is dropped.
func (l *Ledger) Add(r Row) {
	row := &r
	l.mu.Lock()
	if l.next-l.first == int64(len(l.ring)) {
		if l.first < l.writing {
			l.doomed++ // whether it is lost is known when the write has ended
		} else {
			l.dropped++
		}
		l.first++
	}
	l.ring[l.next%int64(len(l.ring))] = row
	l.next++
	batch := l.next-max(l.first, l.writing) >= ledgerBatch && l.err == nil
	l.mu.Unlock()
	if batch {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// Stats returns what the ledger has done so far.
func (l *Ledger) Stats() LedgerStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LedgerStats{Spooled: int(l.next - l.first), Written: l.written, Dropped: l.dropped, Err: l.err}
}

// Run writes rows as they come, deletes old ones once an hour, and returns when
// ctx has ended and what was left is written, or five seconds have passed.
func (l *Ledger) Run(ctx context.Context) {
	var pruning sync.WaitGroup
	pruning.Go(func() { l.prune(ctx) })
	defer pruning.Wait()
	pause := time.Duration(0)
	for {
		wait := l.every
		if pause > 0 {
			wait = pause
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			l.end(ctx)
			return
		case <-l.full:
		case <-timer.C:
		}
		timer.Stop()
		if err := l.attempt(ctx); err != nil {
			pause = min(max(firstPause, 2*pause), lastPause)
		} else {
			pause = 0
		}
	}
}

// attempt writes all rows. After a failure it first waits for a ping's answer.
func (l *Ledger) attempt(ctx context.Context) error {
	return l.recover("writing the ledger", func() error {
		if l.Stats().Err != nil {
			ping, done := context.WithTimeout(ctx, pingTimeout)
			defer done()
			if err := l.sql.Ping(ping); err != nil {
				return err
			}
		}
		return l.Flush(ctx)
	})
}

// end writes what is left, for a bounded time.
func (l *Ledger) end(ctx context.Context) {
	last, done := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer done()
	for l.attempt(last) != nil && wait(last, firstPause) {
	}
	if left := l.Stats().Spooled; left > 0 {
		l.log.Error("rows of the ledger are lost: the database was away to the end", "rows", left)
	}
}

// prune deletes old rows, at once and then every hour.
func (l *Ledger) prune(ctx context.Context) {
	for l.retention > 0 {
		var n int64
		err := l.recover("deleting old rows of the ledger", func() (err error) {
			n, err = l.sql.Prune(ctx, time.Now().Add(-l.retention))
			return err
		})
		switch {
		case err != nil && ctx.Err() == nil:
			l.log.Warn("old rows of the ledger stay until the next hour", "error", err)
		case n > 0:
			l.log.Info("old rows of the ledger are deleted", "rows", n)
		}
		if !wait(ctx, pruneEvery) {
			return
		}
	}
}

// Flush writes the rows that wait when it is called. After an error the rest waits
// on.
func (l *Ledger) Flush(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("writing the ledger: %w", ctx.Err())
	case <-l.turn:
	}
	defer func() { l.turn <- struct{}{} }()
	// Rows that come meanwhile wait for their own turn: else each would be a
	// transaction of its own.
	l.mu.Lock()
	until := l.next
	l.mu.Unlock()
	for {
		rows := l.take(until)
		if len(rows) == 0 {
			return nil
		}
		lost, err := l.write(ctx, rows)
		l.settle(int64(len(rows)), lost, err)
		if err != nil {
			return err
		}
	}
}

// take returns the oldest rows below until, which stay where they are until they
// are written.
func (l *Ledger) take(until int64) []Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(max(until-l.first, 0), ledgerBatch)
	rows := make([]Row, n)
	for i := range n {
		rows[i] = *l.ring[(l.first+i)%int64(len(l.ring))]
	}
	l.writing = l.first + n
	return rows
}

// write writes a batch. If the content of a row makes the write fail, rows are
// written one by one, and those that fail are lost: otherwise one row would block
// all that follow.
func (l *Ledger) write(ctx context.Context, rows []Row) (lost int64, err error) {
	bad, err := l.writeRows(ctx, rows)
	if !bad {
		return 0, err
	}
	for _, r := range rows {
		bad, err := l.writeRows(ctx, []Row{r})
		switch {
		case err == nil:
		case bad:
			lost++
			l.log.Error("a row of the ledger is lost: its content cannot be written", "id", r.ID, "error", err)
		default:
			return 0, err // all of them again: what is there already counts for nothing
		}
	}
	return lost, nil
}

// writeRows writes rows in one transaction. bad tells that what they hold made it
// fail: the database refused it, or writing it panicked.
func (l *Ledger) writeRows(ctx context.Context, rows []Row) (bad bool, err error) {
	ended := false
	err = l.recover("writing rows of the ledger", func() error {
		_, err := l.sql.WriteRows(ctx, rows)
		ended = true
		return err
	})
	return err != nil && (!ended || poisoned(err)), err
}

// settle books what has become of n rows that were taken.
func (l *Ledger) settle(n, lost int64, err error) {
	l.mu.Lock()
	if err == nil {
		// Rows that made room while they were being written are written all the same.
		for ; l.first < l.writing; l.first++ {
			l.ring[l.first%int64(len(l.ring))] = nil
		}
		l.written += n - lost
		l.dropped += lost
	} else {
		l.dropped += l.doomed
	}
	l.doomed, l.writing = 0, 0
	turned := (l.err != nil) != (err != nil)
	l.err = err
	spooled, written, dropped := int(l.next-l.first), l.written, l.dropped
	l.mu.Unlock()
	switch {
	case turned && err != nil:
		l.log.Debug("rows of the ledger wait in memory: the database does not take them", "rows", spooled, "error", err)
	case turned:
		l.log.Debug("the database takes rows of the ledger again", "rows", spooled, "dropped", dropped)
	}
	if l.onState != nil {
		l.onState(spooled, written, dropped)
	}
}
