package store

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"tierway/spool"
)

const (
	ledgerMax   = 100_000 // rows that wait: two minutes of a thousand requests a second, in some 40 MB
	ledgerEvery = time.Second
	// Rows in one transaction: few enough that none takes long, many enough that
	// the cost of a commit is shared.
	ledgerBatch = 500
	// A database that hangs does not answer: a ping that takes longer than this is
	// none, so that the spool's pause and a ping together stay below two seconds.
	pingTimeout = 700 * time.Millisecond
	pruneEvery  = time.Hour
)

// LedgerConfig says where rows go.
type LedgerConfig struct {
	SQL       *SQL
	Log       *slog.Logger  // nil: silent
	Max       int           // rows that wait in memory; 0: 100,000
	Retention time.Duration // rows that are older are deleted; 0: none is
	Recover   Recover       // nil: a panic ends the process
}

// Ledger takes the rows of requests and writes them to SQL in the background. During
// an outage of SQL rows wait in memory; when there are too many the oldest is dropped
// and counted. It is safe for concurrent use.
type Ledger struct {
	*spool.Spool[Row]
	sql       target
	log       *slog.Logger
	retention time.Duration
	recover   Recover
}

// target is where rows go: SQL.
type target interface {
	Ping(ctx context.Context) error
	WriteRows(ctx context.Context, rows []Row) (int, error)
	Prune(ctx context.Context, rowsBefore time.Time) (int64, error)
}

// NewLedger returns a ledger that holds no row. Rows are written by Run and Flush.
func NewLedger(c LedgerConfig) *Ledger {
	return newLedger(c, c.SQL)
}

func newLedger(c LedgerConfig, to target) *Ledger {
	l := &Ledger{sql: to, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), retention: c.Retention,
		recover: c.Recover.orNone()}
	if c.Max <= 0 {
		c.Max = ledgerMax
	}
	l.Spool = spool.New(spool.Config[Row]{Write: l.write, Max: c.Max, Batch: ledgerBatch, Delay: ledgerEvery})
	return l
}

// Run writes rows as they come, deletes old ones once an hour, and returns when
// ctx has ended and what was left is written, or five seconds have passed.
func (l *Ledger) Run(ctx context.Context) {
	var pruning sync.WaitGroup
	pruning.Go(func() { l.prune(ctx) })
	defer pruning.Wait()
	l.Spool.Run(ctx)
	if left := l.Stats().Waiting; left > 0 {
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

// write writes a batch. After a failure it first waits for a ping's answer.
func (l *Ledger) write(ctx context.Context, rows []Row) (lost int, err error) {
	before := l.Stats()
	if before.Err != nil {
		err = l.ping(ctx)
	}
	if err == nil {
		lost, err = l.writeBatch(ctx, rows)
	}
	switch {
	case before.Err == nil && err != nil:
		l.log.Debug("rows of the ledger wait in memory: the database does not take them", "rows", before.Waiting, "error", err)
	case before.Err != nil && err == nil:
		l.log.Debug("the database takes rows of the ledger again", "rows", before.Waiting, "dropped", before.Dropped)
	}
	return lost, err
}

func (l *Ledger) ping(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, pingTimeout)
	defer done()
	return l.recover("asking for the ledger's database", func() error { return l.sql.Ping(ctx) })
}

// writeBatch writes rows in one transaction. If the content of a row makes the write
// fail, rows are written one by one, and those that fail are lost: otherwise one row
// would block all that follow.
func (l *Ledger) writeBatch(ctx context.Context, rows []Row) (lost int, err error) {
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
