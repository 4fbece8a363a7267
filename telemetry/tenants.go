package telemetry

import (
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// tenantCounts counts what tenants use. The busiest have series of their own, all
// others share those of the tenant "other". What is counted for a tenant that
// loses its series is kept beside them, so that nothing is ever missing from the
// sum, and no series ever falls.
type tenantCounts struct {
	mu     sync.RWMutex // held for reading while something is counted, for writing while a tenant's place changes
	keep   int          // how many may have series of their own
	own    int          // how many have
	known  map[string]*tenant
	other  *counts
	former *counts // of those that have lost their series

	ranking          sync.Mutex // one comparison at a time; taken before mu
	ranked           time.Time  // the last one; zero before the first
	outcomes, limits []string
	index            map[string]int // of a limit
	descs, past      []*prometheus.Desc
}

// tenant is one that has asked for something lately.
type tenant struct {
	*counts              // its own, or those that it shares
	own     bool         // it has series of its own
	shares  bool         // it always shares
	recent  atomic.Int64 // requests since the tenants were compared last
	score   float64      // of requests, each worth half after halfLife; guarded by ranking
}

// counts are those behind the series of one tenant.
type counts struct {
	requests []atomic.Int64 // by outcome
	tokens   [3]atomic.Int64
	refusals []atomic.Int64 // by limit
}

// tokenKinds are the values of the label kind, in the order of counts.tokens.
var tokenKinds = [...]string{"prompt", "cached", "output"}

const (
	// noTenant is the label of requests that ended before their tenant was known.
	noTenant = "none"
	// maxTenants bounds the tenants that are compared: those beyond share the
	// series of "other" until idle ones are forgotten. 100,000 of them take some
	// 15 MB, and are more than have ever asked within a few minutes.
	maxTenants = 100_000
)

// tenantSeries are in the order of counts: requests, tokens, refusals. Each has
// one more label, of tenantLabels.
var tenantSeries = []series{
	{"tierway_tenant_requests_total", "Ended requests by tenant and outcome. The telemetry.tenants busiest tenants have series of their own, which begin at 0 when they are given; all others together are the tenant other, which never falls. The tenant none stands for requests without a known one. With tierway_tenant_former_requests_total it is the sum of tierway_requests_total once nothing is in flight.", prometheus.CounterValue},
	{"tierway_tenant_tokens_total", "Tokens by tenant and kind: prompt, cached (part of prompt), output. Which tenants have series: see tierway_tenant_requests_total.", prometheus.CounterValue},
	{"tierway_tenant_refusals_total", "Requests refused by a limit, by tenant and limit. Which tenants have series: see tierway_tenant_requests_total.", prometheus.CounterValue},
}

// formerSeries are in the order of tenantSeries.
var formerSeries = []series{
	{"tierway_tenant_former_requests_total", "What tierway_tenant_requests_total has counted for tenants that have lost their series, so that the two together are all requests. It is apart, since in a rate of the whole it would count twice.", prometheus.CounterValue},
	{"tierway_tenant_former_tokens_total", "What tierway_tenant_tokens_total has counted for tenants that have lost their series.", prometheus.CounterValue},
	{"tierway_tenant_former_refusals_total", "What tierway_tenant_refusals_total has counted for tenants that have lost their series.", prometheus.CounterValue},
}

// tenantLabels are the labels of tenantSeries beside tenant.
var tenantLabels = [...]string{"outcome", "kind", "limit"}

// newTenants makes the counts and registers them.
func newTenants(d *definer) *tenantCounts {
	t := &tenantCounts{known: map[string]*tenant{}, index: map[string]int{}}
	for i, label := range tenantLabels {
		d.read(tenantSeries[i:i+1], "tenant", label)
		d.read(formerSeries[i:i+1], label)
		t.descs = append(t.descs, descsOf(tenantSeries[i:i+1], "tenant", label)...)
		t.past = append(t.past, descsOf(formerSeries[i:i+1], label)...)
	}
	t.reset()
	d.registry.MustRegister(t)
	return t
}

// reset begins anew, for the outcomes and limits that there are.
func (t *tenantCounts) reset() {
	t.other, t.former = t.newCounts(), t.newCounts()
	t.known = map[string]*tenant{"": {counts: t.newCounts(), shares: true}, other: {counts: t.other, shares: true}}
	t.own = 0
}

func (t *tenantCounts) newCounts() *counts {
	return &counts{requests: make([]atomic.Int64, len(t.outcomes)), refusals: make([]atomic.Int64, len(t.limits))}
}

// end says which outcomes there are, before anything is counted.
func (t *tenantCounts) end(outcomes []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes = outcomes
	t.reset()
}

// limit says which limits there are, before anything is counted.
func (t *tenantCounts) limit(names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limits = names
	for i, n := range names {
		t.index[n] = i
	}
	t.reset()
}

// TenantEnded counts an ended request of a tenant, "" for one that nobody knows,
// with the tokens that it was charged for: those that engines reported, or else the
// gateway's estimate. The outcome is an index into those that
// Outside was given. It is to be called once for each request.
func (m *Metrics) TenantEnded(tenant string, outcome int, prompt, cached, output int64) {
	t := m.tenants.enter(tenant)
	defer m.tenants.mu.RUnlock()
	t.recent.Add(1)
	t.requests[outcome].Add(1)
	if prompt > 0 {
		t.tokens[0].Add(prompt)
	}
	if cached > 0 {
		t.tokens[1].Add(cached)
	}
	if output > 0 {
		t.tokens[2].Add(output)
	}
}

// TenantLimited counts a request of a tenant that a limit refused, one of those
// that Limits was given.
func (m *Metrics) TenantLimited(tenant, limit string) {
	i, ok := m.tenants.index[limit]
	if !ok {
		return
	}
	t := m.tenants.enter(tenant)
	defer m.tenants.mu.RUnlock()
	t.refusals[i].Add(1)
}

// enter returns a tenant, and holds the lock for reading until the caller gives it
// back: nobody's place changes while something is counted.
func (t *tenantCounts) enter(name string) *tenant {
	for {
		t.mu.RLock()
		one := t.known[name]
		if one == nil && len(t.known) >= maxTenants {
			one = t.known[other]
		}
		if one != nil {
			return one
		}
		t.mu.RUnlock()
		t.meet(name)
	}
}

// meet gives a new tenant a place: one of its own while there are any left.
func (t *tenantCounts) meet(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[name] != nil || len(t.known) >= maxTenants {
		return
	}
	one := &tenant{counts: t.other, shares: name == noTenant || !utf8.ValidString(name)} // a label's value must be UTF-8, and mean one thing
	t.known[name] = one
	if t.own < t.keep && !one.shares {
		t.promote(one)
	}
}

// promote gives a tenant series of its own, which begin at 0.
func (t *tenantCounts) promote(one *tenant) {
	one.counts, one.own = t.newCounts(), true
	t.own++
}

// demote takes a tenant's series away and keeps what they have counted.
func (t *tenantCounts) demote(one *tenant) {
	one.counts.moveTo(t.former)
	one.counts, one.own = t.other, false
	t.own--
}

// moveTo adds the counts to others. Nothing may be counted meanwhile.
func (c *counts) moveTo(sum *counts) {
	for i := range c.requests {
		sum.requests[i].Add(c.requests[i].Load())
	}
	for i := range c.tokens {
		sum.tokens[i].Add(c.tokens[i].Load())
	}
	for i := range c.refusals {
		sum.refusals[i].Add(c.refusals[i].Load())
	}
}
