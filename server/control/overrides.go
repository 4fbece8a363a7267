package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"tierway/store"
)

// OverridesNow returns the live overrides in force.
func (ctl *Control) OverridesNow() []store.Override { return ctl.Snapshot().Overrides(time.Now()) }

// EditOverride changes a worker's override by f, as store.SQL.EditOverride does. The change applies to
// all gateways; without a database, to this one until it ends. If f returns store.ErrConflict, the
// directory is read before EditOverride returns, so that the next request sees the override that f
// rejected.
func (ctl *Control) EditOverride(ctx context.Context, a store.Actor, worker string,
	f func(store.Override) (store.Override, error)) (o store.Override, err error) {
	if ctl.Stores.SQL == nil {
		ctl.changing.Lock()
		defer ctl.changing.Unlock()
		err = ctl.change(changeOverride{a, worker, f, &o})
		return o, err
	}
	o, err = ctl.Stores.SQL.EditOverride(ctx, a, worker, f)
	switch {
	case err == nil:
		ctl.Changed(ctx)
	case errors.Is(err, store.ErrConflict):
		if err := ctl.Refresh(ctx); err != nil {
			ctl.Database.requestRead()
		}
	}
	return o, err
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

// followTime removes expired overrides until done is closed.
func (ctl *Control) followTime(done <-chan struct{}) {
	ctl.Recoverer.Every(time.Second, done, "ending overrides", func(time.Time) {
		ctl.changing.Lock()
		defer ctl.changing.Unlock()
		if err := ctl.change(timePasses{}); err != nil {
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
