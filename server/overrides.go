package server

import (
	"cmp"
	"context"
	"errors"
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
	return slices.DeleteFunc(slices.Clone(all), func(o store.Override) bool { return !o.InForce(now) })
}

// editOverride changes what is in force of a worker by f, as store.SQL.EditOverride
// does: for all gateways where there is a database, else for this one until it ends.
// An ErrConflict of f has the directory read, so that whoever asks next sees what
// it was that f did not expect.
func (s *Server) editOverride(ctx context.Context, a store.Actor, worker string, f func(store.Override) (store.Override, error)) (store.Override, error) {
	if s.sql == nil {
		return s.editOwnOverride(a, worker, f)
	}
	o, err := s.sql.EditOverride(ctx, a, worker, f)
	switch {
	case err == nil:
		s.changed(ctx)
	case errors.Is(err, store.ErrConflict):
		if err := s.readDatabase(ctx); err != nil {
			s.lookSoon()
		}
	}
	return o, err
}

// editOwnOverride is editOverride where there is no database.
func (s *Server) editOwnOverride(a store.Actor, worker string, f func(store.Override) (store.Override, error)) (store.Override, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	all := slices.Clone(*s.ownOverrides.Load())
	before := store.Override{Worker: worker}
	if o := overrideOf(all, worker); o != nil {
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
	s.ownOverrides.Store(&all)
	s.applyOverrides() //nolint:errcheck // a weight can always be applied: the file was
	return after, nil
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
	if err := s.apply(s.base.file.WithOverrides(weights), s.people.Load(), s.base.generation); err != nil {
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
			s.keepRunning("ending overrides", s.endOverrides)
		}
	}
}

// endOverrides takes back the overrides whose time is over.
func (s *Server) endOverrides() {
	s.applying.Lock()
	defer s.applying.Unlock()
	if err := s.applyOverrides(); err != nil {
		s.log.Error("overrides that are over could not be taken back", "cause", err.Error())
	}
}

// base is the configuration without overrides. Server.applying guards it.
type base struct {
	file       *config.File   // its restart-only values are those of the start
	hash       string         // of the file as it was read last
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
