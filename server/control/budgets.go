package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxDueBudgets is the number of changed tenants up to which only their budgets are read. Beyond it, all are read.
const maxDueBudgets = 200

// dueBudgets has the tenants that have changed since their spent budgets were read: a budget that begins to apply
// begins with what was spent before.
type dueBudgets struct {
	mu      sync.Mutex
	tenants map[string]bool
	all     bool
}

// add adds the tenants that have changed.
func (b *dueBudgets) add(c *changeDirectory) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tenants == nil {
		b.tenants = map[string]bool{}
	}
	for i := range c.changes.Tenants {
		b.tenants[c.changes.Tenants[i].Name] = true
	}
	for i := range c.changes.Keys {
		b.tenants[c.changes.Keys[i].Tenant] = true
	}
	b.all = b.all || c.whole != nil || len(b.tenants) > maxDueBudgets
}

// take returns the tenants and forgets them. all means all tenants.
func (b *dueBudgets) take() (names []string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if names, all = slices.Sorted(maps.Keys(b.tenants)), b.all; all {
		names = nil
	}
	b.tenants, b.all = nil, false
	return names, all
}

// addAll makes the budgets of all tenants due.
func (b *dueBudgets) addAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = true
}

// seedChangedBudgets sets the limiter's spent budgets of the tenants that have changed.
func (db *Database) seedChangedBudgets(ctx context.Context) error {
	names, all := db.budgets.take()
	if !all && len(names) == 0 {
		return nil
	}
	err := db.seedBudgets(ctx, names...)
	if err != nil {
		db.budgets.addAll()
	}
	return err
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
