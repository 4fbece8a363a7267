package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tierway/tenants"
)

const (
	// Maximum length in bytes of a field that comes from a client or an engine.
	fieldMost = 256
	// Maximum tokens of one request: far above any context, and low enough that sums never
	// overflow, whatever an engine reports.
	tokensMost = 1_000_000_000_000
	moneyMost  = 1_000_000 * tenants.Unit
	// The sums over a month of a large roll-up take long, and nothing waits for them.
	spentTimeout = time.Minute
	// Ledger rows that one transaction deletes: a few milliseconds of writing, so that no batch
	// waits for long.
	pruneChunk = 5000
)

// ledgerColumns are in the order of appendRow.
var ledgerColumns = []string{"id", "request_id", "at", "tenant", "key_id", "class", "route", "tier", "model", "worker",
	"outcome",
	"status", "code", "attempts", "prompt", "cached", "output", "money", "estimated", "duration_ms"}

// appendRow appends the values of a row.
func appendRow(args []any, r *Row) []any {
	args = appendValues(args, field(r.ID), field(r.RequestID))
	args = appendValues(args, micros(r.At))
	args = appendValues(args, field(r.Tenant), field(r.Key), field(r.Class), field(r.Route), field(r.Tier),
		field(r.Model), field(r.Worker), field(r.Outcome))
	args = appendValues(args, int64(r.Status))
	args = appendValues(args, field(r.Code))
	return appendValues(args, int64(r.Attempts), within(r.Prompt, tokensMost), within(r.Cached, tokensMost),
		within(r.Output, tokensMost), int64(within(r.Money, moneyMost)), number(r.Estimated), r.DurationMs)
}

// appendValues appends values. If the array of args still has an equal value of an earlier statement at that place, the
// value is reused: a new value in an interface is an allocation.
func appendValues[T comparable](args []any, values ...T) []any {
	for _, v := range values {
		if n := len(args); n < cap(args) {
			if old, ok := args[:n+1][n].(T); ok && old == v {
				args = args[:n+1]
				continue
			}
		}
		args = append(args, v)
	}
	return args
}

// field returns text as the ledger stores it.
func field(text string) string {
	if len(text) > fieldMost {
		text = text[:fieldMost]
	}
	return clean(text)
}

// group is the key of one group of the roll-up.
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
	requests, estimated, prompt, cached, output, money, cachedRequests, saved int64
}

// WriteRows writes rows to the ledger and adds them to the roll-up, all or none, and returns how
// many are new. A row whose ID exists does not count again, so a batch may be written again if its
// first result is unknown.
func (s *SQL) WriteRows(ctx context.Context, rows []Row) (written int, err error) {
	if len(rows) == 0 {
		return 0, nil
	}
	ctx, done := bounded(ctx, usualTimeout)
	defer done()
	err = s.transact(ctx, func(tx *sql.Tx) error { return s.addRows(ctx, tx, rows) })
	if written = len(rows); errors.Is(err, errReplayed) {
		err = s.transact(ctx, func(tx *sql.Tx) error {
			fresh, err := freshRows(ctx, tx, rows)
			written = len(fresh)
			if err != nil {
				return err
			}
			return s.addRows(ctx, tx, fresh)
		})
	}
	if err != nil {
		return 0, s.fail(ctx, fmt.Sprintf("writing %d rows of the ledger", len(rows)), err)
	}
	return written, nil
}

// errReplayed means that some rows of a batch exist, so that the batch must be reduced.
var errReplayed = errors.New("some of the rows exist already")

// addRows adds a batch of new rows, as nearly every batch is. Checking for existing rows first
// would cost a third more.
func (s *SQL) addRows(ctx context.Context, tx *sql.Tx, rows []Row) error {
	insert := inserter{db: s, tx: tx, columns: len(ledgerColumns),
		into: "ledger (" + strings.Join(ledgerColumns, ", ") + ")", tail: " ON CONFLICT (id) DO NOTHING"}
	total := map[group]sums{}
	var args []any
	for part := range slices.Chunk(rows, s.chunk) {
		args = args[:0]
		for i := range part {
			args = appendRow(args, &part[i])
			add(total, &part[i])
		}
		result, err := insert.add(ctx, args)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != int64(len(part)) {
			return cmp.Or(err, errReplayed)
		}
	}
	return s.addUsage(ctx, tx, total)
}

// freshRows returns the rows of a batch that do not exist yet, each once.
func freshRows(ctx context.Context, tx *sql.Tx, rows []Row) (fresh []Row, err error) {
	seen := map[string]bool{}
	for part := range slices.Chunk(rows, postgresChunk) {
		ids := make([]any, len(part))
		for i := range part {
			ids[i] = field(part[i].ID)
		}
		there, err := collect(ctx, tx, func(id *string) []column { return []column{textColumn("id", id)} },
			"FROM ledger WHERE id IN "+tuples(1, len(ids)), ids...)
		if err != nil {
			return nil, err
		}
		for _, id := range there {
			seen[id] = true
		}
	}
	for _, r := range rows {
		if id := field(r.ID); !seen[id] {
			seen[id] = true
			fresh = append(fresh, r)
		}
	}
	return fresh, nil
}

// within limits a reported number to the range from 0 to limit.
func within[T ~int64](n, limit T) T { return min(max(n, 0), limit) }

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
	n.cachedRequests += number(r.FromCache)
	n.saved += int64(within(r.Saved, moneyMost))
	total[at] = n
}

// addUsage adds sums to the roll-up. Groups are written in a fixed order, so that two gateways
// cannot deadlock.
func (s *SQL) addUsage(ctx context.Context, tx *sql.Tx, total map[group]sums) error {
	insert := inserter{db: s, tx: tx, columns: 14, into: `usage (day, tenant, key_id, tier, model, outcome, requests, estimated,
		prompt, cached, output, money, cached_requests, saved)`,
		tail: ` ON CONFLICT (day, tenant, key_id, tier, model, outcome) DO UPDATE SET
			requests = usage.requests + excluded.requests, estimated = usage.estimated + excluded.estimated,
			prompt = usage.prompt + excluded.prompt, cached = usage.cached + excluded.cached,
			output = usage.output + excluded.output, money = usage.money + excluded.money,
			cached_requests = usage.cached_requests + excluded.cached_requests, saved = usage.saved + excluded.saved`}
	var args []any
	for part := range slices.Chunk(slices.SortedFunc(maps.Keys(total), compareGroups), s.chunk) {
		args = args[:0]
		for _, g := range part {
			n := total[g]
			args = append(args, g.day, g.tenant, g.key, g.tier, g.model, g.outcome, n.requests, n.estimated, n.prompt, n.cached,
				n.output, n.money, n.cachedRequests, n.saved)
		}
		if _, err := insert.add(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

// Prune deletes ledger rows from before a time and returns how many; the roll-up keeps their sums.
// It ends when no such row is left or ctx ends.
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
		result, err := tx.ExecContext(ctx,
			fmt.Sprintf("DELETE FROM ledger WHERE id IN (SELECT id FROM ledger WHERE id < $1 AND at < $2 ORDER BY id LIMIT %d)",
				pruneChunk),
			idFrom(before), micros(before))
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, s.fail(ctx, "deleting old rows of the ledger", err)
}

// idFrom returns the lowest id of a row at the given time: a UUID of version 7 begins with
// milliseconds.
func idFrom(at time.Time) string {
	ms := fmt.Sprintf("%012x", max(0, at.UnixMilli()))
	return ms[:8] + "-" + ms[8:]
}

// clockBack is the number of days by which a gateway's clock may go back. What is booked up to so many days ahead
// counts as the present day's and month's, so that a budget holds.
const clockBack = 2

// Spent returns the usage of some tenants and their keys in the UTC day and month of the given time, sorted by
// tenant and key. Without names it returns that of all tenants.
func (s *SQL) Spent(ctx context.Context, at time.Time, names ...string) ([]SpentRow, error) {
	ctx, done := bounded(ctx, spentTimeout)
	defer done()
	at = at.UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	day := tenants.Day(at)
	today := func(what string) string {
		return fmt.Sprintf("CASE WHEN day BETWEEN %d AND %d THEN %s ELSE 0 END", day, day+clockBack, what)
	}
	var args []any
	some := "1 = 1"
	if len(names) > 0 {
		for _, name := range names {
			args = append(args, clean(name))
		}
		some = "tenant IN " + tuples(1, len(names))
	}
	days := fmt.Sprintf(" AND day >= %d AND day < %d", tenants.Day(first),
		max(tenants.Day(first.AddDate(0, 1, 0)), day+clockBack+1))
	keys, err := collect(ctx, s.read, func(r *SpentRow) []column {
		return []column{
			textColumn("tenant", &r.Tenant), textColumn("key_id", &r.Key),
			sumColumn(today("prompt + output"), &r.Day.Tokens), sumColumn(today("money"), &r.Day.Money),
			sumColumn("prompt + output", &r.Month.Tokens), sumColumn("money", &r.Month.Money),
		}
	}, "FROM usage WHERE "+some+days+" GROUP BY tenant, key_id", args...)
	if err != nil {
		return nil, s.fail(ctx, "reading the usage of the budgets", err)
	}
	whole := map[string]*SpentRow{}
	var all []SpentRow
	for _, r := range keys {
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
	return all, nil
}
