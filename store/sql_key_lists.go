package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tierway/tenants"
)

// KeyQuery selects one page of a tenant's keys.
type KeyQuery struct {
	Tenant string // required
	Search string // text in the names of the keys; empty: any name
	After  string // id; the page begins after it
	Limit  int    // maximum number of keys; at least 1
}

// KeyPage returns a page of a tenant's keys by id, also expired and revoked ones, and the number of keys on all pages.
func (s *SQL) KeyPage(ctx context.Context, q KeyQuery) (page []tenants.Key, total int64, err error) {
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	const doing = "reading keys of a tenant"
	contains := "instr(name, $2) > 0"
	if s.kind == kindPostgres {
		contains = "strpos(name, $2) > 0"
	}
	all := "FROM keys WHERE tenant = $1 AND (" + contains + " OR $2 = '')"
	total, err = single(collect(ctx, s.read, func(n *int64) []column {
		return []column{{name: "COUNT(*)", scan: n}}
	}, all, clean(q.Tenant), clean(q.Search)))
	if err != nil {
		return nil, 0, s.fail(ctx, doing, err)
	}
	page, err = collect(ctx, s.read, keyColumns, fmt.Sprintf("%s AND %s > $3 ORDER BY %[2]s LIMIT %d", all, s.idByBytes(),
		q.Limit), clean(q.Tenant), clean(q.Search), clean(q.After))
	return page, total, s.fail(ctx, doing, err)
}

// idByBytes returns the column id, compared by its bytes: the databases collate text differently.
func (s *SQL) idByBytes() string {
	if s.kind == kindPostgres {
		return `id COLLATE "C"`
	}
	return "id"
}

// FirstKeysOf returns the first keys of some tenants by id, also expired and revoked ones: at most the given number of
// each tenant.
func (s *SQL) FirstKeysOf(ctx context.Context, limit int, names ...string) (all []tenants.Key, err error) {
	err = s.eachOfNames(ctx, names, func(ctx context.Context, in string, args []any) error {
		some, err := collect(ctx, s.read, keyColumns, fmt.Sprintf(
			"FROM (SELECT keys.*, ROW_NUMBER() OVER (PARTITION BY tenant ORDER BY %s) AS place FROM keys WHERE tenant IN %s) AS k"+
				" WHERE place <= %d", s.idByBytes(), in, limit), args...)
		all = append(all, some...)
		return err
	})
	return sorted(all, func(k tenants.Key) string { return k.ID }), err
}

// KeyCounts are the keys of a tenant by their state, as tenants.Key.State names it.
type KeyCounts struct {
	Tenant                          string
	Active, Grace, Expired, Revoked int64
	Expiring                        int64     // valid keys that expire soon; they count under Active or Grace too
	LastUsed                        time.Time // the last use of any of the keys, to the minute; zero: never
}

// CountKeys returns the keys of some tenants by their state at now, without tenants that have none. A key that ends
// within soon is expiring.
func (s *SQL) CountKeys(ctx context.Context, now time.Time, soon time.Duration, names ...string) (all []KeyCounts,
	err error) {
	at, end := micros(now), micros(now.Add(soon))
	valid := fmt.Sprintf("revoked_at = 0 AND (expires_at = 0 OR expires_at > %d)", at)
	count := func(condition string, to *int64) column {
		return sumColumn("CASE WHEN "+condition+" THEN 1 ELSE 0 END", to)
	}
	err = s.eachOfNames(ctx, names, func(ctx context.Context, in string, args []any) error {
		some, err := collect(ctx, s.read, func(c *KeyCounts) []column {
			used := timeColumn("MAX(last_used_at)", &c.LastUsed)
			return []column{textColumn("tenant", &c.Tenant), count(valid+" AND replaced_by = ''", &c.Active),
				count(valid+" AND replaced_by <> ''", &c.Grace), count("revoked_at > 0", &c.Revoked),
				count(fmt.Sprintf("revoked_at = 0 AND expires_at > 0 AND expires_at <= %d", at), &c.Expired),
				count(fmt.Sprintf("revoked_at = 0 AND expires_at > %d AND expires_at <= %d", at, end), &c.Expiring), used}
		}, "FROM keys WHERE tenant IN "+in+" GROUP BY tenant", args...)
		all = append(all, some...)
		return err
	})
	return all, err
}

// eachOfNames calls read for some of the names at a time, with the list of their placeholders.
func (s *SQL) eachOfNames(ctx context.Context, names []string,
	read func(ctx context.Context, in string, args []any) error) error {
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	for part := range slices.Chunk(names, namesChunk) {
		args := make([]any, len(part))
		for i, name := range part {
			args[i] = clean(name)
		}
		if err := read(ctx, tuples(1, len(part)), args); err != nil {
			return s.fail(ctx, "reading keys", err)
		}
	}
	return nil
}
