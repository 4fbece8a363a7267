package control

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"tierway/config"
	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/tokenizer"
	"tierway/workers"
	"tierway/workers/kvcache"
)

// Pools connects the pools of a snapshot with their workers, breakers and queues, which outlive a
// reload. It is safe for concurrent use.
type Pools struct {
	log     *slog.Logger
	metrics *telemetry.Metrics
	recover *Recoverer
	rand    func() uint64
	redis   *store.Redis // nil without
	fleet   *workers.Fleet
	caches  *kvcache.Caches
	current atomic.Pointer[Snapshot] // the last one that was connected
	// dial opens the connections to LMCache's controllers; nil: net.Dialer
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	onStopped func(StoppedWorkers) // set by OnStopped before Run
	silent    map[*Member]bool     // of which logSilent has logged the beginning; used by the poll only

	connected chan struct{} // holds one after a new snapshot
	queued    chan struct{} // signals that a request has begun to wait in a queue
	sharing   *sharing      // nil without Redis

	configuring sync.Mutex // one change of the pools at a time: a reload, or another number of gateways
	gateways    int        // number of gateways that share the workers' bounds; guarded by configuring

	mu      sync.Mutex               // guards retired; no work is done under it
	retired []weak.Pointer[livePool] // pools that a reload removed and that requests may still use
}

// Waiter is a waiting request, the Ref of a ticket in a pool's queue. OnWake is called when the wait
// ends; it must not block.
type Waiter interface{ OnWake() }

// Pool is one tier or pool of a snapshot. It is immutable, except for routing, queue and members, which
// outlive a reload and are safe for concurrent use.
type Pool struct {
	config.Pool
	*livePool
	Picker         routing.Policy // the policy of Routing, which calls it under its own lock only
	Prefill        routing.Policy // the same of the prefill stage; nil without a hand-over
	Series         *telemetry.Tier
	HandoverSeries *telemetry.Handover // nil without a hand-over
	Served         [openai.Audio + 1]bool
	Members        map[string]*Member // by the worker's name
	regions        *regions           // nil if no worker has a region
	readsEvents    bool               // the policy uses the workers' KV-cache events
	tokens         *promptTokens      // nil if the policy uses neither these nor look-ups in LMCache's controller
	lmcache        *lmcacheSource     // nil if the policy does not use LMCache's controller
	Draft          *routing.Draft     // replaces policy and members of Routing in a draft; nil in a configuration in force

	changed   []*Member            // members that are new, or configured in another way than before
	tokenizer *tokenizer.Tokenizer // of the policy; nil if it has none
	servers   map[string]uint64    // by worker, see ServerOf
	sketch    []uint64             // the lowest of them
	former    map[uint64]bool      // those of earlier configurations
}

// livePool is the state of a pool that outlives a reload. It lives as long as requests use it.
type livePool struct {
	Routing   *routing.Pool
	WaitQueue *queue.Queue // the requests that wait for a worker of Routing
	Caches    *kvcache.Pool
	Waits     telemetry.Waits
	gateways  int // that share the bounds of Routing's workers; guarded by Pools.configuring
}

// membersOf returns the workers of a tier or pool for a policy, with one gateway's share of their
// bounds.
func membersOf(c config.Pool, gateways int) []routing.Member {
	members := make([]routing.Member, len(c.Workers))
	for i, w := range c.Workers {
		members[i] = routing.Member{
			ID:                w.Name,
			Weight:            *w.Weight,
			Group:             w.Priority,
			MaxInflight:       gatewayShare(w.MaxInflight, gateways),
			MaxTokensInflight: gatewayShare(w.MaxTokensInflight, int64(gateways)),
			Models:            modelHashes(w.Models),
			Region:            NameHash(w.Region),
			Stages:            c.Stages(&w),
		}
	}
	return members
}

// gatewayShare returns one gateway's equal share of a bound. It is rounded up, because a gateway
// without a slot would serve no request.
func gatewayShare[N int | int64](bound, gateways N) N {
	return (bound + gateways - 1) / max(1, gateways)
}

// configure puts the pool's policy and members in force. gateways is the number of gateways that share
// the workers.
func (p *Pool) configure(gateways int) {
	p.gateways = gateways
	members := membersOf(p.Pool, gateways)
	for i := range members {
		m := p.Members[members[i].ID]
		members[i].Ref, members[i].Gate = m, m.Gate
	}
	p.Routing.SetHandover(p.handover())
	p.Routing.Configure(p.Picker, members)
}

// handover returns how the pool's workers hand prompts over, or nil without that.
func (p *Pool) handover() *routing.Handover {
	if p.Prefill == nil {
		return nil
	}
	return &routing.Handover{Policy: p.Prefill, Threshold: p.UncachedThreshold}
}

// usesCaches reports whether a policy of the pool uses what the workers have cached.
func (p *Pool) usesCaches() bool {
	return routing.UsesCaches(p.Picker) || p.Prefill != nil && routing.UsesCaches(p.Prefill)
}

// connect gives the pools of a new snapshot their workers and the state that outlives a reload. The caller puts the
// snapshot in force and then calls observeNew.
func (ps *Pools) connect(snap *Snapshot) {
	ps.configuring.Lock()
	defer ps.configuring.Unlock()
	was := ps.current.Load()
	specs := make([]workers.Spec, 0, snap.File.WorkerCount())
	for _, p := range snap.Pools {
		specs = append(specs, p.Workers...)
	}
	ps.fleet.Sync(specs)
	ps.forgetWorkers(was)
	ps.caches.SetMemory(int(snap.File.KVEvents.MaxBytes))
	ps.gateways = ps.Gateways(snap.File)
	for _, p := range snap.Pools {
		ps.open(p, was.ByName[p.Name], snap.File)
	}
	ps.mu.Lock()
	ps.current.Store(snap)
	ps.retireLocked(was, snap)
	ps.mu.Unlock()
	wake(ps.connected)
}

// observeNew takes over the results of the health checks of new workers that ended before the snapshot was in force.
func (ps *Pools) observeNew(snap *Snapshot) {
	for _, p := range snap.Pools {
		p.observeAll(p.changed)
	}
}

// open connects a pool of a new snapshot with its live pool and its workers, and configures them.
// Workers that are the same in was, the previous pool of that name, are kept. was is nil for a new pool.
func (ps *Pools) open(p, was *Pool, f *config.File) {
	p.Series = ps.metrics.Tier(p.Name, p.Policy.Name, Dialects, Outcomes)
	if p.Handover != "" {
		p.HandoverSeries = ps.metrics.Handover(p.Name)
	}
	if was != nil {
		p.livePool, p.former = was.livePool, was.withFormer(p)
	} else {
		p.livePool = ps.newLivePool(p)
	}
	p.readsEvents = p.usesCaches()
	ps.openLMCache(p, was, f)
	ps.openTokens(p, was)
	if p.hasWorkersOf(was) {
		p.Members = was.Members
	} else {
		ps.openMembers(p, was, f)
	}
	for _, m := range p.Members {
		m.Gate.Configure(f.Breaker)
	}
	p.setInstances()
	p.setLookupMembers()
	p.Routing.SetSaturation(p.Saturation)
	p.Routing.SetHealthWeight(p.HealthWeight)
	p.Routing.SetSlowness(routing.Slowness(f.Breaker.Slow))
	p.WaitQueue.Configure(p.Queue, time.Now())
	// After the new bounds, so that new slots are offered to queued requests.
	if len(p.changed) > 0 || ps.gateways != p.gateways || !p.sameExceptWorkers(was) {
		p.configure(ps.gateways)
		if ps.redis == nil {
			_ = p.Routing.SetOtherGateways(time.Now(), ps.gateways-1) // without a load nothing can be wrong
		}
	}
	p.measureRegions()
	// Of a worker that was no member, health checks may have ended before.
	p.observeAll(p.changed)
}

// hasWorkersOf reports whether the members of was, the previous pool of that name, serve p too: the workers and all
// that members depend on are equal. was is nil for a new pool.
func (p *Pool) hasWorkersOf(was *Pool) bool {
	if was == nil || was.Picker != p.Picker || was.Prefill != p.Prefill || was.readsEvents != p.readsEvents ||
		was.Engine != p.Engine || len(was.Workers) != len(p.Workers) {
		return false
	}
	for i := range p.Workers {
		if !p.Workers[i].Equal(&was.Workers[i]) {
			return false
		}
	}
	return true
}

// openMembers sets the members of the pool, and those that are new, have another configuration or another place than in
// was, or use their events differently. was is nil for a new pool.
func (ps *Pools) openMembers(p, was *Pool, f *config.File) {
	var reasons []string
	for _, r := range routing.Reasons(append(p.Policies(), p.PrefillPolicy)...) {
		reasons = append(reasons, string(r))
	}
	p.Members = make(map[string]*Member, len(p.Workers))
	for i := range p.Workers {
		spec := &p.Workers[i]
		m := ps.memberOf(p, was, spec.Name, reasons)
		if m.Gate == nil {
			m.Gate = ps.newBreaker(p.Name, p.Routing, m, f.Breaker)
		}
		p.Members[spec.Name] = m
		if was == nil || i >= len(was.Workers) || was.Members[spec.Name] != m || !spec.Equal(&was.Workers[i]) ||
			was.readsEvents != p.readsEvents {
			p.changed = append(p.changed, m)
		}
	}
}

// sameExceptWorkers reports whether the pool has as many workers as was, and the same configuration except for them.
func (p *Pool) sameExceptWorkers(was *Pool) bool {
	if was == nil || len(was.Workers) != len(p.Workers) || was.Picker != p.Picker || was.Prefill != p.Prefill {
		return false
	}
	before, after := was.Pool, p.Pool
	before.Workers, after.Workers = nil, nil
	return reflect.DeepEqual(before, after)
}

// newLivePool returns the live pool of a new pool.
func (ps *Pools) newLivePool(p *Pool) *livePool {
	live := &livePool{Routing: routing.NewPool(p.Picker, nil), Caches: ps.caches.NewPool(),
		Waits: ps.metrics.Waits(p.Name, tenants.Classes())}
	live.WaitQueue = queue.New(live.Routing, p.Queue, func(t *queue.Ticket) { t.Ref.(Waiter).OnWake() })
	live.WaitQueue.OnWaiting(ps.startTicks)
	live.Routing.RecordJournal(ps.redis != nil)
	live.Routing.Watch(func() { ps.dispatchQueue(live.WaitQueue, time.Now()) })
	return live
}

// retireLocked retires the pools of was that snap does not have. Their in-flight requests finish there,
// and their queued requests stay queued.
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
	for _, p := range ps.current.Load().Pools {
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

// Gateways returns the number of gateways that share the workers: the configured number, or the number
// that Redis counts, without those of other fleets, if it is larger.
func (ps *Pools) Gateways(f *config.File) int {
	if ps.redis == nil {
		return f.Gateways
	}
	return max(f.Gateways, ps.redis.Gateways()-ps.foreignGateways())
}

// updateGatewayCount divides the workers' bounds again if the number of gateways has changed.
func (ps *Pools) updateGatewayCount() {
	ps.configuring.Lock()
	defer ps.configuring.Unlock()
	snap := ps.current.Load()
	now := ps.Gateways(snap.File)
	if now == ps.gateways {
		return
	}
	ps.log.Info("the number of gateways that share the workers changed", "gateways", now, "before", ps.gateways)
	ps.gateways = now
	for _, p := range snap.Pools {
		p.configure(now)
	}
}

// Admits reports whether the pool serves the caller: a tenant's pool serves no other tenant.
func (p *Pool) Admits(c *tenants.Caller) bool { return p.Tenant == "" || p.Tenant == c.Tenant }
