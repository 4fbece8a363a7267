package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tierway/store"
)

// maxDueBudgets is the number of changed tenants up to which only their budgets are read. Beyond it, all are read.
const maxDueBudgets = 200

// dueBudgets has the tenants that have changed since their spent budgets were read: a budget that begins to apply
// begins with what was spent before.
type dueBudgets struct {
	mu      sync.Mutex
	tenants map[string]bool
}

// add adds the tenants that have changed. It reports whether there are any.
func (b *dueBudgets) add(c *store.Changes) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tenants == nil {
		b.tenants = map[string]bool{}
	}
	for i := range c.Tenants {
		b.tenants[c.Tenants[i].Name] = true
	}
	for i := range c.Keys {
		b.tenants[c.Keys[i].Tenant] = true
	}
	return len(b.tenants) > 0
}

// take returns the tenants and forgets them.
func (b *dueBudgets) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := slices.Sorted(maps.Keys(b.tenants))
	b.tenants = nil
	return names
}

// seedChangedBudgets sets the limiter's spent budgets of the tenants that have changed.
func (db *Database) seedChangedBudgets(ctx context.Context) error {
	names := db.budgets.take()
	switch {
	case len(names) == 0:
		return nil
	case len(names) > maxDueBudgets:
		names = nil
	}
	return db.seedBudgets(ctx, names...)
}

// seedBudgets sets the limiter's spent budgets of some tenants to the ledger's sums; without names, of all.
func (db *Database) seedBudgets(ctx context.Context, names ...string) error {
	now := time.Now()
	rows, err := db.stores.SQL.Spent(ctx, now, names...)
	if err != nil {
		return fmt.Errorf("reading the spent budgets: %w", err)
	}
	for _, r := range rows {
		db.stores.Limiter.Seed(r.Tenant, r.Key, now, r.Day, r.Month)
	}
	return nil
}
