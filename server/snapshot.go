package server

import (
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"tierway/breaker"
	"tierway/config"
	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/workers"
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
}

// pool is one tier or pool of a snapshot.
type pool struct {
	config.Pool
	routing *routing.Pool  // outlives the snapshot
	queue   *queue.Queue   // of those who wait for routing; likewise
	gates   *breaker.Group // likewise
	policy  routing.Policy // of routing; it is called under that one's lock only
	series  *telemetry.Tier
	waits   *telemetry.Waits
	served  [openai.Audio + 1]bool
}

// member is one worker as requests use it. It lives as long as the worker.
type member struct {
	worker *workers.Worker
	name   string
	series *telemetry.Worker
	gate   *breaker.Breaker
	stats  *workerStats
	// refuses is set when the engine answered 400 to a field that was added
	// for accounting; nothing is added for it again.
	refuses atomic.Bool
	// unranked is likewise set of the field for its own queue's order.
	unranked atomic.Bool
	// timed is set for llama.cpp, whose last chunk has its timings unless usage
	// was asked for: they say the same, and its clients show them.
	timed atomic.Bool
	// excused counts the failures in a row that another worker's like answer has
	// excused.
	excused atomic.Int32
}

// outcomes and dialects are the label values of tierway_requests_total.
var (
	outcomes = []string{string(routing.OK), string(routing.Refused), string(routing.Failed), string(routing.Truncated), string(routing.ClientGone)}
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
	catalog, err := tiers.New(f.Catalog())
	if err != nil {
		return fmt.Errorf("building the model catalogue: %w", err)
	}
	snap := &snapshot{file: f, generation: generation, people: p, proxies: f.TrustedProxies(), catalog: catalog, byName: map[string]*pool{}}
	resolved := f.ResolvedPools()
	policies := make([]routing.Policy, len(resolved))
	for i, p := range resolved {
		if policies[i], err = routing.New(p.Policy); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	s.fleet.Sync(f.Specs()) // waits for observe, which takes the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
	for i, p := range resolved {
		snap.add(s.poolLocked(p, policies[i], f))
	}
	snap.usual = snap.byName[snap.catalog.Default()]
	snap.vocabulary = snap.counts()
	s.snapshot.Store(snap)
	s.people.Store(p)
	s.forgetPoolsLocked(snap)
	s.budget.configure(f.Retry.Budget)
	s.limits.SetGateways(f.Gateways)
	s.loadSoon()
	return nil
}

// forgetPoolsLocked drops the pools that are in no configuration any more.
// Requests on them end as they began.
func (s *Server) forgetPoolsLocked(snap *snapshot) {
	for name := range s.pools {
		if snap.byName[name] == nil {
			delete(s.pools, name)
			delete(s.queues, name)
			delete(s.breakers, name)
			delete(s.policies, name)
			s.metrics.ForgetTier(name)
		}
	}
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
	return openai.VocabularyOf(model)
}

func (snap *snapshot) add(p *pool) {
	snap.pools = append(snap.pools, p)
	snap.byName[p.Name] = p
}

// forgetLocked drops the members whose workers are gone.
func (s *Server) forgetLocked() {
	for w := range s.members {
		now := s.fleet.Get(w.Name())
		if now != w {
			delete(s.members, w)
		}
		if now == nil || now.Pool() != w.Pool() {
			s.metrics.ForgetWorker(w.Name())
		}
	}
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
	p := &pool{Pool: c, series: s.metrics.Tier(c.Name, dialects, outcomes), waits: s.metrics.Waits(c.Name, tenants.Classes())}
	for _, d := range c.Serves {
		p.served[d] = true
	}
	var members []routing.Member
	var gated []breaker.Member
	for _, spec := range c.Workers {
		w := s.fleet.Get(spec.Name)
		m := s.members[w]
		if m == nil {
			m = &member{worker: w, name: spec.Name, stats: &workerStats{}, series: s.metrics.Worker(c.Name, spec.Name)}
			s.members[w] = m
		}
		m.timed.Store(c.Engine == openai.EngineLlamaCpp || m.timed.Load())
		members = append(members, routing.Member{ID: spec.Name, Weight: *spec.Weight, Group: spec.Priority,
			MaxInflight: part(spec.MaxInflight, f.Gateways), MaxTokensInflight: part(spec.MaxTokensInflight, int64(f.Gateways)), Models: modelHashes(spec.Models), Ref: m})
		gated = append(gated, breaker.Member{ID: spec.Name, Ref: m})
	}
	p.policy = s.policyLocked(c, policy)
	p.gates = s.breakersLocked(c.Name, f.Breaker, gated)
	for i := range members {
		m := members[i].Ref.(*member)
		if m.gate == nil { // a member keeps its breaker
			m.gate = p.gates.Breaker(m.name, m)
		}
		members[i].Gate = m.gate
	}
	if p.routing = s.pools[c.Name]; p.routing == nil {
		p.routing = routing.NewPool(p.policy, members)
		s.pools[c.Name] = p.routing
	} else {
		p.routing.Configure(p.policy, members)
	}
	p.routing.Limit(c.Saturation)
	p.queue = s.queueLocked(c.Name, p.routing, c.Queue)
	for _, m := range members { // a check may have ended before its worker was a member
		p.routing.Observe(m.ID, m.Ref, statusOf(m.Ref.(*member).worker.Status()))
	}
	return p
}

// part is this gateway's part of a bound that so many share: an equal one, rounded
// up, because a gateway without any place would serve nobody.
func part[N int | int64](bound, gateways N) N { return (bound + gateways - 1) / max(1, gateways) }

// statusOf is what a pool is told of a worker's status.
func statusOf(st workers.Status) routing.Status {
	return routing.Status{Up: st.Up, Waiting: st.Waiting, KVUsage: st.KVUsage, LoadAt: st.LoadAt}
}

// observe is told by the fleet what a health check or a scrape has found.
func (s *Server) observe(w *workers.Worker, st workers.Status) {
	s.mu.Lock()
	m, p := s.members[w], s.pools[w.Pool()]
	s.mu.Unlock()
	if m == nil || p == nil {
		return
	}
	if openai.Engine(st.Engine) == openai.EngineLlamaCpp {
		m.timed.Store(true)
	}
	p.Observe(w.Name(), m, statusOf(st))
}

// breakerLevel is a state as tierway_worker_breaker shows it.
func breakerLevel(st breaker.State) int {
	switch st {
	case breaker.HalfOpen:
		return 1
	case breaker.Open:
		return 2
	}
	return 0
}

// engine is what the worker runs, as configured or as its answers tell.
func (m *member) engine() openai.Engine {
	if e := openai.Engine(m.worker.Spec().Engine); e != openai.EngineAuto && e != "" {
		return e
	}
	return openai.Engine(m.worker.Status().Engine)
}

// gauges shows every worker to a scrape.
func (s *Server) gauges() []telemetry.WorkerGauges {
	var out []telemetry.WorkerGauges
	now := time.Now()
	for _, p := range s.snapshot.Load().pools {
		for _, v := range p.routing.Snapshot(now) {
			g := telemetry.WorkerGauges{Tier: p.Name, Worker: v.ID, Up: v.Up, Cooling: v.Cooling > 0, Inflight: v.Inflight,
				PendingTokens: v.PendingTokens, OutputTokens: v.OutputTokens, Waiting: v.Waiting, KVUsage: v.KVUsage,
				Breaker: breakerLevel(p.gates.Breaker(v.ID, v.Ref).State()), PrefillRate: v.Rate, Bound: v.Bound, Saturated: v.Saturated}
			if w := s.fleet.Get(v.ID); w != nil {
				g.Running = w.Status().Running
			}
			out = append(out, g)
		}
	}
	return out
}

// serving returns the first pool that answers the dialect and that the tenant
// may use; nil when none does.
func (snap *snapshot) serving(d openai.Dialect, c *tenants.Caller) *pool {
	for _, p := range snap.pools {
		if p.served[d] && c.MayUseTier(p.Name) {
			return p
		}
	}
	return nil
}

// passing returns the pool whose paths take a request that no route takes, the
// longest pattern first; nil when none does.
func (snap *snapshot) passing(urlPath string, c *tenants.Caller) *pool {
	if path.Clean(urlPath) != urlPath { // dot segments and doubled slashes would reach the engine as another path
		return nil
	}
	var best *pool
	longest := -1
	for _, p := range snap.pools {
		for _, pattern := range p.Paths {
			if len(pattern) > longest && matchPath(pattern, urlPath) && c.MayPass(p.Name) {
				best, longest = p, len(pattern)
			}
		}
	}
	return best
}

// matchPath tells whether a pattern, exact or with a star at its end, takes a
// path.
func matchPath(pattern, urlPath string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(urlPath, prefix)
	}
	return pattern == urlPath
}
