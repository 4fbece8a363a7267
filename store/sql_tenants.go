package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"tierway/tenants"
)

// rightsColumns are the columns that tenants and keys share.
func rightsColumns(r *tenants.Rights, l *tenants.Limits) []column {
	return []column{
		listColumn("tiers", &r.Tiers), listColumn("models", &r.Models),
		classColumn("priority", &r.Priority), classColumn("default_priority", &r.Default),
		intColumn("rpm", &l.RPM), intColumn("rps", &l.RPS), intColumn("burst", &l.Burst), intColumn("tpm", &l.TPM),
		intColumn("token_burst", &l.TokenBurst), intColumn("concurrent", &l.Concurrent),
		intColumn("day_tokens", &l.DayTokens), intColumn("month_tokens", &l.MonthTokens),
		intColumn("day_money", &l.DayMoney), intColumn("month_money", &l.MonthMoney),
	}
}

func tenantColumns(t *tenants.Tenant) []column {
	return append(rightsColumns(&t.Rights, &t.Limits),
		textColumn("name", &t.Name), boolColumn("disabled", &t.Disabled), intColumn("weight", &t.Weight),
		boolColumn("isolate_cache", &t.IsolateCache),
		boolColumn("degrade", &t.Degrade), boolColumn("fail_closed", &t.FailClosed),
		boolColumn("response_cache", &t.ResponseCache), intColumn("version", &t.Version),
		timeColumn("created_at", &t.CreatedAt), timeColumn("updated_at", &t.UpdatedAt))
}

// tenantNamed returns a tenant, or ErrConflict if its version is not the given one; 0 accepts any
// version.
func tenantNamed(ctx context.Context, tx *sql.Tx, name string, version int64) (tenants.Tenant, error) {
	t, err := single(collect(ctx, tx, tenantColumns, "FROM tenants WHERE name = $1", clean(name)))
	if err == nil && version != 0 && version != t.Version {
		err = ErrConflict
	}
	return t, err
}

// CreateTenant adds a tenant and returns it as stored. It returns ErrExists if the name is in use.
func (s *SQL) CreateTenant(ctx context.Context, a Actor, t tenants.Tenant) (tenants.Tenant, error) {
	doing := fmt.Sprintf("creating tenant %q", t.Name)
	if !tenants.Slug(t.Name) {
		return tenants.Tenant{}, fmt.Errorf("%s: use 1 to 63 of a-z, 0-9 and - for its name", doing)
	}
	err := s.change(ctx, a, doing, func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
		t.FromConfig, t.Weight, t.Version, t.CreatedAt, t.UpdatedAt = false, max(1, t.Weight), 1, now, now
		return edit{action: "tenant.create", target: t.Name, after: t}, insert(ctx, tx, "tenants", tenantColumns(&t))
	})
	return t, err
}

// UpdateTenant replaces a tenant's settings and returns the tenant as stored. It returns
// ErrConflict if the version is not ifVersion (0 accepts any) and ErrNotFound if the name is
// unknown.
func (s *SQL) UpdateTenant(ctx context.Context, a Actor, t tenants.Tenant, ifVersion int64) (tenants.Tenant, error) {
	err := s.change(ctx, a, fmt.Sprintf("changing tenant %q", t.Name),
		func(ctx context.Context, tx *sql.Tx, now time.Time) (edit, error) {
			before, err := tenantNamed(ctx, tx, t.Name, ifVersion)
			if err != nil {
				return edit{}, err
			}
			t.FromConfig, t.Weight, t.Version, t.CreatedAt, t.UpdatedAt = false, max(1, t.Weight), before.Version+1,
				before.CreatedAt, now
			return edit{
				action: "tenant.update",
				target: t.Name,
				before: before,
				after:  t,
			}, update(ctx, tx, "tenants", tenantColumns(&t), "name", t.Name)
		})
	return t, err
}

// gone is the audit log's record of a deleted tenant.
type gone struct {
	tenants.Tenant
	Keys []string `json:"keys"` // ids of the keys that were deleted with it
}

// DeleteTenant removes a tenant and its keys; its usage stays in the ledger. It returns ErrConflict
// and ErrNotFound as UpdateTenant does.
func (s *SQL) DeleteTenant(ctx context.Context, a Actor, name string, ifVersion int64) error {
	return s.change(ctx, a, fmt.Sprintf("deleting tenant %q", name),
		func(ctx context.Context, tx *sql.Tx, _ time.Time) (edit, error) {
			t, err := tenantNamed(ctx, tx, name, ifVersion)
			if err != nil {
				return edit{}, err
			}
			ids, err := collect(ctx, tx, func(id *string) []column { return []column{textColumn("id", id)} },
				"FROM keys WHERE tenant = $1", t.Name)
			if err != nil {
				return edit{}, err
			}
			before := gone{Tenant: t, Keys: append([]string{}, sorted(ids, func(id string) string { return id })...)}
			if _, err := tx.ExecContext(ctx, "DELETE FROM keys WHERE tenant = $1", t.Name); err != nil {
				return edit{}, err
			}
			_, err = tx.ExecContext(ctx, "DELETE FROM tenants WHERE name = $1", t.Name)
			return edit{action: "tenant.delete", target: t.Name, before: before}, err
		})
}
