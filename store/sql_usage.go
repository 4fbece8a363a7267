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

// usageMost is the maximum number of rows of a usage query: one year of days for 27 groups.
const usageMost = 10_000

// Usage returns the usage of one tenant, sorted by day and group. A query without a tenant, with an
// unknown grouping, or with more than 10,000 rows is an error.
func (s *SQL) Usage(ctx context.Context, q UsageQuery) ([]UsageRow, error) {
	if q.Tenant == "" {
		return nil, errors.New("reading usage: the query names no tenant; set Tenant")
	}
	grouping, ok := map[string]string{"": "''", "tier": "tier", "model": "model", "key": "key_id",
		"outcome": "outcome"}[q.GroupBy]
	if !ok {
		return nil, fmt.Errorf("reading usage: unknown grouping %q: use tier, model, key or outcome", q.GroupBy)
	}
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	filter, args := where(condition{true, "tenant =", clean(q.Tenant)}, condition{q.Key != "", "key_id =", clean(q.Key)},
		condition{!q.From.IsZero(), "day >=", int64(tenants.Day(q.From))},
		condition{!q.To.IsZero(), "day <", int64(tenants.Day(q.To))})
	all, err := collect(ctx, s.read, func(r *UsageRow) []column {
		return append([]column{{name: "day", scan: read(func(day int64) error {
			r.Day = time.Unix(day*86400, 0).UTC().Format(time.DateOnly)
			return nil
		})}, {name: grouping + " AS grouping_name", scan: &r.Group}}, sumColumns(r)...)
	}, "FROM usage"+filter+" GROUP BY day, grouping_name ORDER BY day LIMIT "+strconv.Itoa(usageMost+1), args...)
	if err == nil && len(all) > usageMost {
		return nil, fmt.Errorf("reading usage: more than %d rows: ask for fewer days", usageMost)
	}
	slices.SortFunc(all, func(a, b UsageRow) int {
		return cmp.Or(strings.Compare(a.Day, b.Day), strings.Compare(a.Group, b.Group))
	})
	return all, s.fail(ctx, fmt.Sprintf("reading the usage of tenant %q", q.Tenant), err)
}

// UsageByTenant returns the usage of the UTC day of at by tenant, of all tenants with a request in it.
func (s *SQL) UsageByTenant(ctx context.Context, at time.Time) (map[string]UsageRow, error) {
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	filter, args := where(condition{true, "day =", int64(tenants.Day(at))})
	all, err := collect(ctx, s.read, func(r *UsageRow) []column {
		return append([]column{{name: "tenant", scan: &r.Group}}, sumColumns(r)...)
	}, "FROM usage"+filter+" GROUP BY tenant", args...)
	if err != nil {
		return nil, s.fail(ctx, "reading the usage of a day", err)
	}
	byTenant := make(map[string]UsageRow, len(all))
	for _, r := range all {
		r.Day = at.UTC().Format(time.DateOnly)
		byTenant[r.Group] = r
	}
	return byTenant, nil
}

// UsageByTier returns the usage of all tenants except one by tier or pool, from the UTC day of from to that before to,
// sorted by name. Requests without a tier or pool have an empty group. An empty except excludes no tenant.
func (s *SQL) UsageByTier(ctx context.Context, from, to time.Time, except string) ([]UsageRow, error) {
	ctx, done := context.WithTimeout(ctx, searchTimeout)
	defer done()
	filter, args := where(condition{true, "day >=", int64(tenants.Day(from))},
		condition{true, "day <", int64(tenants.Day(to))}, condition{except != "", "tenant <>", except})
	all, err := collect(ctx, s.read, func(r *UsageRow) []column {
		return append([]column{{name: "tier", scan: &r.Group}}, sumColumns(r)...)
	}, "FROM usage"+filter+" GROUP BY tier ORDER BY tier", args...)
	return all, s.fail(ctx, "reading the usage by tier", err)
}

// sumColumns are the columns with the sums of a group of rows.
func sumColumns(r *UsageRow) []column {
	of := func(outcomes string) string {
		return "CASE WHEN outcome IN (" + outcomes + ") THEN requests ELSE 0 END"
	}
	return []column{
		sumColumn("requests", &r.Requests), sumColumn(of("'refused'"), &r.Refused),
		sumColumn(of("'failed', 'truncated'"), &r.Failed), sumColumn(of("'client_gone'"), &r.Gone),
		sumColumn("estimated", &r.Estimated), sumColumn("prompt", &r.Prompt), sumColumn("cached", &r.Cached),
		sumColumn("output", &r.Output), sumColumn("money", &r.Money),
		sumColumn("cached_requests", &r.CachedRequests), sumColumn("saved", &r.Saved),
	}
}

// sumColumn is a column with the sum of an expression over a group.
func sumColumn[T ~int64](what string, v *T) column {
	return column{name: "CAST(SUM(" + what + ") AS BIGINT)", scan: v}
}
