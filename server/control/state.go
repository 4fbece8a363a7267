package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tierway/config"
	"tierway/store"
	"tierway/tenants"
)

// Change is a change of the state of a gateway, which is a Snapshot: a first configuration, another one, overrides,
// tenants and keys, or the passing of time.
type Change interface {
	// next returns the snapshot that the change makes of another one, and the tenants and keys that it removes. Pools
	// and overrides follow in Next.
	next(was *Snapshot, now time.Time) (*Snapshot, []tenants.Subject, error)
}

// Effects is what a change of the state requires once the new one is in force.
type Effects struct {
	Pools    bool              // the pools are new: they get their workers, and what outlives a configuration
	Departed []tenants.Subject // tenants and keys that no longer exist
	Identity bool              // tenants, keys or admins are others
}

// Next returns the state that follows was by a change at now, and its effects. It reads nothing else and changes
// nothing: a dry run calls it and drops the result. An equal state is was itself. The pools of a state with
// Effects.Pools are not connected with workers yet.
func Next(was *Snapshot, c Change, now time.Time) (*Snapshot, Effects, error) {
	next, departed, err := c.next(was, now)
	if err != nil {
		return was, Effects{}, err
	}
	e := Effects{Departed: departed, Identity: next.Identity != was.Identity}
	weights := weightsOf(next.Overrides(now))
	if e.Pools = next.Generation != was.Generation || !maps.Equal(weights, was.weights); e.Pools {
		next, err = newSnapshot(next.withWeights(weights), next.Identity, was)
	}
	if err != nil {
		return was, Effects{}, err
	}
	return next, e, nil
}

// begin puts the first configuration in force.
type begin struct{}

func (begin) next(was *Snapshot, now time.Time) (*Snapshot, []tenants.Subject, error) {
	identity, err := newIdentity(was.Base, was.Identity)
	next := *was
	next.Identity, next.Hash, next.Generation, next.LoadedAt = identity, was.Base.Hash(), 1, now
	return &next, nil, err
}

// replaceConfig replaces the configuration by that of a file, from which it has these differences.
type replaceConfig struct {
	file    *config.File
	changes []config.Change
}

// replacing returns the change from a configuration to that of a file.
func replacing(was, file *config.File) replaceConfig {
	return replaceConfig{file, config.Changes(was, file)}
}

func (r replaceConfig) next(was *Snapshot, now time.Time) (*Snapshot, []tenants.Subject, error) {
	next := *was
	next.Base, next.Hash = r.file.KeepRestartOnly(was.Base), r.file.Hash()
	if !slices.ContainsFunc(r.changes, func(c config.Change) bool { return c.Effect != config.EffectRestart }) {
		// The lines of its keys may differ.
		next.Configuration = next.withWeights(was.weights)
		return &next, nil, nil
	}
	var err error
	if next.Identity, err = newIdentity(next.Base, was.Identity); err != nil {
		return nil, nil, err
	}
	next.Generation, next.LoadedAt = was.Generation+1, now
	return &next, was.Identity.Directory.Departed(next.Identity.Directory, &tenants.Changes{}), nil
}

// changeDirectory puts changes of the database in force.
type changeDirectory struct {
	changes  *store.Changes
	revision int64 // 0: not all changes up to the new revision were read
	// whole has all tenants and keys of a database that was not read before; nil: only the changed ones are read.
	whole *tenants.Directory
}

func (d changeDirectory) next(was *Snapshot, now time.Time) (*Snapshot, []tenants.Subject, error) {
	next, removed := *was, &d.changes.Changes
	identity := *was.Identity
	if d.whole != nil {
		ts, ks, err := tenants.FromConfig(was.Base.Auth.Keys)
		if err != nil {
			return nil, nil, err
		}
		identity.Directory, removed = d.whole.WithFile(ts, ks), was.Identity.Directory.Removal()
	} else {
		identity.Directory = was.Identity.Directory.With(removed)
	}
	if d.revision != 0 {
		identity.Revision = d.revision
	}
	if d.changes.Few {
		identity.storedAdmins, identity.overrides = d.changes.Admins, d.changes.Overrides
	}
	if identity.ReadAt.IsZero() {
		identity.ReadAt = now
	}
	identity.index()
	next.Identity = &identity
	return &next, was.Identity.Directory.Departed(identity.Directory, removed), nil
}

// changeOverride changes a worker's override, without a database.
type changeOverride struct {
	actor  store.Actor
	worker string
	edit   func(store.Override) (store.Override, error)
	result *store.Override // receives the override in force afterwards
}

func (o changeOverride) next(was *Snapshot, now time.Time) (*Snapshot, []tenants.Subject, error) {
	before := store.Override{Worker: o.worker}
	if in := OverrideOf(was.Identity.overrides, o.worker); in != nil {
		before = *in
	}
	after, changed, err := before.Edited(now, o.edit)
	if *o.result = after; err != nil || !changed {
		return was, nil, err
	}
	all := slices.DeleteFunc(slices.Clone(was.Identity.overrides),
		func(in store.Override) bool { return in.Worker == o.worker })
	if after.Says() {
		after.By = cmp.Or(after.By, o.actor.Name)
		*o.result, all = after, append(all, after)
	}
	next, identity := *was, *was.Identity
	identity.overrides = all
	next.Identity = &identity
	return &next, nil, nil
}

// timePasses ends what has expired.
type timePasses struct{}

func (timePasses) next(was *Snapshot, _ time.Time) (*Snapshot, []tenants.Subject, error) {
	return was, nil, nil
}

// Overrides returns the live overrides in force at now: those in the database, or without a database those of this
// process.
func (snap *Snapshot) Overrides(now time.Time) []store.Override {
	return slices.DeleteFunc(slices.Clone(snap.Identity.overrides), func(o store.Override) bool { return !o.InForce(now) })
}

// change puts a change in force and runs its effects. After an error nothing has changed. The caller holds
// ctl.changing.
func (ctl *Control) change(c Change) error {
	was := ctl.Snapshot()
	next, effects, err := Next(was, c, time.Now())
	if err == nil && next != was {
		ctl.apply(was, next, effects)
	}
	return err
}

// apply puts a state of Next in force and runs its effects. The caller holds ctl.changing.
func (ctl *Control) apply(was, next *Snapshot, effects Effects) {
	if effects.Pools {
		ctl.addHooks(next, was)
		ctl.Pools.connect(next)
	}
	ctl.snapshot.Store(next)
	if effects.Pools {
		ctl.Pools.observeNew(next)
		ctl.retireHooks(was.Hooks, next.Hooks)
		ctl.metrics.KeepTenants(next.File.Telemetry.Tenants)
		ctl.Stores.Limits.SetGateways(next.File.Gateways)
		ctl.Vocabularies.request(next.Vocabulary)
	}
	ctl.forget(effects.Departed)
	if effects.Pools || len(effects.Departed) > 0 { // answers of departed tenants are forgotten
		for _, follow := range ctl.followers {
			follow(next.File)
		}
	}
	if effects.Identity {
		ctl.Bootstrap.announceWithoutAdmin(next.Identity)
	}
}

// forget removes tenants and keys that no longer exist from the limiter, now or once their requests have ended. The
// caller holds ctl.changing.
func (ctl *Control) forget(departed []tenants.Subject) {
	directory := ctl.Snapshot().Identity.Directory
	ctl.departed = slices.DeleteFunc(append(ctl.departed, departed...), func(s tenants.Subject) bool {
		return directory.Knows(s.Tenant, s.Key) || ctl.Stores.Limiter.Forget(s.Tenant, s.Key)
	})
}
