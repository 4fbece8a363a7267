package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/store"
)

// drainBegun is what is remembered of a drain that was begun on this gateway.
type drainBegun struct {
	at, deadline time.Time
	inflight     int
}

// drainState is how far a draining worker is.
type drainState struct {
	Since           time.Time  `json:"since"`
	Inflight        int        `json:"inflight" doc:"Requests under way by this gateway."`
	InflightAtStart *int       `json:"inflight_at_start,omitempty" doc:"Known by the gateway where the drain was asked for."`
	Deadline        *time.Time `json:"deadline,omitempty" doc:"When the operator wants it done. Requests under way are not cut then."`
	Overdue         bool       `json:"overdue" doc:"The deadline has passed and requests are under way still."`
}

// WorkerChange is another weight for a worker.
type WorkerChange struct {
	Weight *int  `json:"weight" nullable:"true" minimum:"0" maximum:"100" doc:"0: no new requests; null: the configuration's."`
	TTL    int64 `json:"ttl_s,omitempty" minimum:"1" maximum:"2592000" doc:"Seconds after which it is over by itself; absent: until it is reset."`
}

// WorkerAnswer is a worker after a change, or as it would be.
type WorkerAnswer struct {
	DryRun   bool               `json:"dry_run"`
	Worker   workerState        `json:"worker"`
	Expected map[string]float64 `json:"expected" nullable:"false" doc:"Share of the pool's requests by worker, by weight."`
	Warnings []string           `json:"warnings,omitempty"`
}

// DrainRequest says how long a drain may take.
type DrainRequest struct {
	Timeout int64 `json:"timeout_s,omitempty" minimum:"1" maximum:"86400" default:"300" doc:"When it is to be done, for the progress that is shown."`
}

// DrainAnswer is how a drain begins.
type DrainAnswer struct {
	State           string    `json:"state" enum:"draining,drained"`
	Inflight        int       `json:"inflight"`
	InflightAtStart int       `json:"inflight_at_start"`
	Deadline        time.Time `json:"deadline"`
	Warnings        []string  `json:"warnings,omitempty"`
}

// addDrain marks a worker that takes no new requests by an override.
func (a *adminPlane) addDrain(st *workerState, now time.Time) {
	o := st.Weights.Override
	if o == nil || !o.Drain {
		return
	}
	st.State = "drained"
	if st.Inflight > 0 {
		st.State = "draining"
	}
	st.Drain = &drainState{Since: o.At.UTC(), Inflight: st.Inflight}
	a.mu.Lock()
	begun, here := a.drains[st.Name]
	a.mu.Unlock()
	if here {
		st.Drain.InflightAtStart, st.Drain.Deadline = new(begun.inflight), optional(begun.deadline)
		st.Drain.Overdue = st.Inflight > 0 && now.After(begun.deadline)
	}
}

// expectedOf returns the shares of a pool by weight, and what there is to say of
// them. Weights replace those in force.
func expectedOf(p *pool, weights map[string]int, now time.Time) (map[string]float64, []string) {
	shares := expectedShares(p.routing.Snapshot(now), weights)
	for _, share := range shares {
		if share > 0 {
			return shares, nil
		}
	}
	return shares, []string{fmt.Sprintf("no worker of %s takes requests: they wait for one, or fail", p.Name)}
}

func (a *adminPlane) weighWorker(ctx context.Context, in *struct {
	Name   string `path:"name" maxLength:"200"`
	DryRun bool   `query:"dry_run" doc:"Say what would happen, and change nothing."`
	Body   WorkerChange
}) (*reply[WorkerAnswer], error) {
	a.weighing.Lock()
	defer a.weighing.Unlock()
	p, w, err := a.workerNamed(in.Name)
	if err != nil {
		return nil, err
	}
	o := store.Override{Worker: in.Name, Weight: in.Body.Weight, By: actorOf(ctx).Name, At: time.Now().UTC()}
	if was := w.Weights.Override; was != nil {
		o.Drain = was.Drain
	}
	if in.Body.TTL > 0 && o.Drain {
		return nil, huma.Error409Conflict("The worker drains, and a drain does not end by itself: leave ttl_s out, or undrain it first.")
	}
	if in.Body.TTL > 0 && in.Body.Weight != nil {
		o.Until = o.At.Add(time.Duration(in.Body.TTL) * time.Second)
	}
	if in.DryRun {
		weight := w.Weights.File
		if o.Drain {
			weight = 0
		} else if o.Weight != nil {
			weight = *o.Weight
		}
		answer := WorkerAnswer{DryRun: true, Worker: w}
		answer.Expected, answer.Warnings = expectedOf(p, map[string]int{in.Name: weight}, time.Now())
		return &reply[WorkerAnswer]{Body: answer}, nil
	}
	if err := a.put(ctx, o); err != nil {
		return nil, a.failed("changing a worker's weight", err)
	}
	return a.workerAnswer(in.Name)
}

// put makes an override that of its worker; one that says nothing is none.
func (a *adminPlane) put(ctx context.Context, o store.Override) error {
	actor := actorOf(ctx)
	if o.Weight != nil || o.Drain {
		err := a.s.override(ctx, actor, o)
		if err == nil {
			a.s.log.Info("a worker was changed live", "worker", o.Worker, "drain", o.Drain, "by", actor.Name, "ip", actor.IP, "request_id", actor.RequestID)
		}
		return err
	}
	if err := a.s.clearOverride(ctx, actor, o.Worker); !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// workerAnswer answers with a worker and its pool as they are.
func (a *adminPlane) workerAnswer(name string) (*reply[WorkerAnswer], error) {
	p, w, err := a.workerNamed(name)
	if err != nil {
		return nil, err
	}
	answer := WorkerAnswer{Worker: w}
	answer.Expected, answer.Warnings = expectedOf(p, nil, time.Now())
	return &reply[WorkerAnswer]{Body: answer}, nil
}

func (a *adminPlane) drainWorker(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"200"`
	Body *DrainRequest
}) (*reply[DrainAnswer], error) {
	a.weighing.Lock()
	defer a.weighing.Unlock()
	p, w, err := a.workerNamed(in.Name)
	if err != nil {
		return nil, err
	}
	timeout := int64(300) // as documented; a long answer takes minutes
	if in.Body != nil && in.Body.Timeout > 0 {
		timeout = in.Body.Timeout
	}
	now := time.Now().UTC()
	// It lasts until it is taken back: a drain that ended by itself would send
	// requests to an engine that somebody is working on. So a weight that was to
	// end by itself ends now.
	o := store.Override{Worker: in.Name, Drain: true, By: actorOf(ctx).Name, At: now}
	if was := w.Weights.Override; was != nil && was.Until.IsZero() {
		o.Weight = was.Weight
	}
	if err := a.put(ctx, o); err != nil {
		return nil, a.failed("draining a worker", err)
	}
	begun := drainBegun{at: now, deadline: now.Add(time.Duration(timeout) * time.Second), inflight: w.Inflight}
	a.mu.Lock()
	a.drains[in.Name] = begun
	a.mu.Unlock()
	answer := DrainAnswer{State: "drained", InflightAtStart: begun.inflight, Deadline: begun.deadline}
	if _, w, err = a.workerNamed(in.Name); err == nil && w.Inflight > 0 {
		answer.State, answer.Inflight = "draining", w.Inflight
	}
	_, answer.Warnings = expectedOf(p, nil, now)
	return &reply[DrainAnswer]{Body: answer}, nil
}

func (a *adminPlane) undrainWorker(ctx context.Context, in *struct {
	Name string `path:"name" maxLength:"200"`
}) (*reply[WorkerAnswer], error) {
	a.weighing.Lock()
	defer a.weighing.Unlock()
	_, w, err := a.workerNamed(in.Name)
	if err != nil {
		return nil, err
	}
	if was := w.Weights.Override; was != nil && was.Drain {
		o := store.Override{Worker: in.Name, Weight: was.Weight, By: actorOf(ctx).Name, At: time.Now().UTC()}
		if err := a.put(ctx, o); err != nil {
			return nil, a.failed("taking a drain back", err)
		}
	}
	a.forgetDrain(in.Name)
	return a.workerAnswer(in.Name)
}

func (a *adminPlane) forgetDrain(worker string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.drains, worker)
}

func (a *adminPlane) listOverrides(_ context.Context, in *struct{ PageQuery }) (*reply[page[store.Override]], error) {
	name := func(o *store.Override) string { return o.Worker }
	return &reply[page[store.Override]]{Body: paged(a.s.overridesNow(), in.PageQuery, name, name)}, nil
}

func (a *adminPlane) deleteOverride(ctx context.Context, in *struct {
	Worker string `path:"worker" maxLength:"200"`
}) (*struct{}, error) {
	a.weighing.Lock()
	defer a.weighing.Unlock()
	err := a.s.clearOverride(ctx, actorOf(ctx), in.Worker)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("override of", in.Worker)
	}
	if err != nil {
		return nil, a.failed("clearing an override", err)
	}
	a.forgetDrain(in.Worker)
	return nil, nil
}
