package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"tierway/tenants"
)

// errStalled ends a read of the directory. Its size does not count: it has no time limit while rows arrive.
var errStalled = fmt.Errorf("the database has sent nothing for %v: %w", usualTimeout, context.DeadlineExceeded)

// Contents returns the data that gateways hold in memory, as of one moment. Without a deadline, it gives up when no row
// has arrived for five seconds; the number of rows does not count.
func (s *SQL) Contents(ctx context.Context) (c Contents, err error) {
	err = s.readSnapshot(ctx, "reading tenants and keys", func(ctx context.Context, r *reading) error {
		return cmp.Or(r.readRevision(ctx, &c),
			readTable(ctx, r, "tenants", &c.Tenants, tenantColumns),
			readTable(ctx, r, "keys", &c.Keys, keyColumns),
			r.readSmallTables(ctx, &c.Admins, &c.Overrides))
	})
	if err != nil {
		return Contents{}, err
	}
	c.Tenants, c.Keys = inOrder(c.Tenants, compareTenants), inOrder(c.Keys, compareKeys)
	return c, nil
}

// The orders of tenants and keys in Contents, by bytes, because databases collate text differently.
func compareTenants(a, b *tenants.Tenant) int { return strings.Compare(a.Name, b.Name) }
func compareKeys(a, b *tenants.Key) int {
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.ID, b.ID))
}

// reading is a consistent snapshot of the database with a time limit that each row begins again.
type reading struct {
	*sql.Tx
	timer *time.Timer
	onRow func()

	pageEnds  time.Time // one row at most is read after it; zero: without an end
	pageEnded bool      // rows may be unread
}

// advance begins the time limit again, for a row.
func (r *reading) advance() {
	r.timer.Reset(usualTimeout)
	r.onRow()
}

// isFull reports whether the page has ended, after a row.
func (r *reading) isFull() bool {
	r.pageEnded = !r.pageEnds.IsZero() && time.Now().After(r.pageEnds)
	return r.pageEnded
}

// readSnapshot runs f on a consistent snapshot of the database. f must only read.
func (s *SQL) readSnapshot(ctx context.Context, doing string, f func(context.Context, *reading) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &reading{onRow: s.onRow, timer: time.AfterFunc(usualTimeout, func() { cancel(errStalled) })}
	defer r.timer.Stop()
	var err error
	r.Tx, err = s.begin(ctx, s.read, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err == nil {
		defer r.Rollback() // it only read
		r.timer.Reset(usualTimeout)
		err = f(ctx, r)
	}
	return s.fail(ctx, doing, err)
}

// readRevision reads the revision, and the id of the newest entry of the audit log.
func (r *reading) readRevision(ctx context.Context, c *Contents) error {
	return r.QueryRowContext(ctx, "SELECT number, audit_id FROM revision").Scan(&c.Revision, &c.Audited)
}
