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

const (
	// changesPage is the maximum number of tenants and keys that ChangesSince reads of a backlog at once: enough that a
	// statement costs nothing beside its rows.
	changesPage = 10_000
	// pageTime ends a page of a slow database, so that a revocation does not wait for it.
	pageTime = 250 * time.Millisecond
)

// Position is how far a gateway has read the directory of a database. The zero value is the beginning.
type Position struct {
	Revision int64 // of the newest change; 0 if nothing was read or changed

	begun bool
	// The newest entry of the audit log at Revision. Another database does not have it.
	auditID   int64
	auditHash string
	// The rows with revisions up to backlog are read page by page, in the order of revision and name, from these on.
	backlog       int64 // -1: none
	tenants, keys rowPosition
}

// rowPosition is the last row of a table that was read.
type rowPosition struct {
	revision int64
	name     string
}

// Whole reports whether all changes up to Revision were read.
func (p *Position) Whole() bool { return p.begun && p.backlog < 0 }

// HasChanged reports whether there is anything to read after p. It reads one row.
func (s *SQL) HasChanged(ctx context.Context, p Position) (bool, error) {
	var number int64
	hash := ""
	err := s.readOne(ctx, "reading the revision", "SELECT number, audit_hash FROM revision", &number, &hash)
	return !p.Whole() || number != p.Revision || hash != p.auditHash, err
}

// Changes are what has changed in the directory since a Position.
type Changes struct {
	tenants.Changes
	Restart   bool       // the earlier tenants and keys are those of another database
	Few       bool       // Admins and Overrides were read
	Admins    []Admin    // all of them
	Overrides []Override // all of them
}

// ChangesSince returns the next changes since p, as of one moment, and the position behind them. If there are many, it
// returns those that may withdraw a right, and at most one page of the others: it must be called again until the
// position is whole. Nothing that it has returned is read again after an error. It gives up when no row has arrived for
// five seconds.
func (s *SQL) ChangesSince(ctx context.Context, p Position) (c Changes, next Position, err error) {
	next = p
	err = s.readSnapshot(ctx, "reading changes of tenants and keys", func(ctx context.Context, r *reading) error {
		var now Position
		var pruned int64
		if err := r.QueryRowContext(ctx, "SELECT number, pruned, audit_id, audit_hash FROM revision").Scan(&now.Revision,
			&pruned, &now.auditID, &now.auditHash); err != nil {
			return err
		}
		same, err := r.continues(ctx, &next, &now)
		same = same && next.Revision >= pruned
		if err != nil {
			return err
		}
		if !same {
			c.Restart = next.begun
			next = Position{begun: true, backlog: now.Revision, tenants: rowPosition{revision: -1},
				keys: rowPosition{revision: -1}}
		}
		if !same || now.Revision != next.Revision {
			if err := r.readFew(ctx, &c); err != nil {
				return err
			}
		}
		if same && now.Revision != next.Revision {
			if err := r.readRecent(ctx, &c, &next, now.Revision); err != nil {
				return err
			}
		}
		next.Revision, next.auditID, next.auditHash = now.Revision, now.auditID, now.auditHash
		return r.readBacklog(ctx, &c, &next)
	})
	if err != nil {
		return Changes{}, p, err
	}
	return c, next, nil
}

// continues reports whether the database at now is the one of the position p: no older state of it, and no other one.
func (r *reading) continues(ctx context.Context, p, now *Position) (bool, error) {
	switch {
	case !p.begun || now.Revision < p.Revision || now.auditID < p.auditID:
		return false, nil
	case p.auditID == 0:
		return p.Revision == now.Revision, nil
	case p.auditID == now.auditID:
		return p.auditHash == now.auditHash, nil
	}
	hash := ""
	entries, err := collect(ctx, r, func(text *string) []column { return []column{textColumn("hash", text)} },
		"FROM audit WHERE id = $1", p.auditID)
	for _, entry := range entries {
		hash = entry
	}
	return hash == p.auditHash, err
}

// readFew reads what a company has little of.
func (r *reading) readFew(ctx context.Context, c *Changes) error {
	c.Few = true
	return r.readSmallTables(ctx, &c.Admins, &c.Overrides)
}

// readRecent reads the changes after p up to revision. If they are more than a page, or a slow database takes longer
// than one may, it reads those that may withdraw a right, and adds all to the backlog.
func (r *reading) readRecent(ctx context.Context, c *Changes, p *Position, revision int64) error {
	gone, err := collect(ctx, r, func(d *deletion) []column {
		return []column{textColumn("tenant", &d.tenant), textColumn("key_id", &d.key)}
	}, "FROM deletions WHERE revision > $1", p.Revision)
	for _, d := range gone {
		if d.key != "" {
			c.GoneKeys = append(c.GoneKeys, d.key)
		} else {
			c.GoneTenants = append(c.GoneTenants, d.tenant)
		}
	}
	if err != nil {
		return err
	}
	r.pageEnds = time.Now().Add(pageTime)
	tail := fmt.Sprintf(" WHERE revision > $1 ORDER BY revision LIMIT %d", changesPage+1)
	ts, err := collect(ctx, r, tenantColumns, "FROM tenants"+tail, p.Revision)
	if err != nil {
		return err
	}
	ks, err := collect(ctx, r, keyColumns, "FROM keys"+tail, p.Revision)
	if err != nil {
		return err
	}
	ended := r.pageEnded
	r.pageEnds, r.pageEnded = time.Time{}, false
	if len(ts)+len(ks) <= changesPage && !ended {
		c.Tenants, c.Keys = ts, ks
		return nil
	}
	if p.backlog < 0 {
		p.tenants, p.keys = rowPosition{revision: p.Revision + 1}, rowPosition{revision: p.Revision + 1}
	}
	p.backlog = revision
	if c.Tenants, err = collect(ctx, r, tenantColumns, "FROM tenants WHERE revision > $1 AND disabled = 1",
		p.Revision); err != nil {
		return err
	}
	c.Keys, err = collect(ctx, r, keyColumns, "FROM keys WHERE revision > $1 AND (revoked_at > 0 OR expires_at > 0)",
		p.Revision)
	return err
}

// deletion is the mark of a deleted tenant, or of a key.
type deletion struct{ tenant, key string }

// readBacklog reads the next page of the backlog, if there is one.
func (r *reading) readBacklog(ctx context.Context, c *Changes, p *Position) error {
	if p.backlog < 0 {
		return nil
	}
	r.pageEnds = time.Now().Add(pageTime)
	ts, whole, err := readPage(ctx, r, tenantColumns, "tenants", "name", &p.tenants, p.backlog)
	c.Tenants = append(c.Tenants, ts...)
	if err != nil || !whole {
		return err
	}
	ks, whole, err := readPage(ctx, r, keyColumns, "keys", "id", &p.keys, p.backlog)
	c.Keys = append(c.Keys, ks...)
	if whole {
		p.backlog = -1
	}
	return err
}

// readPage reads the next rows of a table after a position, with revisions up to last, and moves the position. whole
// reports that there are no more.
func readPage[T any](ctx context.Context, r *reading, columns func(*T) []column, table, name string, at *rowPosition,
	last int64) (all []T, whole bool, err error) {
	type row struct {
		value T
		rowPosition
	}
	rows, err := collect(ctx, r, func(row *row) []column {
		return append(columns(&row.value), intColumn("revision", &row.revision), textColumn(name, &row.name))
	}, fmt.Sprintf("FROM %s WHERE (revision, %s) > ($1, $2) AND revision <= $3 ORDER BY revision, %s LIMIT %d",
		table, name, name, changesPage), at.revision, at.name, last)
	all = make([]T, len(rows))
	for i := range rows {
		all[i], *at = rows[i].value, rows[i].rowPosition
	}
	return all, err == nil && len(all) < changesPage && !r.pageEnded, err
}

// PruneDeletions deletes the marks of tenants and keys that were deleted before a time. A gateway that has not read
// them begins again.
func (s *SQL) PruneDeletions(ctx context.Context, before time.Time) error {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	err := s.transact(ctx, func(tx *sql.Tx) error {
		var last sql.NullInt64
		err := tx.QueryRowContext(ctx, fmt.Sprintf(
			"SELECT MAX(revision) FROM (SELECT revision FROM deletions WHERE at < $1 ORDER BY revision LIMIT %d) AS oldest",
			pruneChunk), micros(before)).Scan(&last)
		if err != nil || !last.Valid {
			return err
		}
		if _, err = tx.ExecContext(ctx, "UPDATE revision SET pruned = $1 WHERE pruned < $1", last.Int64); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM deletions WHERE revision <= $1 AND at < $2", last.Int64, micros(before))
		return err
	})
	return s.fail(ctx, "deleting old marks of deleted keys", err)
}

// readSmallTables reads admins and overrides, sorted: a company has few of them.
func (r *reading) readSmallTables(ctx context.Context, admins *[]Admin, overrides *[]Override) error {
	err := cmp.Or(readTable(ctx, r, "admins", admins, adminColumns),
		readTable(ctx, r, "overrides", overrides, overrideColumns))
	*admins = inOrder(*admins, func(a, b *Admin) int { return strings.Compare(a.Name, b.Name) })
	*overrides = inOrder(*overrides, func(a, b *Override) int { return strings.Compare(a.Worker, b.Worker) })
	return err
}
