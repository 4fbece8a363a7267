package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tierway/config"
	"tierway/routing"
	"tierway/store"
	"tierway/workers"
)

// ReloadRequest says how the configuration is reloaded.
type ReloadRequest struct {
	Actor  store.Actor
	DryRun bool   // the result shows what would change, and nothing changes
	Expect string // the hash of the configuration that was previewed; empty: any
}

// ReloadResult is what a reload changed, or would change.
type ReloadResult struct {
	Generation int64           `json:"generation" doc:"Of the configuration in force afterwards."`
	FromHash   string          `json:"from_hash"`
	ToHash     string          `json:"to_hash" doc:"For If-Match: what was previewed is what is reloaded."`
	Changes    []config.Change `json:"changes" nullable:"false"`
	Impact     Impact          `json:"impact"`
	Problems   config.Problems `json:"problems"` // errors of a configuration that is refused, else warnings
}

// Impact is what a reload does to the workers. One that moves is both added and removed.
type Impact struct {
	WorkersAdded   []string           `json:"workers_added" nullable:"false"`
	WorkersRemoved []string           `json:"workers_removed" nullable:"false" doc:"They finish what they have."`
	AffinityMoved  map[string]float64 `json:"affinity_moved" doc:"By pool: the share of prompts whose home is another worker."`
	RestartNeeded  []string           `json:"restart_needed" nullable:"false"` // keys whose new values wait for a restart
}

// The errors of a reload that is refused. Nothing has changed.
var (
	ErrNoSource = errors.New("this gateway was started without a configuration file: there is nothing to read again")
	ErrRejected = errors.New("the configuration has errors")
	ErrChanged  = errors.New("the configuration is another one than expected")
)

// Reload reads the configuration and puts it in force: all of it or nothing. Requests under
// way keep the configuration that they began with, and everything that was learned, counted or
// booked stays. Concurrent calls wait for each other.
func (ctl *Control) Reload(ctx context.Context, r ReloadRequest) (ReloadResult, error) {
	ctl.reloading.Lock()
	defer ctl.reloading.Unlock()
	before := ctl.Snapshot().Generation
	f, err := ctl.ReadSource() // before applying is locked: reading may hang, and keys must stay revocable
	ctl.applying.Lock()
	result, err := ctl.reload(r, f, err)
	ctl.applying.Unlock()
	if !r.DryRun {
		ctl.noteReload(ctx, r, result, result.Generation != before, err)
	}
	return result, err
}

// ReadSource reads the configuration again and puts nothing in force. Without a source it
// returns ErrNoSource.
func (ctl *Control) ReadSource() (*config.File, error) {
	if ctl.source == nil {
		return nil, ErrNoSource
	}
	return ctl.source()
}

// FileRejected reports whether the last file to be reloaded was rejected: it has errors, or could
// not be read or applied.
func (ctl *Control) FileRejected() bool { return ctl.rejected.Load() }

// reload applies a file that was read, or reports err. The caller holds applying.
func (ctl *Control) reload(r ReloadRequest, f *config.File, err error) (ReloadResult, error) {
	live := ctl.Snapshot()
	old := live.Base
	result := ReloadResult{Generation: live.Generation, FromHash: live.Hash, ToHash: live.Hash, Changes: []config.Change{}}
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
	result.Changes = append(result.Changes, config.Changes(old, f)...)
	weights := weightsOf(ctl.OverridesNow())
	result.Impact = impactOf(old.WithOverrides(weights), f.WithOverrides(weights), result.Changes)
	if r.DryRun {
		return result, nil
	}
	next := f.KeepRestartOnly(old)
	if len(config.Changes(old, next)) == 0 { // all that is left of the changes waits for a restart
		ctl.amend(func(snap *Snapshot) { snap.Hash = result.ToHash })
		return result, nil
	}
	identity, err := newIdentity(next, live.Identity.contents, live.Identity.ReadAt)
	if err != nil {
		return result, err
	}
	c := Configuration{Base: next, Hash: result.ToHash, Generation: live.Generation + 1, LoadedAt: time.Now()}
	if err := ctl.apply(c.withWeights(weights), identity); err != nil {
		return result, err
	}
	result.Generation = c.Generation
	return result, nil
}

// noteReload reports in log, metrics and audit log how a reload went.
func (ctl *Control) noteReload(ctx context.Context, r ReloadRequest, result ReloadResult, changed bool, err error) {
	outcome := "ok"
	switch {
	case errors.Is(err, ErrNoSource):
		return
	case err != nil:
		outcome = err.Error()
		ctl.rejected.Store(!errors.Is(err, ErrChanged)) // ErrChanged: the file is valid, and not the expected one
		ctl.metrics.ReloadRejected()
		ctl.log.Error("the configuration was not reloaded; the old one stays in force", "via", r.Actor.Via, "cause", outcome, "problems", problemLines(result.Problems))
	case !changed:
		ctl.rejected.Store(false)
		ctl.metrics.ReloadUnchanged()
		ctl.log.Info("the configuration is the one in force", "via", r.Actor.Via, "generation", result.Generation)
		return
	default:
		ctl.rejected.Store(false)
		ctl.metrics.Reloaded(result.Generation, ctl.Snapshot().LoadedAt)
		ctl.log.Info("the configuration was reloaded", "via", r.Actor.Via, "generation", result.Generation, "changes", len(result.Changes), "restart_needed", result.Impact.RestartNeeded)
	}
	if ctl.Stores.SQL == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlPatience)
	defer cancel()
	after := fmt.Sprintf(`{"generation":%d,"hash":%q,"changes":%d}`, result.Generation, result.ToHash, len(result.Changes))
	if auditErr := ctl.Stores.SQL.AppendAudit(ctx, r.Actor, "config.reload", result.ToHash, fmt.Sprintf(`{"hash":%q}`, result.FromHash), after, outcome); auditErr != nil {
		ctl.log.Warn("a reload could not be written to the audit log", "cause", auditErr.Error())
	}
}

// problemLines returns the first errors as check prints them.
func problemLines(ps config.Problems) []string {
	const most = 10 // `tierway check` prints all
	var lines []string
	for _, p := range ps {
		if !p.Warning && len(lines) < most {
			lines = append(lines, p.String())
		}
	}
	return lines
}

// impactOf returns what a new configuration does to the workers.
func impactOf(old, f *config.File, changes []config.Change) Impact {
	im := Impact{WorkersAdded: missingFrom(old, f), WorkersRemoved: missingFrom(f, old), AffinityMoved: map[string]float64{}, RestartNeeded: []string{}}
	was := map[string]config.Pool{}
	for _, p := range old.ResolvedPools() {
		was[p.Name] = p
	}
	for _, p := range f.ResolvedPools() {
		if before, known := was[p.Name]; known {
			im.AffinityMoved[p.Name] = routing.MovedShare(membersOf(before, 1), before.Policy, membersOf(p, 1), p.Policy)
		}
	}
	for _, c := range changes {
		if c.Effect == "restart" {
			im.RestartNeeded = append(im.RestartNeeded, c.Path)
		}
	}
	return im
}

// missingFrom returns the names of the workers of f that another configuration does not have,
// sorted.
func missingFrom(other, f *config.File) []string {
	names, has := []string{}, map[string]workers.Spec{}
	for _, s := range other.Specs() {
		has[s.Name] = s
	}
	for _, s := range f.Specs() {
		if !s.SameWorker(has[s.Name]) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
