package server

import (
	"context"
	"maps"
	"slices"
	"time"

	"tierway/config"
	"tierway/store"
)

// overridesNow returns the live overrides in force: the database's, or this
// process's own where there is none.
func (s *Server) overridesNow() []store.Override {
	all := s.people.Load().contents.Overrides
	if s.sql == nil {
		all = *s.ownOverrides.Load()
	}
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(all), func(o store.Override) bool { return !o.Until.IsZero() && !now.Before(o.Until) })
}

// override changes a worker live: for all gateways where there is a database,
// else for this one until it ends.
func (s *Server) override(ctx context.Context, a store.Actor, o store.Override) error {
	if s.sql != nil {
		if err := s.sql.SetOverride(ctx, a, o); err != nil {
			return err
		}
		s.changed(ctx)
		return nil
	}
	s.changeOwnOverrides(func(all []store.Override) []store.Override {
		all = slices.DeleteFunc(all, func(other store.Override) bool { return other.Worker == o.Worker })
		return append(all, o)
	})
	return nil
}

// clearOverride gives a worker back what the file says of it.
func (s *Server) clearOverride(ctx context.Context, a store.Actor, worker string) error {
	if s.sql != nil {
		if err := s.sql.ClearOverride(ctx, a, worker); err != nil {
			return err
		}
		s.changed(ctx)
		return nil
	}
	found := false
	s.changeOwnOverrides(func(all []store.Override) []store.Override {
		return slices.DeleteFunc(all, func(o store.Override) bool { found = found || o.Worker == worker; return o.Worker == worker })
	})
	if !found {
		return store.ErrNotFound
	}
	return nil
}

func (s *Server) changeOwnOverrides(change func([]store.Override) []store.Override) {
	s.applying.Lock()
	defer s.applying.Unlock()
	all := change(slices.Clone(*s.ownOverrides.Load()))
	s.ownOverrides.Store(&all)
	s.applyOverrides() //nolint:errcheck // a weight can always be applied: the file was
}

// weightsOf are the weights that overrides give, by worker. A worker that drains
// has none.
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

// applyOverrides puts the overrides in force over the configuration, if they are
// others than before. The caller holds applying.
func (s *Server) applyOverrides() error {
	weights := weightsOf(s.overridesNow())
	if maps.Equal(weights, s.base.weights) {
		return nil
	}
	if err := s.apply(s.base.file.WithOverrides(weights)); err != nil {
		return err
	}
	s.base.weights = weights
	return nil
}

// followOverrides ends overrides whose time is over, until done is closed.
func (s *Server) followOverrides(done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			s.applying.Lock()
			if err := s.applyOverrides(); err != nil {
				s.log.Error("overrides that are over could not be taken back", "cause", err.Error())
			}
			s.applying.Unlock()
		}
	}
}

// base is the configuration without overrides. Server.applying guards it.
type base struct {
	file       *config.File
	weights    map[string]int // the overrides that are in force over it
	generation int64
	loadedAt   time.Time
}

// overrideOf returns the override of a worker, nil for none.
func overrideOf(all []store.Override, worker string) *store.Override {
	i := slices.IndexFunc(all, func(o store.Override) bool { return o.Worker == worker })
	if i < 0 {
		return nil
	}
	return &all[i]
}
