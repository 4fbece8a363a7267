package server

import (
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"slices"
	"strings"
	"weak"

	"tierway/config"
	"tierway/decisions"
	"tierway/openai"
	"tierway/openai/tokens"
	"tierway/queue"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/tiers"
)

// snapshot is one configuration, built and immutable. A request loads it once
// and keeps it to its end.
type snapshot struct {
	file       *config.File // with the live overrides
	generation int64        // of the configuration, as operators count them
	people     *people
	proxies    []netip.Prefix
	catalog    *tiers.Catalog
	pools      []*pool // tiers in order, then pools
	byName     map[string]*pool

	vocabulary string // counts prompts near a threshold; "" when there is no threshold
	usual      *pool  // the default tier; nil without tiers

	draft *draft // nil: it is in force
}

// pool is one tier or pool of a snapshot.
type pool struct {
	config.Pool
	routing *routing.Pool  // outlives the snapshot
	queue   *queue.Queue   // of those who wait for routing; likewise
	policy  routing.Policy // of routing; it is called under that one's lock only
	series  *telemetry.Tier
	waits   *telemetry.Waits
	served  [openai.Audio + 1]bool

	members map[string]*member // by the worker's name
}

// outcomes and dialects are the label values of tierway_requests_total.
var (
	outcomes = []string{string(decisions.OK), string(decisions.Refused), string(decisions.Failed), string(decisions.Truncated), string(decisions.ClientGone)}
	dialects = []string{openai.Other.String(), openai.Chat.String(), openai.Completions.String(), openai.Responses.String(),
		openai.Messages.String(), openai.Embeddings.String(), openai.Rerank.String(), openai.Score.String(),
		openai.Tokenize.String(), openai.Moderations.String(), openai.Images.String(), openai.Audio.String()}
)

// know puts other people in force under the same configuration.
func (s *Server) know(p *people) {
	snap := *s.snapshot.Load()
	snap.people = p
	s.snapshot.Store(&snap)
	s.people.Store(p)
}

// apply builds everything of a configuration that can fail, then puts it in
// force. On an error nothing has changed.
func (s *Server) apply(f *config.File, p *people, generation int64) error {
	snap := &snapshot{file: f, generation: generation, people: p, proxies: f.TrustedProxies(), catalog: f.Catalog(), byName: map[string]*pool{}}
	resolved := f.ResolvedPools()
	policies := make([]routing.Policy, len(resolved))
	var err error
	for i, p := range resolved {
		if policies[i], err = routing.New(p.Policy); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	s.fleet.Sync(f.Specs()) // waits for observe, which takes the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	s.shared = s.sharing(f)
	for i, p := range resolved {
		snap.add(s.poolLocked(p, policies[i], f))
	}
	snap.usual = snap.byName[snap.catalog.Default()]
	snap.vocabulary = snap.counts()
	s.snapshot.Store(snap)
	s.people.Store(p)
	s.forgetPoolsLocked(snap)
	s.decisions.resize(f.Decisions.Keep)
	s.keepsRecords.Store(f.Decisions.Keep > 0 || s.decisionFile != nil)
	s.traces.SetSample(f.Telemetry.Sample)
	s.metrics.KeepTenants(f.Telemetry.Tenants)
	s.budget.configure(f.Retry.Budget)
	s.bodies.configure(int64(f.MaxBufferedBytes), int64(f.MaxBodyBytes))
	s.limits.SetGateways(f.Gateways)
	s.loadSoon()
	return nil
}

// forgetPoolsLocked drops the pools that the configuration no longer has. Requests in
// flight finish on the old pool, and queued requests stay queued.
func (s *Server) forgetPoolsLocked(snap *snapshot) {
	for name := range s.pools {
		if snap.byName[name] == nil {
			s.retired = append(s.retired, retiredPool{weak.Make(s.queues[name]), weak.Make(s.pools[name])})
			delete(s.pools, name)
			delete(s.queues, name)
			delete(s.policies, name)
			s.metrics.ForgetTier(name)
		}
	}
}

// retiredPool is a pool that a reload removed. It stays as long as a request that
// began before may wait in its queue or make another attempt.
type retiredPool struct {
	queue   weak.Pointer[queue.Queue]
	routing weak.Pointer[routing.Pool]
}

// pooled is what time moves in a pool.
type pooled struct {
	queue   *queue.Queue
	routing *routing.Pool
}

// pooledNow returns the pools of the configuration, then the retired ones that
// requests still use.
func (s *Server) pooledNow() []pooled {
	var all []pooled
	for _, p := range s.snapshot.Load().pools {
		all = append(all, pooled{p.queue, p.routing})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = slices.DeleteFunc(s.retired, func(r retiredPool) bool {
		p := pooled{r.queue.Value(), r.routing.Value()}
		if p.queue == nil || p.routing == nil {
			return true
		}
		all = append(all, p)
		return false
	})
	return all
}

// counts returns the vocabulary that prompts are counted by: the one nearest to
// the default tier's model, or "" where nothing depends on a prompt's length.
func (snap *snapshot) counts() string {
	model, needed := "", len(snap.file.Tiers) > 1
	for _, p := range snap.pools {
		needed = needed || p.Context > 0
	}
	if snap.usual != nil {
		model = snap.usual.Model
	}
	if !needed {
		return ""
	}
	return tokens.NameFor(model)
}

func (snap *snapshot) add(p *pool) {
	snap.pools = append(snap.pools, p)
	snap.byName[p.Name] = p
}

// kept is a pool's policy with what it was made from.
type kept struct {
	config routing.Config
	policy routing.Policy
}

// policyLocked returns the policy that the pool of that name has, with all that
// it has learned, unless its configuration is another one now.
func (s *Server) policyLocked(c config.Pool, made routing.Policy) routing.Policy {
	if k, ok := s.policies[c.Name]; ok && reflect.DeepEqual(k.config, c.Policy) {
		return k.policy
	}
	s.policies[c.Name] = kept{c.Policy, made}
	return made
}

// poolLocked configures the long-lived pool of that name, or makes it.
func (s *Server) poolLocked(c config.Pool, policy routing.Policy, f *config.File) *pool {
	p := &pool{Pool: c, series: s.metrics.Tier(c.Name, c.Policy.Name, dialects, outcomes), waits: s.metrics.Waits(c.Name, tenants.Classes())}
	for _, d := range c.Serves {
		p.served[d] = true
	}
	p.policy = s.policyLocked(c, policy)
	if p.routing = s.pools[c.Name]; p.routing == nil {
		p.routing = routing.NewPool(p.policy, nil)
		s.pools[c.Name] = p.routing
	}
	members := s.membersLocked(c)
	p.members = make(map[string]*member, len(members))
	for i := range members {
		m := members[i].Ref.(*member)
		if m.gate == nil {
			m.gate = s.newBreaker(c.Name, p.routing, m, f.Breaker)
		} else {
			m.gate.Configure(f.Breaker)
		}
		members[i].Gate = m.gate
		p.members[m.name] = m
	}
	p.routing.Limit(c.Saturation)
	p.routing.SetSlowness(routing.Slowness(f.Breaker.Slow))
	p.queue = s.queueLocked(c.Name, p.routing, c.Queue)
	// After the new bounds, so that new slots are offered to queued requests.
	p.routing.Configure(p.policy, members)
	for _, m := range members { // a check may have ended before its worker was a member
		p.routing.Observe(m.ID, m.Ref, statusOf(m.Ref.(*member).worker.Status()))
	}
	return p
}

// serving returns the first pool that answers the dialect and that the tenant
// may use; nil when none does.
func (snap *snapshot) serving(d openai.Dialect, c *tenants.Caller) *pool {
	for _, p := range snap.pools {
		if p.served[d] && c.MayUseTier(p.Name) && p.admits(c) {
			return p
		}
	}
	return nil
}

// passing returns the pool whose paths cover a request that matches no route, the
// longest pattern first; nil when none does. Engines clean dot segments and doubled
// slashes and often ignore a slash at the end, so a path that they could read as
// another one is covered by no pattern.
func (snap *snapshot) passing(urlPath string, c *tenants.Caller) *pool {
	bare := strings.TrimSuffix(urlPath, "/")
	if clean := path.Clean(urlPath); clean != urlPath && (clean != bare || isRoute(bare)) {
		return nil
	}
	var best *pool
	longest := -1
	for _, p := range snap.pools {
		for _, pattern := range p.Paths {
			if len(pattern) > longest && matchPath(pattern, urlPath) && c.MayPass(p.Name) && p.admits(c) {
				best, longest = p, len(pattern)
			}
		}
	}
	return best
}

// tierNamed returns the tier of that name, in capital letters or not; nil without
// one.
func (snap *snapshot) tierNamed(name string) *pool {
	for _, p := range snap.pools {
		if p.Tier && strings.EqualFold(p.Name, name) {
			return p
		}
	}
	return nil
}

// matchPath tells whether a pattern, exact or with a star at its end, takes a
// path.
func matchPath(pattern, urlPath string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(urlPath, prefix)
	}
	return pattern == urlPath
}
