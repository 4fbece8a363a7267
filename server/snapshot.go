package server

import (
	"fmt"
	"net/netip"
	"path"
	"reflect"
	"strings"

	"tierway/config"
	"tierway/decisions"
	"tierway/openai"
	"tierway/openai/tokens"
	"tierway/routing"
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

// newSnapshot builds what of a configuration can fail, and puts nothing in force: its pools
// are to be connected with live ones. A pool that live has with the same policy keeps that
// one, with what it remembers. live is nil at the start.
func newSnapshot(f *config.File, who *people, generation int64, live *snapshot) (*snapshot, error) {
	snap := &snapshot{file: f, generation: generation, people: who, proxies: f.TrustedProxies(), catalog: f.Catalog(), byName: map[string]*pool{}}
	for _, c := range f.ResolvedPools() {
		p := &pool{Pool: c}
		for _, d := range c.Serves {
			p.served[d] = true
		}
		var err error
		if was := live.pool(c.Name); was != nil && reflect.DeepEqual(was.Policy, c.Policy) {
			p.policy = was.policy
		} else if p.policy, err = routing.New(c.Policy); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		snap.pools = append(snap.pools, p)
		snap.byName[p.Name] = p
	}
	snap.usual = snap.byName[snap.catalog.Default()]
	snap.vocabulary = snap.counts()
	return snap, nil
}

// pool returns the tier or pool of that name; nil without one, or without a snapshot.
func (snap *snapshot) pool(name string) *pool {
	if snap == nil {
		return nil
	}
	return snap.byName[name]
}

// apply builds everything of a configuration that can fail, then puts it in
// force. On an error nothing has changed.
func (s *Server) apply(f *config.File, p *people, generation int64) error {
	was := s.snapshot.Load()
	snap, err := newSnapshot(f, p, generation, was)
	if err != nil {
		return err
	}
	s.fleet.Sync(f.Specs()) // waits for observe, which takes the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetWorkersLocked(was)
	s.shared = s.sharing(f)
	for _, p := range snap.pools {
		s.openLocked(p, was.pool(p.Name), f.Breaker)
	}
	s.snapshot.Store(snap)
	s.people.Store(p)
	s.closeLocked(was, snap)
	s.decisions.Resize(f.Decisions.Keep)
	s.keepsRecords.Store(f.Decisions.Keep > 0 || s.decisionFile != nil)
	s.traces.SetSample(f.Telemetry.Sample)
	s.metrics.KeepTenants(f.Telemetry.Tenants)
	s.budget.configure(f.Retry.Budget)
	s.bodies.configure(int64(f.MaxBufferedBytes), int64(f.MaxBodyBytes))
	s.limits.SetGateways(f.Gateways)
	s.loadSoon()
	return nil
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
