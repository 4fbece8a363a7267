package server

import (
	"slices"
	"time"
	"weak"

	"tierway/breaker"
	"tierway/config"
	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/tenants"
)

// pool is one tier or pool of a snapshot.
type pool struct {
	config.Pool
	*livePool
	policy  routing.Policy // of routing; it is called under that one's lock only
	series  *telemetry.Tier
	served  [openai.Audio + 1]bool
	members map[string]*member // by the worker's name
	draft   *routing.Draft     // what a draft has in place of routing's policy and members; nil where it is in force
}

// livePool is what a pool keeps when its configuration is replaced. It lives as long as
// requests use it.
type livePool struct {
	routing *routing.Pool
	queue   *queue.Queue // of the requests that wait for routing
	waits   *telemetry.Waits
}

// membersOf returns the workers of a tier or pool as a policy knows them, with the part
// of their bounds that one of so many gateways has.
func membersOf(c config.Pool, gateways int) []routing.Member {
	members := make([]routing.Member, len(c.Workers))
	for i, w := range c.Workers {
		members[i] = routing.Member{ID: w.Name, Weight: *w.Weight, Group: w.Priority, MaxInflight: part(w.MaxInflight, gateways),
			MaxTokensInflight: part(w.MaxTokensInflight, int64(gateways)), Models: modelHashes(w.Models)}
	}
	return members
}

// part is one gateway's part of a bound that so many share: an equal one, rounded
// up, because a gateway without any place would serve nobody.
func part[N int | int64](bound, gateways N) N { return (bound + gateways - 1) / max(1, gateways) }

// configure puts the pool's policy and members in force, for one of so many gateways.
func (p *pool) configure(gateways int) {
	members := membersOf(p.Pool, gateways)
	for i := range members {
		m := p.members[members[i].ID]
		members[i].Ref, members[i].Gate = m, m.gate
	}
	p.routing.Configure(p.policy, members)
}

// openLocked connects a pool of a new snapshot with its live pool and its workers, which
// are those of was where they are the same, and configures them. was is nil for a new pool.
func (s *Server) openLocked(p, was *pool, c breaker.Config) {
	p.series = s.metrics.Tier(p.Name, p.Policy.Name, dialects, outcomes)
	if was != nil {
		p.livePool = was.livePool
	} else {
		p.livePool = s.newLivePool(p)
	}
	var reasons []string
	for _, r := range routing.Reasons(p.Policy.Name) {
		reasons = append(reasons, string(r))
	}
	p.members = make(map[string]*member, len(p.Workers))
	for _, w := range p.Workers {
		m := s.memberLocked(p, was, w.Name, reasons)
		if m.gate == nil {
			m.gate = s.newBreaker(p.Name, p.routing, m, c)
		} else {
			m.gate.Configure(c)
		}
		p.members[w.Name] = m
	}
	p.routing.Limit(p.Saturation)
	p.routing.SetSlowness(routing.Slowness(c.Slow))
	p.queue.Configure(p.Queue, time.Now())
	// After the new bounds, so that new slots are offered to queued requests.
	p.configure(s.shared)
	for name, m := range p.members { // a check may have ended before its worker was a member
		p.routing.Observe(name, m, statusOf(m.worker.Status()))
	}
}

// newLivePool makes what a new pool will keep.
func (s *Server) newLivePool(p *pool) *livePool {
	live := &livePool{routing: routing.NewPool(p.policy, nil), waits: s.metrics.Waits(p.Name, tenants.Classes())}
	live.queue = queue.New(live.routing, p.Queue, woken)
	live.routing.Watch(func() { s.passQueue(live.queue, time.Now()) })
	return live
}

// closeLocked forgets the pools of was that snap no longer has. Requests in flight finish
// on the old pool, and queued requests stay queued.
func (s *Server) closeLocked(was, snap *snapshot) {
	if was == nil {
		return
	}
	for _, p := range was.pools {
		if snap.byName[p.Name] == nil {
			s.retired = append(s.retired, weak.Make(p.livePool))
			s.metrics.ForgetTier(p.Name)
		}
	}
}

// livePools returns the pools of the configuration, then the retired ones that requests
// still use.
func (s *Server) livePools() []*livePool {
	var all []*livePool
	for _, p := range s.snapshot.Load().pools {
		all = append(all, p.livePool)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = slices.DeleteFunc(s.retired, func(r weak.Pointer[livePool]) bool {
		p := r.Value()
		if p != nil {
			all = append(all, p)
		}
		return p == nil
	})
	return all
}

// sharing returns how many gateways share the workers: as many as the
// configuration says, or as live where Redis counts more.
func (s *Server) sharing(f *config.File) int {
	if s.redis == nil {
		return f.Gateways
	}
	return max(f.Gateways, s.redis.Gateways())
}

// shareAgain divides the workers' bounds anew when another number of gateways
// shares them than did.
func (s *Server) shareAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snapshot.Load()
	now := s.sharing(snap.file)
	if now == s.shared {
		return
	}
	s.log.Info("another number of gateways shares the workers' bounds", "gateways", now, "before", s.shared)
	s.shared = now
	for _, p := range snap.pools {
		p.configure(now)
	}
}
