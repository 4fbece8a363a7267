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
	// A field that a client or an engine may have written is no longer than this.
	fieldMost = 256
	// What one request may have used: far above any context, and low enough that
	// sums of them never overflow, whatever an engine reports.
	tokensMost = 1_000_000_000_000
	moneyMost  = 1_000_000 * tenants.Unit
	// Ledger rows that one transaction deletes: few milliseconds of writing, in
	// which no batch waits for long.
	pruneChunk = 5000
)

func ledgerColumns(r *Row) []column {
	duration, status, attempts := r.DurationMs, int64(r.Status), int64(r.Attempts)
	return []column{
		fieldColumn("id", r.ID), fieldColumn("request_id", r.RequestID), timeColumn("at", &r.At),
		fieldColumn("tenant", r.Tenant), fieldColumn("key_id", r.Key), fieldColumn("class", r.Class), fieldColumn("route", r.Route),
		fieldColumn("tier", r.Tier), fieldColumn("model", r.Model), fieldColumn("worker", r.Worker), fieldColumn("outcome", r.Outcome),
		intColumn("status", &status), fieldColumn("code", r.Code), intColumn("attempts", &attempts),
		intColumn("prompt", &r.Prompt), intColumn("cached", &r.Cached), intColumn("output", &r.Output),
		intColumn("money", &r.Money), boolColumn("estimated", &r.Estimated), intColumn("duration_ms", &duration),
	}
}

// fieldColumn is text that is written and not read back.
func fieldColumn(name, text string) column { return column{name: name, value: field(text)} }

// field returns text as the ledger stores it.
func field(text string) string {
	if len(text) > fieldMost {
		text = text[:fieldMost]
	}
	return clean(text)
}

// group is one group of the roll-up.
type group struct {
	day                               int64
	tenant, key, tier, model, outcome string
}

func compareGroups(a, b group) int {
	return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.key, b.key),
		cmp.Compare(a.tier, b.tier), cmp.Compare(a.model, b.model), cmp.Compare(a.outcome, b.outcome))
}

// sums are the sums of a group.
type sums struct {
	requests, estimated, prompt, cached, output, money int64
}

// WriteRows writes rows to the ledger and adds them to the roll-up, all of them or
// none, and returns how many are new: a row whose ID is there already counts for
// nothing, so that a batch may be written again when nobody knows whether it was.
func (s *SQL) WriteRows(ctx context.Context, rows []Row) (written int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	err = s.transact(ctx, func(tx *sql.Tx) error {
		fresh, err := s.insertRows(ctx, tx, rows)
		if err != nil {
			return err
		}
		total := map[group]sums{}
		for i := range rows {
			r := &rows[i]
			if id := field(r.ID); fresh[id] {
				delete(fresh, id) // the same row twice in one batch counts once
				written++
				add(total, r)
			}
		}
		return s.addUsage(ctx, tx, total)
	})
	if err != nil {
		return 0, s.fail(ctx, fmt.Sprintf("writing %d rows of the ledger", len(rows)), err)
	}
	return written, nil
}

// within brings what an engine has reported into bounds.
func within[T ~int64](n, most T) T { return min(max(n, 0), most) }

// add adds a row to its group.
func add(total map[group]sums, r *Row) {
	at := group{int64(tenants.Day(r.At)), field(r.Tenant), field(r.Key), field(r.Tier), field(r.Model), field(r.Outcome)}
	n := total[at]
	n.requests++
	n.estimated += number(r.Estimated)
	n.prompt += within(r.Prompt, tokensMost)
	n.cached += within(r.Cached, tokensMost)
	n.output += within(r.Output, tokensMost)
	n.money += int64(within(r.Money, moneyMost))
	total[at] = n
}

// insertRows adds rows to the ledger and returns the ids of those that were not
// there.
func (s *SQL) insertRows(ctx context.Context, tx *sql.Tx, rows []Row) (fresh map[string]bool, err error) {
	fresh = make(map[string]bool, len(rows))
	full, err := s.prepareRows(ctx, tx, min(s.chunk, len(rows)))
	if err != nil {
		return nil, err
	}
	defer full.Close() //nolint:errcheck // the transaction tells
	for part := range slices.Chunk(rows, s.chunk) {
		statement := full
		if len(part) < min(s.chunk, len(rows)) {
			if statement, err = s.prepareRows(ctx, tx, len(part)); err != nil {
				return nil, err
			}
			defer statement.Close() //nolint:errcheck // the transaction tells
		}
		var args []any
		for _, r := range part {
			r.Prompt, r.Cached, r.Output = within(r.Prompt, tokensMost), within(r.Cached, tokensMost), within(r.Output, tokensMost)
			r.Money = within(r.Money, moneyMost)
			args = append(args, values(ledgerColumns(&r))...)
		}
		if err := readIDs(ctx, statement, args, fresh); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// prepareRows prepares the statement that adds n rows and returns their ids.
func (s *SQL) prepareRows(ctx context.Context, tx *sql.Tx, n int) (*sql.Stmt, error) {
	columns := ledgerColumns(&Row{})
	return tx.PrepareContext(ctx, "INSERT INTO ledger ("+names(columns)+") VALUES "+tuples(n, len(columns))+" ON CONFLICT (id) DO NOTHING RETURNING id")
}

func readIDs(ctx context.Context, statement *sql.Stmt, args []any, into map[string]bool) error {
	rows, err := statement.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		into[id] = true
	}
	return rows.Err()
}

// addUsage adds sums to the roll-up. Groups are written in one order, so that two
// gateways never wait for each other's.
func (s *SQL) addUsage(ctx context.Context, tx *sql.Tx, total map[group]sums) error {
	const columns = 12
	groups := slices.SortedFunc(maps.Keys(total), compareGroups)
	for part := range slices.Chunk(groups, s.chunk) {
		var args []any
		for _, g := range part {
			n := total[g]
			args = append(args, g.day, g.tenant, g.key, g.tier, g.model, g.outcome, n.requests, n.estimated, n.prompt, n.cached, n.output, n.money)
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO usage (day, tenant, key_id, tier, model, outcome, requests, estimated, prompt, cached, output, money)
			VALUES `+tuples(len(part), columns)+` ON CONFLICT (day, tenant, key_id, tier, model, outcome) DO UPDATE SET
			requests = usage.requests + excluded.requests, estimated = usage.estimated + excluded.estimated,
			prompt = usage.prompt + excluded.prompt, cached = usage.cached + excluded.cached,
			output = usage.output + excluded.output, money = usage.money + excluded.money`, args...); err != nil {
			return err
		}
	}
	return nil
}

// Prune deletes ledger rows of before a time and returns how many; the roll-up
// keeps their sums. It goes on until there is none left or ctx ends.
func (s *SQL) Prune(ctx context.Context, rowsBefore time.Time) (deleted int64, err error) {
	for {
		n, err := s.pruneSome(ctx, rowsBefore)
		deleted += n
		if err != nil || n < pruneChunk {
			return deleted, err
		}
	}
}

func (s *SQL) pruneSome(ctx context.Context, before time.Time) (n int64, err error) {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	err = s.transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM ledger WHERE id IN (SELECT id FROM ledger WHERE id < $1 AND at < $2 ORDER BY id LIMIT %d)", pruneChunk),
			idFrom(before), micros(before))
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, s.fail(ctx, "deleting old rows of the ledger", err)
}

// idFrom returns the lowest id that a row of a time can have: its milliseconds, as
// a UUID of version 7 begins.
func idFrom(at time.Time) string {
	ms := fmt.Sprintf("%012x", max(0, at.UnixMilli()))
	return ms[:8] + "-" + ms[8:]
}

// Spent returns what tenants and keys have used of the UTC day and month that a
// time is in, sorted by tenant and key.
func (s *SQL) Spent(ctx context.Context, at time.Time) ([]SpentRow, error) {
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	at = at.UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	rows, err := s.read.QueryContext(ctx, `SELECT tenant, key_id,
		CAST(SUM(CASE WHEN day = $1 THEN prompt + output ELSE 0 END) AS BIGINT), CAST(SUM(CASE WHEN day = $1 THEN money ELSE 0 END) AS BIGINT),
		CAST(SUM(prompt + output) AS BIGINT), CAST(SUM(money) AS BIGINT)
		FROM usage WHERE day >= $2 AND day < $3 GROUP BY tenant, key_id`,
		int64(tenants.Day(at)), int64(tenants.Day(first)), int64(tenants.Day(first.AddDate(0, 1, 0))))
	if err != nil {
		return nil, s.fail(ctx, "reading what is spent", err)
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	whole := map[string]*SpentRow{}
	var all []SpentRow
	for rows.Next() {
		var r SpentRow
		if err := rows.Scan(&r.Tenant, &r.Key, &r.Day.Tokens, (*int64)(&r.Day.Money), &r.Month.Tokens, (*int64)(&r.Month.Money)); err != nil {
			return nil, s.fail(ctx, "reading what is spent", err)
		}
		t := whole[r.Tenant]
		if t == nil {
			t = &SpentRow{Tenant: r.Tenant}
			whole[r.Tenant] = t
		}
		t.Day.Tokens, t.Day.Money = t.Day.Tokens+r.Day.Tokens, t.Day.Money+r.Day.Money
		t.Month.Tokens, t.Month.Money = t.Month.Tokens+r.Month.Tokens, t.Month.Money+r.Month.Money
		if r.Key != "" {
			all = append(all, r)
		}
	}
	for _, t := range whole {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b SpentRow) int {
		return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Key, b.Key))
	})
	return all, s.fail(ctx, "reading what is spent", rows.Err())
}
