package main

import (
	"context"
	"fmt"
)

// measureReloads reloads the only gateway of a fleet n times, each time with another weight of one worker.
func (m *meter) measureReloads(ctx context.Context, sql string, workers, n int) (costs []cost, err error) {
	f, g := m.fleet, m.fleet.list[0]
	for round := -1; round < n; round++ {
		weight := 2 + (round+1)%99 // at most 100, and another one than before
		if err := f.configure(g, gatewayConfig(sql, "", workers, weight, f.digest)); err != nil {
			return nil, err
		}
		if err := m.renewIdle(ctx); err != nil {
			return nil, err
		}
		c, err := m.measure(ctx, func() error { return f.call(ctx, g, "POST", "/admin/reload", "", nil) }, always)
		if err != nil {
			return nil, fmt.Errorf("reloading: %w", err)
		}
		if err := f.checkWeight(ctx, g, weight); err != nil {
			return nil, err
		}
		if round >= 0 {
			costs = append(costs, c)
		}
	}
	return costs, nil
}

// checkWeight returns an error unless the first worker has a weight.
func (f *fleet) checkWeight(ctx context.Context, g *gateway, want int) error {
	var w struct{ Weights struct{ Effective int } }
	if err := f.call(ctx, g, "GET", "/admin/workers/w0", "", &w); err != nil {
		return err
	}
	if w.Weights.Effective != want {
		return fmt.Errorf("after the reload, the weight of a worker is %d instead of %d", w.Weights.Effective, want)
	}
	return nil
}
