package control

import (
	"log/slog"
	"slices"
	"sync"
	"time"
	"weak"

	"tierway/breaker"
	"tierway/config"
	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/workers"
)

// Pools connects the pools of a snapshot with their workers, breakers and queues, and keeps
// those over a reload. It is safe for concurrent use.
type Pools struct {
	log      *slog.Logger
	metrics  *telemetry.Metrics
	recover  *Recoverer
	rand     func() uint64
	redis    *store.Redis // nil without
	fleet    *workers.Fleet
	snapshot func() *Snapshot

	mu      sync.Mutex               // guards what follows; connect holds it until its snapshot is in force
	retired []weak.Pointer[livePool] // pools that a reload removed and that requests may still use
	shared  int                      // the gateways among which the workers' bounds are divided
}

// Waiter is what the tickets of a pool's queue refer to. OnWake is called when the wait is over;
// it must not block.
type Waiter interface{ OnWake() }

// Pool is one tier or pool of a snapshot. It is immutable, except for what outlives a reload:
// routing, queue and members, which are safe for concurrent use.
type Pool struct {
	config.Pool
	*livePool
	Picker  routing.Policy // of routing; it is called under that one's lock only
	Series  *telemetry.Tier
	Served  [openai.Audio + 1]bool
	Members map[string]*Member // by the worker's name
	Draft   *routing.Draft     // what a draft has in place of routing's policy and members; nil where it is in force
}

// livePool is what a pool keeps when its configuration is replaced. It lives as long as
// requests use it.
type livePool struct {
	Routing   *routing.Pool
	WaitQueue *queue.Queue // of the requests that wait for routing
	Waits     telemetry.Waits
}

// membersOf returns the workers of a tier or pool as a policy knows them, with the part
// of their bounds that one of so many gateways has.
func membersOf(c config.Pool, gateways int) []routing.Member {
	members := make([]routing.Member, len(c.Workers))
	for i, w := range c.Workers {
		members[i] = routing.Member{
			ID:                w.Name,
			Weight:            *w.Weight,
			Group:             w.Priority,
			MaxInflight:       part(w.MaxInflight, gateways),
			MaxTokensInflight: part(w.MaxTokensInflight, int64(gateways)),
			Models:            modelHashes(w.Models),
		}
	}
	return members
}

// part is one gateway's part of a bound that so many share: an equal one, rounded
// up, because a gateway without any place would serve no request.
func part[N int | int64](bound, gateways N) N { return (bound + gateways - 1) / max(1, gateways) }

// configure puts the pool's policy and members in force, for one of so many gateways.
func (p *Pool) configure(gateways int) {
	members := membersOf(p.Pool, gateways)
	for i := range members {
		m := p.Members[members[i].ID]
		members[i].Ref, members[i].Gate = m, m.Gate
	}
	p.Routing.Configure(p.Picker, members)
}

// connect gives the pools of a new snapshot their workers and what they keep, and has the
// snapshot put in force by publish. was is the one before.
func (ps *Pools) connect(was, snap *Snapshot, publish func()) {
	ps.fleet.Sync(snap.File.Specs()) // waits for observe, which takes the lock
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.forgetWorkersLocked(was)
	ps.shared = ps.Gateways(snap.File)
	for _, p := range snap.Pools {
		ps.openLocked(p, was.ByName[p.Name], snap.File.Breaker)
	}
	publish()
	ps.retireLocked(was, snap)
}

// openLocked connects a pool of a new snapshot with its live pool and its workers, which
// are those of was where they are the same, and configures them. was is nil for a new pool.
func (ps *Pools) openLocked(p, was *Pool, c breaker.Config) {
	p.Series = ps.metrics.Tier(p.Name, p.Policy.Name, Dialects, Outcomes)
	if was != nil {
		p.livePool = was.livePool
	} else {
		p.livePool = ps.newLivePool(p)
	}
	var reasons []string
	for _, r := range routing.Reasons(p.Policy.Name) {
		reasons = append(reasons, string(r))
	}
	p.Members = make(map[string]*Member, len(p.Workers))
	for _, w := range p.Workers {
		m := ps.memberLocked(p, was, w.Name, reasons)
		if m.Gate == nil {
			m.Gate = ps.newBreaker(p.Name, p.Routing, m, c)
		} else {
			m.Gate.Configure(c)
		}
		p.Members[w.Name] = m
	}
	p.Routing.SetSaturation(p.Saturation)
	p.Routing.SetSlowness(routing.Slowness(c.Slow))
	p.WaitQueue.Configure(p.Queue, time.Now())
	// After the new bounds, so that new slots are offered to queued requests.
	p.configure(ps.shared)
	for _, m := range p.Members { // a check may have ended before its worker was a member
		p.observe(m, m.Worker.Status())
	}
}

// newLivePool makes what a new pool will keep.
func (ps *Pools) newLivePool(p *Pool) *livePool {
	live := &livePool{Routing: routing.NewPool(p.Picker, nil), Waits: ps.metrics.Waits(p.Name, tenants.Classes())}
	live.WaitQueue = queue.New(live.Routing, p.Queue, func(t *queue.Ticket) { t.Ref.(Waiter).OnWake() })
	live.Routing.Watch(func() { ps.passQueue(live.WaitQueue, time.Now()) })
	return live
}

// retireLocked forgets the pools of was that snap no longer has. Requests in flight finish
// on the old pool, and queued requests stay queued.
func (ps *Pools) retireLocked(was, snap *Snapshot) {
	for _, p := range was.Pools {
		if snap.ByName[p.Name] == nil {
			ps.retired = append(ps.retired, weak.Make(p.livePool))
			ps.metrics.RemoveTier(p.Name)
		}
	}
}

// live returns the pools of the configuration, then the removed ones that requests still use.
func (ps *Pools) live() []*livePool {
	var all []*livePool
	for _, p := range ps.snapshot().Pools {
		all = append(all, p.livePool)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.retired = slices.DeleteFunc(ps.retired, func(r weak.Pointer[livePool]) bool {
		p := r.Value()
		if p != nil {
			all = append(all, p)
		}
		return p == nil
	})
	return all
}

// Gateways returns how many gateways share the workers: as many as the configuration says, or
// as Redis counts if those are more.
func (ps *Pools) Gateways(f *config.File) int {
	if ps.redis == nil {
		return f.Gateways
	}
	return max(f.Gateways, ps.redis.Gateways())
}

// shareAgain divides the workers' bounds anew if the number of gateways has changed.
func (ps *Pools) shareAgain() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	snap := ps.snapshot()
	now := ps.Gateways(snap.File)
	if now == ps.shared {
		return
	}
	ps.log.Info("the number of gateways that share the workers changed", "gateways", now, "before", ps.shared)
	ps.shared = now
	for _, p := range snap.Pools {
		p.configure(now)
	}
}

// Admits reports whether the pool serves the caller: a tenant's pool serves no other tenant.
func (p *Pool) Admits(c *tenants.Caller) bool { return p.Tenant == "" || p.Tenant == c.Tenant }
