package main

import (
	"context"
	"errors"
	"fmt"
)

// createdKey is the answer to a request that creates a key.
type createdKey struct {
	Key    struct{ ID string }
	Secret string
}

// createKey creates a key of a tenant through the first gateway.
func (f *fleet) createKey(ctx context.Context, tenant string) (k createdKey, err error) {
	err = f.call(ctx, f.list[0], "POST", "/admin/tenants/"+tenant+"/keys", `{"name":"measured"}`, &k)
	if err == nil && (k.Secret == "" || k.Key.ID == "") {
		err = errors.New("the answer has no key")
	}
	return k, err
}

// revokeKey revokes a key through the first gateway.
func (f *fleet) revokeKey(ctx context.Context, id string) error {
	return f.call(ctx, f.list[0], "POST", "/admin/keys/"+id+"/revoke", `{"reason":"measured"}`, nil)
}

// allAccept returns a function that reports whether all gateways accept the key, or with want false, whether all
// refuse it.
func (f *fleet) allAccept(ctx context.Context, secret *string, want bool) func() (bool, error) {
	return func() (bool, error) {
		for _, g := range f.list {
			if got, err := f.accepts(ctx, g, *secret); err != nil || got != want {
				return false, err
			}
		}
		return true, nil
	}
}

// always is the condition of a change that is in force with its answer.
func always() (bool, error) { return true, nil }

// changeNames are the measured changes, in the order of their figures.
func changeNames() []string { return []string{"create a key", "PATCH a tenant", "revoke a key"} }

// measureChanges makes each change rounds times, and once before to fill caches. The results are in the order of
// changeNames.
func (m *meter) measureChanges(ctx context.Context, tenant string, rounds int) ([][]cost, error) {
	all := make([][]cost, len(changeNames()))
	for round := -1; round < rounds; round++ {
		if err := m.renewIdle(ctx); err != nil {
			return nil, err
		}
		var k createdKey
		for i, step := range []struct {
			change  func() error
			inForce func() (bool, error)
		}{
			{func() (err error) { k, err = m.fleet.createKey(ctx, tenant); return err },
				m.fleet.allAccept(ctx, &k.Secret, true)},
			{func() error {
				body := fmt.Sprintf(`{"limits":{"tpm":%d}}`, 20_000_000+round)
				return m.fleet.call(ctx, m.fleet.list[0], "PATCH", "/admin/tenants/"+tenant, body, nil)
			}, always},
			{func() error { return m.fleet.revokeKey(ctx, k.Key.ID) }, m.fleet.allAccept(ctx, &k.Secret, false)},
		} {
			c, err := m.measure(ctx, step.change, step.inForce)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", changeNames()[i], err)
			}
			if round >= 0 {
				all[i] = append(all[i], c)
			}
		}
	}
	return all, nil
}
