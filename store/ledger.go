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
	ledgerMax = 100_000 // rows in memory: two minutes at 1,000 requests/s, some 40 MB
	// With the delay of the data plane's records, a crash loses at most the rows of a second.
	ledgerEvery = 900 * time.Millisecond
	// Rows per transaction: few enough to keep it short, many enough to share the cost of a commit.
	ledgerBatch = 500
	// A ping that takes longer counts as failed. The spool's pause and a ping together stay below
	// two seconds.
	pingTimeout = 700 * time.Millisecond
	pruneEvery  = time.Hour
)

// LedgerConfig configures a Ledger.
type LedgerConfig struct {
	SQL       *SQL
	Log       *slog.Logger  // nil: no log
	Max       int           // rows that wait in memory; 0: 100,000
	Retention time.Duration // age at which rows are deleted; 0: never
	Recover   Recover       // nil: a panic ends the process
	// SpillDir keeps the rows that are not written when Run ends, until the next Run; empty: they are lost.
	SpillDir string
}

// Ledger writes the rows of requests to SQL in the background. During an outage of SQL the rows
// wait in memory, and over a restart in a file. If there are too many, the oldest is dropped and counted. It is safe
// for concurrent use.
type Ledger struct {
	*spool.Spool[Row]
	sql       target
	log       *slog.Logger
	retention time.Duration
	recover   Recover
	dir       string // LedgerConfig.SpillDir
	database  string // SQL.id; empty without SQL
}

// target is the database that rows are written to: SQL.
type target interface {
	hasSchema() bool
	Ping(ctx context.Context) error
	WriteRows(ctx context.Context, rows []Row) (int, error)
	Prune(ctx context.Context, rowsBefore time.Time) (int64, error)
}

// NewLedger returns an empty ledger. Run and Flush write its rows.
func NewLedger(c LedgerConfig) *Ledger {
	return newLedger(c, c.SQL)
}

func newLedger(c LedgerConfig, to target) *Ledger {
	l := &Ledger{sql: to, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), retention: c.Retention,
		recover: c.Recover.orNone(), dir: c.SpillDir}
	if c.SQL != nil {
		l.database = c.SQL.id
	}
	if c.Max <= 0 {
		c.Max = ledgerMax
	}
	l.Spool = spool.New(spool.Config[Row]{Write: l.write, Max: c.Max, Batch: ledgerBatch, Delay: ledgerEvery})
	return l
}

// Run writes rows, first those of an earlier process, and deletes old ones once an hour. When ctx ends, it writes the
// remaining rows for at most five seconds, spills the rest to SpillDir and returns.
func (l *Ledger) Run(ctx context.Context) {
	var pruning sync.WaitGroup
	pruning.Go(func() {
		l.writeSpilled(ctx) // before old rows are deleted: a deleted row would count again
		l.prune(ctx)
	})
	defer pruning.Wait()
	l.Spool.Run(ctx)
	l.spillRows()
}

// prune deletes old rows at once and then every hour.
func (l *Ledger) prune(ctx context.Context) {
	for l.retention > 0 {
		var n int64
		err := l.recover("deleting old rows of the ledger", func() (err error) {
			n, err = l.sql.Prune(ctx, time.Now().Add(-l.retention))
			return err
		})
		switch {
		case err != nil && ctx.Err() == nil:
			l.log.Warn("old ledger rows not deleted; trying again in an hour", "cause", err)
		case n > 0:
			l.log.Info("old ledger rows deleted", "rows", n)
		}
		if !wait(ctx, pruneEvery) {
			return
		}
	}
}

// write writes a batch. After a failure it first waits for a successful ping.
func (l *Ledger) write(ctx context.Context, rows []Row) (lost int, err error) {
	before := l.Stats()
	switch {
	case !l.sql.hasSchema():
		err = errUnmigrated
	case before.Err != nil:
		err = l.ping(ctx)
	}
	if err == nil {
		lost, err = l.writeBatch(ctx, rows)
	}
	switch {
	case before.Err == nil && err != nil:
		l.log.Debug("ledger rows wait in memory; the database does not accept them", "rows", before.Waiting, "cause", err)
	case before.Err != nil && err == nil:
		l.log.Debug("the database accepts ledger rows again", "rows", before.Waiting, "dropped", before.Dropped)
	}
	return lost, err
}

func (l *Ledger) ping(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, pingTimeout)
	defer done()
	return l.recover("pinging the ledger's database", func() error { return l.sql.Ping(ctx) })
}

// writeBatch writes rows in one transaction. If the contents of a row make it fail, it writes the
// rows one by one and drops those that fail. Otherwise one row would block all that follow.
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
			l.log.Error("ledger row lost; its contents cannot be written", "id", r.ID, "cause", err)
		default:
			return 0, err // all are retried; rows that are already stored do not count twice
		}
	}
	return lost, nil
}

// writeRows writes rows in one transaction. bad reports that their contents made it fail: the
// database rejected them, or writing them panicked.
func (l *Ledger) writeRows(ctx context.Context, rows []Row) (bad bool, err error) {
	ended := false
	err = l.recover("writing rows of the ledger", func() error {
		_, err := l.sql.WriteRows(ctx, rows)
		ended = true
		return err
	})
	return err != nil && (!ended || poisoned(err)), err
}
