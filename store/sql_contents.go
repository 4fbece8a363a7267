package store

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tierway/tenants"
)

const (
	// maxChanges is the number of tenants and keys up to which ContentsSince reads them one by one. Beyond it, reading
	// everything is cheaper.
	maxChanges = 5000
	// idChunk is the number of ids in one query: SQLite's driver searches a list for each parameter.
	idChunk = 200
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
			r.readSmallTables(ctx, &c))
	})
	if err != nil {
		return Contents{}, err
	}
	c.Tenants, c.Keys = inOrder(c.Tenants, compareTenants), inOrder(c.Keys, compareKeys)
	return c, nil
}

// ContentsSince returns before with the changes since it was read, as of one moment. The audit log names the rows that
// have changed, and only these are read. whole reports that nothing is missing. Otherwise before was not read from this
// database, or too much has changed; the result then has before's revision and at least each change that withdraws a
// right. before stays unchanged.
func (s *SQL) ContentsSince(ctx context.Context, before Contents) (c Contents, whole bool, err error) {
	c = before
	err = s.readSnapshot(ctx, "reading changes of tenants and keys", func(ctx context.Context, r *reading) error {
		var now Contents
		if err := r.readRevision(ctx, &now); err != nil {
			return err
		}
		if now.Revision == before.Revision {
			whole = true
			return nil
		}
		changes, err := r.changesSince(ctx, before.Audited)
		if err != nil {
			return err
		}
		touched := touchedBy(changes, false)
		if whole = now.Revision-before.Revision == int64(len(changes)) && touched.size() <= maxChanges; !whole {
			touched = touchedBy(changes, true)
			now.Revision, now.Audited = before.Revision, before.Audited
		}
		if err := cmp.Or(r.readSmallTables(ctx, &now), r.readTouched(ctx, &touched)); err != nil {
			return err
		}
		r.timer.Stop() // the rest waits for nothing
		now.Tenants = replaced(before.Tenants, touched.tenantRows, compareTenants,
			func(t *tenants.Tenant) bool { return touched.tenants[t.Name] })
		now.Keys = replaced(before.Keys, touched.keyRows, compareKeys,
			func(k *tenants.Key) bool { return touched.keys[k.ID] || touched.emptied[k.Tenant] })
		c = now
		return nil
	})
	if err != nil {
		return before, false, err
	}
	return c, whole, nil
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
}

// advance begins the time limit again, for a row.
func (r *reading) advance() {
	r.timer.Reset(usualTimeout)
	r.onRow()
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

// readSmallTables reads admins and overrides: a company has few of them.
func (r *reading) readSmallTables(ctx context.Context, c *Contents) error {
	err := cmp.Or(readTable(ctx, r, "admins", &c.Admins, adminColumns),
		readTable(ctx, r, "overrides", &c.Overrides, overrideColumns))
	c.Admins = inOrder(c.Admins, func(a, b *Admin) int { return strings.Compare(a.Name, b.Name) })
	c.Overrides = inOrder(c.Overrides, func(a, b *Override) int { return strings.Compare(a.Worker, b.Worker) })
	return err
}

// withdraws has the actions of the audit log that change the revision. Its values report whether an action may withdraw
// a right.
func withdraws() map[string]bool {
	return map[string]bool{
		"tenant.create": false, "tenant.update": true, "tenant.delete": true,
		"key.create": false, "key.update": true, "key.rotate": true, "key.revoke": true,
		"admin.create": false, "admin.bootstrap": false, "admin.delete": true,
		"worker.override": false, "worker.override.clear": false,
	}
}

// directoryChange is an entry of the audit log that has changed the revision.
type directoryChange struct{ action, target string }

// changesSince returns the changes of the revision after an entry of the audit log.
func (r *reading) changesSince(ctx context.Context, id int64) ([]directoryChange, error) {
	all, err := collect(ctx, r, func(c *directoryChange) []column {
		return []column{textColumn("action", &c.action), textColumn("target", &c.target)}
	}, "FROM audit WHERE id > $1", id)
	known := withdraws()
	return slices.DeleteFunc(all, func(c directoryChange) bool { _, ok := known[c.action]; return !ok }), err
}

// touched are the tenants and keys that changes name, and their rows as they are now.
type touched struct {
	tenants map[string]bool // by name
	emptied map[string]bool // tenants that were deleted with their keys; they may exist again
	keys    map[string]bool // by id

	tenantRows []tenants.Tenant
	keyRows    []tenants.Key
}

func (t *touched) size() int { return len(t.tenants) + len(t.keys) }

// touchedBy returns the tenants and keys that changes name. With onlyWithdrawn, only those that may have lost a right.
func touchedBy(changes []directoryChange, onlyWithdrawn bool) touched {
	t := touched{tenants: map[string]bool{}, emptied: map[string]bool{}, keys: map[string]bool{}}
	known := withdraws()
	for _, c := range changes {
		object, _, _ := strings.Cut(c.action, ".")
		switch {
		case onlyWithdrawn && !known[c.action]:
		case object == "tenant":
			t.tenants[c.target] = true
			if c.action == "tenant.delete" {
				t.emptied[c.target] = true
			}
		case object == "key":
			t.keys[c.target] = true
		}
	}
	return t
}

// readTouched reads the rows of the tenants and keys. A rotation names the old key only; the new one is read with it.
func (r *reading) readTouched(ctx context.Context, t *touched) error {
	var err error
	if t.tenantRows, err = readByID(ctx, r, tenantColumns, "FROM tenants WHERE name IN ", t.tenants); err != nil {
		return err
	}
	found := map[string]tenants.Key{}
	for wanted := t.keys; len(wanted) > 0; {
		rows, err := readByID(ctx, r, keyColumns, "FROM keys WHERE id IN ", wanted)
		if err != nil {
			return err
		}
		wanted = map[string]bool{}
		for _, k := range rows {
			found[k.ID] = k
			if k.ReplacedBy != "" && !t.keys[k.ReplacedBy] {
				wanted[k.ReplacedBy] = true
			}
		}
		maps.Copy(t.keys, wanted)
	}
	again, err := readByID(ctx, r, keyColumns, "FROM keys WHERE tenant IN ", t.emptied)
	for _, k := range again {
		found[k.ID] = k
	}
	t.keyRows = slices.Collect(maps.Values(found))
	return err
}

// readByID reads the rows of some ids; tail ends before their list.
func readByID[T any](ctx context.Context, r *reading, columns func(*T) []column, tail string,
	ids map[string]bool) (all []T, err error) {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(ids)), idChunk) {
		args := make([]any, len(part))
		for i, id := range part {
			args[i] = clean(id)
		}
		rows, err := collect(ctx, r, columns, tail+tuples(1, len(part)), args...)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// replaced returns a copy of all without the elements that gone selects, and with fresh. all is sorted, and so is the
// result.
func replaced[T any](all, fresh []T, compare func(a, b *T) int, gone func(*T) bool) []T {
	fresh = inOrder(fresh, compare)
	out := make([]T, 0, len(all)+len(fresh))
	for i := range all {
		for len(fresh) > 0 && compare(&fresh[0], &all[i]) <= 0 {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
		if !gone(&all[i]) {
			out = append(out, all[i])
		}
	}
	return append(out, fresh...)
}
