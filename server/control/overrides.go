package control

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"tierway/store"
)

// OverridesNow returns the live overrides in force: those in the database, or without a database those
// of this process.
func (ctl *Control) OverridesNow() []store.Override {
	all := ctl.Snapshot().Identity.overrides
	if ctl.Stores.SQL == nil {
		all = *ctl.ownOverrides.Load()
	}
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(all), func(o store.Override) bool { return !o.InForce(now) })
}

// EditOverride changes a worker's override by f, as store.SQL.EditOverride does. The change applies to
// all gateways; without a database, to this one until it ends. If f returns store.ErrConflict, the
// directory is read before EditOverride returns, so that the next request sees the override that f
// rejected.
func (ctl *Control) EditOverride(ctx context.Context, a store.Actor, worker string,
	f func(store.Override) (store.Override, error)) (store.Override, error) {
	if ctl.Stores.SQL == nil {
		return ctl.editOwnOverride(a, worker, f)
	}
	o, err := ctl.Stores.SQL.EditOverride(ctx, a, worker, f)
	switch {
	case err == nil:
		ctl.Database.Changed(ctx)
	case errors.Is(err, store.ErrConflict):
		if err := ctl.Database.Refresh(ctx); err != nil {
			ctl.Database.requestRead()
		}
	}
	return o, err
}

// editOwnOverride is EditOverride without a database.
func (ctl *Control) editOwnOverride(a store.Actor, worker string,
	f func(store.Override) (store.Override, error)) (store.Override, error) {
	ctl.applying.Lock()
	defer ctl.applying.Unlock()
	all := slices.Clone(*ctl.ownOverrides.Load())
	before := store.Override{Worker: worker}
	if o := OverrideOf(all, worker); o != nil {
		before = *o
	}
	after, changed, err := before.Edited(time.Now(), f)
	if err != nil || !changed {
		return after, err
	}
	all = slices.DeleteFunc(all, func(o store.Override) bool { return o.Worker == worker })
	if after.Says() {
		after.By = cmp.Or(after.By, a.Name)
		all = append(all, after)
	}
	ctl.ownOverrides.Store(&all)
	ctl.applyOverrides() // only weights change, and the same file was applied before
	return after, nil
}

// weightsOf returns the weights that overrides set, by worker. The weight of a draining worker is 0.
func weightsOf(overrides []store.Override) map[string]int {
	weights := map[string]int{}
	for _, o := range overrides {
		switch {
		case o.Drain:
			weights[o.Worker] = 0
		case o.Weight != nil:
			weights[o.Worker] = *o.Weight
		}
	}
	return weights
}

// applyOverrides applies the overrides to the configuration if they have changed. The caller holds
// applying.
func (ctl *Control) applyOverrides() error {
	live, weights := ctl.Snapshot(), weightsOf(ctl.OverridesNow())
	if maps.Equal(weights, live.weights) {
		return nil
	}
	return ctl.apply(live.withWeights(weights), live.Identity)
}

// followOverrides removes expired overrides until done is closed.
func (ctl *Control) followOverrides(done <-chan struct{}) {
	ctl.Recoverer.Every(time.Second, done, "ending overrides", func(time.Time) {
		ctl.applying.Lock()
		defer ctl.applying.Unlock()
		if err := ctl.applyOverrides(); err != nil {
			ctl.log.Error("removing expired overrides failed", "cause", err.Error())
		}
	})
}

// OverrideOf returns the override of a worker in all; nil if there is none.
func OverrideOf(all []store.Override, worker string) *store.Override {
	i := slices.IndexFunc(all, func(o store.Override) bool { return o.Worker == worker })
	if i < 0 {
		return nil
	}
	return &all[i]
}
