package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/tenants"
)

// usageMost is how many rows a usage query returns: a year of days for 27 groups.
const usageMost = 10_000

// Usage returns what one tenant has used, sorted by day and group. A query without
// a tenant, of an unknown grouping, or for more than 10,000 rows is refused.
func (s *SQL) Usage(ctx context.Context, q UsageQuery) ([]UsageRow, error) {
	if q.Tenant == "" {
		return nil, errors.New("reading usage: no tenant is named")
	}
	column, ok := map[string]string{"": "''", "tier": "tier", "model": "model", "key": "key_id", "outcome": "outcome"}[q.GroupBy]
	if !ok {
		return nil, fmt.Errorf("reading usage: unknown grouping %q: use tier, model, key or outcome", q.GroupBy)
	}
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	all, err := s.usage(ctx, q, column)
	if err == nil && len(all) > usageMost {
		return nil, fmt.Errorf("reading usage: more than %d rows: ask for fewer days", usageMost)
	}
	slices.SortFunc(all, func(a, b UsageRow) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Group, b.Group))
	})
	return all, s.fail(ctx, fmt.Sprintf("reading the usage of tenant %q", q.Tenant), err)
}

// usage reads one row more than Usage returns at most. grouping is a column or a
// constant, never what somebody has sent.
func (s *SQL) usage(ctx context.Context, q UsageQuery, grouping string) ([]UsageRow, error) {
	where, args := "tenant = $1", []any{clean(q.Tenant)}
	and := func(condition string, arg any) {
		args = append(args, arg)
		where += " AND " + condition + " $" + strconv.Itoa(len(args))
	}
	if q.Key != "" {
		and("key_id =", clean(q.Key))
	}
	if !q.From.IsZero() {
		and("day >=", int64(tenants.Day(q.From)))
	}
	if !q.To.IsZero() {
		and("day <", int64(tenants.Day(q.To)))
	}
	sum := func(what string) string { return "CAST(SUM(" + what + ") AS BIGINT)" }
	of := func(outcomes string) string {
		return sum("CASE WHEN outcome IN (" + outcomes + ") THEN requests ELSE 0 END")
	}
	rows, err := s.read.QueryContext(ctx, "SELECT day, "+grouping+" AS grouping_name, "+strings.Join([]string{
		sum("requests"), of("'refused'"), of("'failed', 'truncated'"), of("'client_gone'"),
		sum("estimated"), sum("prompt"), sum("cached"), sum("output"), sum("money"),
	}, ", ")+" FROM usage WHERE "+where+" GROUP BY day, grouping_name ORDER BY day LIMIT "+strconv.Itoa(usageMost+1), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var all []UsageRow
	for rows.Next() {
		var r UsageRow
		var day int64
		if err := rows.Scan(&day, &r.Group, &r.Requests, &r.Refused, &r.Failed, &r.Gone, &r.Estimated, &r.Prompt, &r.Cached, &r.Output, (*int64)(&r.Money)); err != nil {
			return nil, err
		}
		r.Day = time.Unix(day*86400, 0).UTC().Format(time.DateOnly)
		all = append(all, r)
	}
	return all, rows.Err()
}
