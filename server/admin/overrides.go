package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"tierway/routing"
	"tierway/server/control"
	"tierway/store"
)

type drainBegun struct {
	number   int64 // version of the override that drains: with another one, it is another drain
	since    time.Time
	deadline time.Time
	inflight int
}

type drainState struct {
	Since           time.Time  `json:"since"`
	Inflight        int        `json:"inflight" doc:"In-flight requests of this gateway."`
	InflightAtStart *int       `json:"inflight_at_start,omitempty" doc:"In-flight requests when the drain began. Only on the gateway that received the drain request."`
	Deadline        *time.Time `json:"deadline,omitempty" doc:"Time by which the drain should be complete. In-flight requests are not cut at the deadline."`
	Overdue         bool       `json:"overdue" doc:"The deadline has passed and requests are still in flight."`
}

type workerChange struct {
	Weight *int  `json:"weight" nullable:"true" minimum:"0" maximum:"100" doc:"Weight of the worker. 0: no new requests. null: the weight of the configuration."`
	TTL    int64 `json:"ttl_s,omitempty" minimum:"1" maximum:"2592000" doc:"Seconds after which the weight expires. Absent: it stays until it is reset."`
}

type workerAnswer struct {
	DryRun   bool               `json:"dry_run"`
	Worker   workerState        `json:"worker"`
	Expected map[string]float64 `json:"expected" nullable:"false" doc:"Expected share of the pool's requests for each worker, from the weights."`
	Warnings []string           `json:"warnings,omitempty"`
}

// drainTimeout is the documented default of a drain's time: a long answer takes minutes.
const drainTimeout = 300 * time.Second

type drainRequest struct {
	Timeout int64 `json:"timeout_s,omitempty" minimum:"1" maximum:"86400" doc:"Seconds until the deadline that the progress shows, 300 by default. A repeated order without it keeps the deadline. In-flight requests are not cut at the deadline."`
}

type drainAnswer struct {
	State           string    `json:"state" enum:"draining,drained"`
	Inflight        int       `json:"inflight"`
	InflightAtStart int       `json:"inflight_at_start"`
	Deadline        time.Time `json:"deadline"`
	Warnings        []string  `json:"warnings,omitempty"`
}

// addDrain sets the drain state of a worker that an override drains.
func (a *workerAPI) addDrain(st *workerState, now time.Time) {
	o := st.Weights.Override
	if o == nil || !o.Drain {
		return
	}
	st.State = "drained"
	if st.Inflight > 0 {
		st.State = "draining"
	}
	st.Since = seconds(o.At)
	st.Drain = &drainState{Since: o.At.UTC(), Inflight: st.Inflight}
	if begun, here := a.drainOf(*o); here {
		st.Drain.Since = begun.since
		st.Drain.InflightAtStart, st.Drain.Deadline = new(begun.inflight), optional(begun.deadline)
		st.Drain.Overdue = st.Inflight > 0 && now.After(begun.deadline)
	}
}

// drainOf returns the drain of an override, if it began on this gateway and no other one has changed it.
func (a *workerAPI) drainOf(o store.Override) (begun drainBegun, here bool) {
	v, here := a.drains.Load(o.Worker)
	if here {
		begun = v.(drainBegun)
	}
	return begun, here && begun.number == o.Number()
}

// expectedOf returns the expected shares of a pool's workers, and warnings about them. weights
// replaces weights in force.
func expectedOf(p *control.Pool, weights map[string]int, now time.Time) (map[string]float64, []string) {
	ws := p.LiveWorkers(now)
	shares := expectedShares(ws, weights)
	missing, serves := control.MissingWorkers(ws, func(w *control.LiveWorker) (routing.Stages, bool) {
		return w.Stages, shares[w.ID] > 0
	})
	switch {
	case missing == "":
		return shares, nil
	case serves:
		return shares, []string{fmt.Sprintf("%s of %s takes requests: decode workers compute the prompts", missing, p.Name)}
	}
	return shares, []string{fmt.Sprintf("%s of %s takes requests: requests that may change tier follow "+
		"classifier.unavailable, all others fail", missing, p.Name)}
}

func (a *workerAPI) weighWorker(ctx context.Context, in *struct {
	WorkerPath
	DryRun bool `query:"dry_run" doc:"Return what would happen, and change nothing."`
	Precondition
	Body workerChange
}) (*tagged[workerAnswer], error) {
	if in.DryRun {
		return upToDate(ctx, a.gateway, func() (*tagged[workerAnswer], error) {
			p, w, err := a.workerNamed(in.Name)
			if err != nil {
				return nil, err
			}
			return a.previewWeight(p, w, in.IfMatch, in.Body)
		})
	}
	if _, _, err := a.workerNamed(in.Name); err != nil {
		return nil, err
	}
	o, err := a.changeOverride(ctx, in.Name, in.IfMatch, in.Body.applyTo)
	if err != nil {
		return nil, a.failed("changing a worker's weight", err)
	}
	return a.workerAnswer(o)
}

// applyTo returns the override o with the change. A drain stays until it is ended by undrain.
func (c workerChange) applyTo(o store.Override) (store.Override, error) {
	if c.TTL > 0 && o.Drain {
		return o,
			huma.Error409Conflict("The worker is draining, and a drain has no expiry: omit ttl_s, or undrain the worker first.")
	}
	o.Weight, o.Until = c.Weight, time.Time{}
	if c.TTL > 0 && c.Weight != nil {
		o.Until = time.Now().Add(time.Duration(c.TTL) * time.Second)
	}
	return o, nil
}

func (a *workerAPI) previewWeight(p *control.Pool, w workerState, ifMatch string,
	c workerChange) (*tagged[workerAnswer], error) {
	was := store.Override{Worker: w.Name}
	if w.Weights.Override != nil {
		was = *w.Weights.Override
	}
	o, err := matching(ifMatch, c.applyTo)(was)
	if err != nil {
		return nil, a.failed("previewing a worker's weight", err)
	}
	weight := w.Weights.File
	if o.Drain {
		weight = 0
	} else if o.Weight != nil {
		weight = *o.Weight
	}
	answer := workerAnswer{DryRun: true, Worker: w}
	answer.Expected, answer.Warnings = expectedOf(p, map[string]int{w.Name: weight}, time.Now())
	return &tagged[workerAnswer]{ETag: etag(was.Number()), Body: answer}, nil
}

type edit func(store.Override) (store.Override, error)

// matching returns an edit that applies f if the override has the version that If-Match requires.
// Otherwise the edit fails with store.ErrConflict.
func matching(ifMatch string, f edit) edit {
	return func(o store.Override) (store.Override, error) {
		match, err := tagOf(ifMatch)
		if err == nil && !match.matches(o.Number()) {
			err = store.ErrConflict
		}
		if err != nil {
			return o, err
		}
		return f(o)
	}
}

// changeOverride changes the override of a worker by f, if it has the version that If-Match requires.
func (a *workerAPI) changeOverride(ctx context.Context, worker, ifMatch string, f edit) (store.Override, error) {
	actor, from, was := actorOf(ctx), int64(0), store.Override{}
	o, err := a.control.EditOverride(ctx, actor, worker, matching(ifMatch, func(o store.Override) (store.Override, error) {
		from, was = o.Number(), o
		o, err := f(o)
		o.By = actor.Name
		return o, err
	}))
	if err == nil && o.Number() != from {
		if begun, here := a.drainOf(was); here && o.Drain { // another weight does not end the drain
			begun.number = o.Number()
			a.drains.Store(worker, begun)
		}
		a.log.Info("a worker's override changed", "worker", worker, "drain", o.Drain, "by", actor.Name, "ip", actor.IP,
			"request_id", actor.RequestID)
	}
	return o, err
}

func (a *workerAPI) workerAnswer(o store.Override) (*tagged[workerAnswer], error) {
	p, w, err := a.workerNamed(o.Worker)
	if err != nil {
		return nil, err
	}
	answer := workerAnswer{Worker: w}
	answer.Expected, answer.Warnings = expectedOf(p, nil, time.Now())
	return &tagged[workerAnswer]{ETag: etag(o.Number()), Body: answer}, nil
}

func (a *workerAPI) drainWorker(ctx context.Context, in *struct {
	WorkerPath
	Precondition
	Body *drainRequest
}) (*tagged[drainAnswer], error) {
	p, w, err := a.workerNamed(in.Name)
	if err != nil {
		return nil, err
	}
	o, err := a.changeOverride(ctx, in.Name, in.IfMatch, drained)
	if err != nil {
		return nil, a.failed("draining a worker", err)
	}
	now := time.Now().UTC()
	begun, here := a.drainOf(o)
	if !here {
		begun = drainBegun{number: o.Number(), since: o.At.UTC(), inflight: w.Inflight, deadline: now.Add(drainTimeout)}
	}
	if in.Body != nil && in.Body.Timeout > 0 {
		begun.deadline = now.Add(time.Duration(in.Body.Timeout) * time.Second)
	}
	a.drains.Store(in.Name, begun)
	answer := drainAnswer{State: "drained", InflightAtStart: begun.inflight, Deadline: begun.deadline}
	if _, w, err = a.workerNamed(in.Name); err == nil && w.Inflight > 0 {
		answer.State, answer.Inflight = "draining", w.Inflight
	}
	_, answer.Warnings = expectedOf(p, nil, now)
	return &tagged[drainAnswer]{ETag: etag(o.Number()), Body: answer}, nil
}

// drained returns the override with a drain. A drain does not expire: otherwise requests would reach
// an engine that is still under maintenance. A weight that would expire is therefore removed now.
func drained(o store.Override) (store.Override, error) {
	if !o.Until.IsZero() {
		o.Weight, o.Until = nil, time.Time{}
	}
	o.Drain = true
	return o, nil
}

func (a *workerAPI) undrainWorker(ctx context.Context, in *struct {
	WorkerPath
	Precondition
}) (*tagged[workerAnswer], error) {
	if _, _, err := a.workerNamed(in.Name); err != nil {
		return nil, err
	}
	o, err := a.changeOverride(ctx, in.Name, in.IfMatch, func(o store.Override) (store.Override, error) {
		o.Drain = false
		return o, nil
	})
	if err != nil {
		return nil, a.failed("ending a drain", err)
	}
	a.drains.Delete(in.Name)
	return a.workerAnswer(o)
}

func (a *workerAPI) listOverrides(_ context.Context, in *struct{ PageQuery }) (*reply[page[store.Override]], error) {
	name := func(o *store.Override) string { return o.Worker }
	return &reply[page[store.Override]]{Body: paged(a.control.OverridesNow(), in.PageQuery, name, name)}, nil
}

func (a *workerAPI) deleteOverride(ctx context.Context, in *struct {
	Worker  string `path:"worker" maxLength:"200"`
	IfMatch string `header:"If-Match" doc:"ETag of the worker that the change is based on. If it differs, the answer is 412. Absent: any version."`
}) (*struct{}, error) {
	_, err := a.changeOverride(ctx, in.Worker, in.IfMatch, func(o store.Override) (store.Override, error) {
		if !o.Says() {
			return o, notFound("override of", in.Worker)
		}
		return store.Override{}, nil
	})
	if err != nil {
		return nil, a.failed("clearing an override", err)
	}
	a.drains.Delete(in.Worker)
	return nil, nil
}

// expectedShares returns each worker's share of the requests of its pool's workers with the same stages, by weight.
// Only the lowest group that has such a worker in rotation receives requests. weights replaces weights in force.
func expectedShares(ws []control.LiveWorker, weights map[string]int) map[string]float64 {
	shares, sums, groups := map[string]float64{}, map[routing.Stages]float64{}, map[routing.Stages]int{}
	weight := func(w *control.LiveWorker) float64 {
		v := w.WorkerView
		if replaced, ok := weights[v.ID]; ok {
			v.Weight = replaced
		}
		if !v.InRotation() {
			return 0
		}
		return v.EffectiveWeight()
	}
	for i := range ws {
		w := &ws[i]
		if group, any := groups[w.Stages]; weight(w) > 0 && (!any || w.Group < group) {
			groups[w.Stages] = w.Group
		}
	}
	for i := range ws {
		w := &ws[i]
		shares[w.ID] = 0
		if group, any := groups[w.Stages]; any && w.Group == group {
			shares[w.ID] = weight(w)
			sums[w.Stages] += weight(w)
		}
	}
	for i := range ws {
		if sum := sums[ws[i].Stages]; sum > 0 {
			shares[ws[i].ID] /= sum
		}
	}
	return shares
}
