package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tierway/config"
	"tierway/routing"
	"tierway/store"
	"tierway/workers"
)

// ReloadRequest describes a reload.
type ReloadRequest struct {
	Actor  store.Actor
	DryRun bool   // only return what would change
	Expect string // hash of the previewed configuration; empty: any
}

// ReloadResult is what a reload changed, or would change.
type ReloadResult struct {
	Generation int64           `json:"generation" doc:"Generation of the configuration that is in force afterwards."`
	FromHash   string          `json:"from_hash"`
	ToHash     string          `json:"to_hash" doc:"Hash of the file that was read. Send it as If-Match to reload exactly the previewed file."`
	Changes    []config.Change `json:"changes" nullable:"false"`
	Impact     Impact          `json:"impact"`
	Problems   config.Problems `json:"problems"` // errors if the configuration is rejected, else warnings
}

// Impact is what a reload does to the workers. A worker that moves to another pool or URL is both
// added and removed.
type Impact struct {
	WorkersAdded   []string           `json:"workers_added" nullable:"false"`
	WorkersRemoved []string           `json:"workers_removed" nullable:"false" doc:"Removed workers finish their current requests."`
	AffinityMoved  map[string]float64 `json:"affinity_moved" doc:"By pool: share of prompts that change their preferred worker, 0 to 1."`
	RestartNeeded  []string           `json:"restart_needed" nullable:"false"` // keys with new values that need a restart
	Overrides      []OverrideImpact   `json:"overrides" nullable:"false" doc:"What becomes of the live overrides of the workers before and after the reload."`
}

// OverrideImpact is what a reload does to the live override of a worker. A reload stores no overrides and
// deletes none.
type OverrideImpact struct {
	Worker     string `json:"worker"`
	Effect     string `json:"effect" enum:"kept,shadows,begins,ends" doc:"kept: it stays in force. shadows: it stays in force and hides the weight that the file changes. begins: the file adds its worker. ends: the file removes its worker; it is stored until it is cleared or expires."`
	Weight     int    `json:"weight" doc:"Weight that the override sets; 0 for a drain."`
	Drain      bool   `json:"drain,omitempty" doc:"The override is a drain."`
	FileWeight *int   `json:"file_weight,omitempty" doc:"Weight of the worker in the new file. Absent: the worker is removed."`
}

// Errors of Reload. In each case the configuration in force stays.
var (
	ErrNoSource = errors.New("this gateway was started without a configuration file, so it has nothing to reload")
	ErrRejected = errors.New("the configuration has errors")
	ErrChanged  = errors.New("the configuration file changed since it was previewed")
)

// Reload reads the configuration and applies all of it, or nothing if it has an error. In-flight
// requests keep the configuration that they began with. Learned state, counters and leases stay.
// Concurrent calls run one after the other.
func (ctl *Control) Reload(ctx context.Context, r ReloadRequest) (ReloadResult, error) {
	ctl.reloading.Lock()
	defer ctl.reloading.Unlock()
	before := ctl.Snapshot().Generation
	f, err := ctl.ReadSource() // before changing is locked: a read may hang, and keys must stay revocable
	ctl.changing.Lock()
	result, err := ctl.reload(r, f, err)
	ctl.changing.Unlock()
	if !r.DryRun {
		ctl.recordReload(ctx, r, result, result.Generation != before, err)
	}
	return result, err
}

// ReadSource reads the configuration and applies nothing. Without a source it returns
// ErrNoSource.
func (ctl *Control) ReadSource() (*config.File, error) {
	if ctl.source == nil {
		return nil, ErrNoSource
	}
	return ctl.source()
}

// FileRejected reports whether the file that was read last has errors, or could not be read or
// applied.
func (ctl *Control) FileRejected() bool { return ctl.rejected.Load() }

// reload applies f. err is the error of reading f; if it lists problems, they are in the result and the
// error is ErrRejected. The caller holds ctl.changing.
func (ctl *Control) reload(r ReloadRequest, f *config.File, err error) (ReloadResult, error) {
	live := ctl.Snapshot()
	old := live.Base
	result := ReloadResult{Generation: live.Generation, FromHash: live.Hash, ToHash: live.Hash,
		Changes: []config.Change{}}
	if errors.Is(err, ErrNoSource) {
		return result, err
	}
	if err != nil {
		if !errors.As(err, &result.Problems) {
			return result, err
		}
		return result, ErrRejected
	}
	result.ToHash, result.Problems = f.Hash(), f.Warnings()
	if r.Expect != "" && r.Expect != f.Hash() {
		return result, ErrChanged
	}
	change, now := replacing(old, f), time.Now()
	result.Changes = change.changes
	next, effects, err := Next(live, change, now)
	if err != nil {
		return result, err
	}
	result.Impact = impactOf(live.Pools, next.Pools, result.Changes)
	if overrides := live.Overrides(now); len(overrides) > 0 {
		result.Impact.Overrides = overrideImpacts(overrides, fileWeights(old), fileWeights(f))
	}
	if !r.DryRun {
		ctl.apply(live, next, effects)
		result.Generation = next.Generation
	}
	return result, nil
}

// recordReload records the result of a reload in log, metrics and audit log.
func (ctl *Control) recordReload(ctx context.Context, r ReloadRequest, result ReloadResult, changed bool, err error) {
	outcome := "ok"
	switch {
	case errors.Is(err, ErrNoSource):
		return
	case errors.Is(err, ErrChanged): // a stale request; the file itself is valid
		outcome = err.Error()
		ctl.rejected.Store(false)
		ctl.log.Info("a reload was refused: the file changed after its preview",
			"via", r.Actor.Via, "expected", r.Expect, "hash", result.ToHash)
	case err != nil:
		outcome = err.Error()
		ctl.rejected.Store(true)
		ctl.metrics.ReloadRejected()
		ctl.log.Error("the configuration was rejected; the previous one stays in force",
			"via", r.Actor.Via, "cause", outcome, "problems", problemLines(result.Problems))
	case !changed:
		ctl.rejected.Store(false)
		ctl.metrics.ReloadUnchanged()
		message := "the configuration is unchanged"
		if len(result.Changes) > 0 {
			message = "the configuration stays in force: every change needs a restart"
		}
		ctl.log.Info(message, "via", r.Actor.Via, "generation", result.Generation,
			"changes", len(result.Changes), "restart_needed", result.Impact.RestartNeeded)
		return
	default:
		ctl.rejected.Store(false)
		ctl.metrics.Reloaded(result.Generation, ctl.Snapshot().LoadedAt)
		ctl.log.Info("the configuration was reloaded", "via", r.Actor.Via, "generation", result.Generation,
			"changes", len(result.Changes), "restart_needed", result.Impact.RestartNeeded)
	}
	if ctl.Stores.SQL == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlTimeout)
	defer cancel()
	after := fmt.Sprintf(`{"generation":%d,"hash":%q,"changes":%d}`, result.Generation, result.ToHash, len(result.Changes))
	before := fmt.Sprintf(`{"hash":%q}`, result.FromHash)
	auditErr := ctl.Stores.SQL.AppendAudit(ctx, r.Actor, "config.reload", result.ToHash, before, after, outcome)
	if auditErr != nil {
		ctl.log.Warn("writing a reload to the audit log failed", "cause", auditErr.Error())
	}
}

// problemLines returns the first 10 errors in the format of `tierway check`.
func problemLines(ps config.Problems) []string {
	const maxLines = 10 // a readable log line; `tierway check` prints all
	var lines []string
	for _, p := range ps {
		if !p.Warning && len(lines) < maxLines {
			lines = append(lines, p.String())
		}
	}
	return lines
}

// impactOf returns the impact on the workers of live pools if next replaces them.
func impactOf(live, next []*Pool, changes []config.Change) Impact {
	im := Impact{
		WorkersAdded:   missingFrom(live, next),
		WorkersRemoved: missingFrom(next, live),
		AffinityMoved:  map[string]float64{},
		RestartNeeded:  []string{},
		Overrides:      []OverrideImpact{},
	}
	was := map[string]*Pool{}
	for _, p := range live {
		was[p.Name] = p
	}
	for _, p := range next {
		if before, known := was[p.Name]; known {
			im.AffinityMoved[p.Name] = routing.MovedShare(membersOf(before.Pool, 1), before.Policy, membersOf(p.Pool, 1),
				p.Policy)
		}
	}
	for _, c := range changes {
		if c.Effect == config.EffectRestart {
			im.RestartNeeded = append(im.RestartNeeded, c.Path)
		}
	}
	return im
}

// fileWeights returns the configured weights by worker.
func fileWeights(f *config.File) map[string]int {
	weights := map[string]int{}
	for _, s := range f.Specs() {
		weights[s.Name] = *s.Weight
	}
	return weights
}

// HiddenWeights returns the live overrides that hide a weight of the draft f: one that f changes, or that of a worker
// that f adds.
func (ctl *Control) HiddenWeights(f *config.File) []OverrideImpact {
	all := overrideImpacts(ctl.OverridesNow(), fileWeights(ctl.Snapshot().Base), fileWeights(f))
	return slices.DeleteFunc(all, func(o OverrideImpact) bool { return o.Effect != "shadows" && o.Effect != "begins" })
}

// overrideImpacts returns the effect of a reload on each override. oldWeights and newWeights are the
// workers' weights in the old and new file.
func overrideImpacts(overrides []store.Override, oldWeights, newWeights map[string]int) []OverrideImpact {
	all, weights := []OverrideImpact{}, weightsOf(overrides)
	for _, worker := range slices.Sorted(maps.Keys(weights)) {
		before, had := oldWeights[worker]
		after, has := newWeights[worker]
		o := OverrideImpact{Worker: worker, Effect: "kept", Weight: weights[worker], FileWeight: &after,
			Drain: OverrideOf(overrides, worker).Drain}
		switch {
		case !had && !has:
			continue
		case !has:
			o.Effect, o.FileWeight = "ends", nil
		case !had:
			o.Effect = "begins"
		case before != after:
			o.Effect = "shadows"
		}
		all = append(all, o)
	}
	return all
}

// missingFrom returns the sorted names of the workers of pools that other does not have.
func missingFrom(other, pools []*Pool) []string {
	names := []string{}
	var elsewhere map[string]*workers.Spec // made for the first worker that other has at another place, or not at all
	for i := range pools {
		for j := range pools[i].Workers {
			w := &pools[i].Workers[j]
			if i < len(other) && j < len(other[i].Workers) && w.SameWorker(&other[i].Workers[j]) {
				continue
			}
			if elsewhere == nil {
				elsewhere = workersByName(other)
			}
			if same := elsewhere[w.Name]; same == nil || !w.SameWorker(same) {
				names = append(names, w.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// workersByName returns the workers of pools.
func workersByName(pools []*Pool) map[string]*workers.Spec {
	all := map[string]*workers.Spec{}
	for i := range pools {
		for j := range pools[i].Workers {
			all[pools[i].Workers[j].Name] = &pools[i].Workers[j]
		}
	}
	return all
}
