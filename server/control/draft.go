package control

import (
	"time"

	"tierway/config"
	"tierway/queue"
	"tierway/routing"
)

// DraftOf returns the snapshot that a reload of a checked configuration would put in force, and the differences between
// the two configurations. The snapshot has the live overrides and the live generation. If the reload would not change
// the pools, they are the live ones. Otherwise they use the live state of the pools with the same names, with a
// routing.Draft that replaces policy and members. DraftOf changes neither workers nor pools nor metrics, and puts
// nothing in force.
func (ctl *Control) DraftOf(f *config.File) (*Snapshot, []config.Change, error) {
	live := ctl.Snapshot()
	change := replacing(live.Base, f)
	next, effects, err := Next(live, change, time.Now())
	if err != nil || !effects.Pools {
		return next, change.changes, err
	}
	next.Generation = live.Generation
	ctl.addHooks(next, live)
	for _, p := range next.Pools {
		p.draftOf(live.ByName[p.Name], ctl.Pools.Gateways(f))
	}
	return next, change.changes, nil
}

// draftOf connects a draft's pool with the live pool of its name, which is nil for a new pool, and with
// the workers that a reload would keep. For each new worker it has a member without a worker.
func (p *Pool) draftOf(live *Pool, gateways int) {
	if live != nil {
		p.livePool = live.livePool
		if p.readsEvents = p.usesCaches() && live.readsEvents; p.readsEvents {
			p.tokens = live.tokens
		}
		p.draftLMCache(live)
	} else {
		p.livePool = &livePool{Routing: routing.NewPool(p.Picker, nil)}
		p.WaitQueue = queue.New(p.Routing, p.Queue, func(*queue.Ticket) {})
	}
	p.Draft = &routing.Draft{Policy: p.Picker, Handover: p.handover(), Members: membersOf(p.Pool, gateways),
		Limit: p.Saturation, Health: p.HealthWeight}
	p.Members = make(map[string]*Member, len(p.Workers))
	for i := range p.Workers {
		w := &p.Workers[i]
		var m *Member
		if live != nil {
			m = live.Members[w.Name]
		}
		if m == nil || !w.SameWorker(new(m.Worker.Spec())) {
			m = &Member{Name: w.Name}
		}
		p.Members[w.Name], p.Draft.Members[i].Ref = m, m
	}
	p.measureRegions()
}

// HasWorkers reports whether any worker of the pool is in rotation. For a draft's pool, it reports
// whether any would be after a reload.
func (p *Pool) HasWorkers(now time.Time) bool {
	if p.Draft == nil {
		return p.Routing.Up(now)
	}
	up, _ := p.Routing.UpUnder(p.Draft, now)
	return up
}

// Ready reports whether any worker of the pool is in rotation and not in backoff. For a draft's pool, it
// reports whether any would be after a reload.
func (p *Pool) Ready(now time.Time) bool {
	if p.Draft == nil {
		return p.Routing.Ready(now)
	}
	_, ready := p.Routing.UpUnder(p.Draft, now)
	return ready
}
