package control

import (
	"fmt"
	"slices"
	"time"

	"tierway/config"
	"tierway/queue"
	"tierway/routing"
)

// DraftOf builds the snapshot that a reload of a checked configuration would put in
// force, and puts nothing in force. Live overrides hold in it as they would after the
// reload. Its pools are the live ones of their names, with a routing.Draft in place of
// policy and members: nothing of it reaches fleet, pools or metrics.
func (ctl *Control) DraftOf(f *config.File) (*Snapshot, error) {
	live := ctl.Snapshot()
	identity, err := newIdentity(f, live.Identity.contents, live.Identity.ReadAt)
	if err != nil {
		return nil, fmt.Errorf("building the draft's directory: %w", err)
	}
	c := Configuration{Base: f, Generation: live.Generation}
	snap, err := newSnapshot(c.withWeights(weightsOf(ctl.OverridesNow())), identity, live)
	if err != nil {
		return nil, err
	}
	for _, p := range snap.Pools {
		p.Draft = &routing.Draft{Policy: p.Picker, Members: membersOf(p.Pool, ctl.Pools.Gateways(f)), Limit: p.Saturation}
		if was := live.ByName[p.Name]; was != nil {
			p.livePool, p.Members = was.livePool, was.Members
			continue
		}
		p.livePool = &livePool{Routing: routing.NewPool(p.Picker, nil)}
		p.WaitQueue = queue.New(p.Routing, p.Queue, func(*queue.Ticket) {})
	}
	return snap, nil
}

// HasWorkers reports whether any worker of the pool is in rotation. In a draft, the draft's
// weights count, and its new workers are up.
func (p *Pool) HasWorkers(now time.Time) bool {
	if p.Draft == nil {
		return p.Routing.Up(now)
	}
	live := map[string]routing.WorkerView{}
	for _, v := range p.Routing.Snapshot(now) {
		live[v.ID] = v
	}
	return slices.ContainsFunc(p.Draft.Members, func(m routing.Member) bool {
		v, known := live[m.ID]
		v.Up, v.Weight = v.Up || !known, m.Weight
		return v.InRotation()
	})
}
