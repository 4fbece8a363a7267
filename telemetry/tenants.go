package telemetry

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// tenantCounts counts what tenants use. The busiest tenants have series of their own;
// all others share the series of the tenant "other". A series begins at 0 and never
// falls, so that its rate is right even when a tenant gains or loses its series.
type tenantCounts struct {
	descs [len(tenantLabels)]*prometheus.Desc

	ranking sync.Mutex // held while tenants are compared, before mu; guards ranked and the scores
	ranked  time.Time  // the last comparison; zero before the first

	mu      sync.Mutex // guards the rest; keep and tenant.own of a known one change under both
	keep    int        // how many may have series of their own
	own     int        // how many have
	known   map[string]*tenant
	listed  []*tenant // the known ones that can be forgotten; the elements are never changed
	other   counts
	removed counts // of removed series: tests check with it that no count is lost
	labels  [len(tenantLabels)][]string
}

// tenant is one that has asked for something lately.
type tenant struct {
	counts              // its own, or those that it shares
	name   string       // empty for requests without a known tenant
	own    bool         // it has series of its own
	shares bool         // it always shares
	recent atomic.Int64 // requests since the tenants were compared last
	score  float64      // of requests, each worth half after halfLife
}

// counts are those behind the series of one tenant: by tenantLabels, then by the values
// of the label.
type counts [len(tenantLabels)][]int64

// tokenKinds are the values of the label kind.
var tokenKinds = []string{"prompt", "cached", "output"}

const (
	// noTenant is the label of requests that ended before their tenant was known.
	noTenant = "none"
	// maxTenants bounds the tenants that are compared: those beyond share the
	// series of "other" until idle ones are forgotten. 100,000 of them take some
	// 15 MB, and are more than have ever asked within a few minutes.
	maxTenants = 100_000
)

// tenantLabels are the labels of the series of tenants beside tenant.
var tenantLabels = [...]string{"outcome", "kind", "limit"}

// The indexes into tenantLabels.
const (
	byOutcome = iota
	byKind
	byLimit
)

func newTenants(d *definer) *tenantCounts {
	t := &tenantCounts{}
	for i, help := range [...]string{
		byOutcome: "Ended requests by tenant and outcome. The busiest tenants (telemetry.tenants) have series of " +
			"their own, which start at 0; other stands for the rest, none for requests without a known tenant.",
		byKind:  "Tokens by tenant and kind: prompt, cached (part of prompt), output. Tenants as in tierway_tenant_requests_total.",
		byLimit: "Requests refused by a limit, by tenant and limit. Tenants as in tierway_tenant_requests_total.",
	} {
		name := "tierway_tenant_" + [...]string{"requests", "tokens", "refusals"}[i] + "_total"
		t.descs[i] = d.series(name, help, "tenant", tenantLabels[i])
	}
	t.setLabels(byKind, tokenKinds)
	d.registry.MustRegister(t)
	return t
}

// setLabels sets the values of a label, before anything is counted.
func (t *tenantCounts) setLabels(label int, values []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.labels[label] = values
	t.other, t.removed, t.own, t.listed = t.newCounts(), t.newCounts(), 0, nil
	t.known = map[string]*tenant{"": {counts: t.newCounts(), shares: true}, other: {counts: t.other, name: other, shares: true}}
}

func (t *tenantCounts) newCounts() (c counts) {
	for i, values := range t.labels {
		c[i] = make([]int64, len(values))
	}
	return c
}

// TenantEnded counts an ended request of a tenant, "" for one that nobody knows,
// with the tokens that it was charged for: those that engines reported, or else the
// gateway's estimate. The outcome is an index into those that
// Outside was given. It is to be called once for each request.
func (m *Metrics) TenantEnded(tenant string, outcome int, prompt, cached, output int64) {
	m.tenants.mu.Lock()
	defer m.tenants.mu.Unlock()
	t := m.tenants.tenantLocked(tenant)
	t.recent.Add(1)
	t.counts[byOutcome][outcome]++
	for kind, n := range [...]int64{prompt, cached, output} {
		t.counts[byKind][kind] += max(n, 0)
	}
}

// TenantLimited counts a request of a tenant that a limit refused, one of those
// that Limits was given.
func (m *Metrics) TenantLimited(tenant, limit string) {
	m.tenants.mu.Lock()
	defer m.tenants.mu.Unlock()
	if i := slices.Index(m.tenants.labels[byLimit], limit); i >= 0 {
		m.tenants.tenantLocked(tenant).counts[byLimit][i]++
	}
}

// tenantLocked returns a tenant. A new one has series of its own while there are any left.
func (t *tenantCounts) tenantLocked(name string) *tenant {
	one := t.known[name]
	switch {
	case one != nil:
		return one
	case len(t.known) >= maxTenants:
		return t.known[other]
	}
	one = &tenant{counts: t.other, name: name,
		shares: name == noTenant || !utf8.ValidString(name)} // a label's value must be UTF-8, and mean one thing
	t.known[name], t.listed = one, append(t.listed, one)
	if t.own < t.keep && !one.shares {
		t.promote(one)
	}
	return one
}

// promote gives a tenant series of its own, which begin at 0.
func (t *tenantCounts) promote(one *tenant) {
	one.counts, one.own = t.newCounts(), true
	t.own++
}

// demote removes a tenant's series. The tenant shares those of "other" from then on.
func (t *tenantCounts) demote(one *tenant) {
	for i := range one.counts {
		add(t.removed[i], one.counts[i])
	}
	one.counts, one.own = t.other, false
	t.own--
}

func (t *tenantCounts) Describe(ch chan<- *prometheus.Desc) {
	for i := range tenantLabels {
		ch <- t.descs[i]
	}
}

// Collect is part of prometheus.Collector. It sends all counts of one moment.
func (t *tenantCounts) Collect(ch chan<- prometheus.Metric) {
	shown := map[string]counts{}
	t.mu.Lock()
	for name, one := range t.known {
		if one.own || name == "" || name == other {
			shown[cmp.Or(name, noTenant)] = one.clone()
		}
	}
	t.mu.Unlock()
	for i, values := range t.labels {
		for j, value := range values {
			for name, c := range shown {
				ch <- prometheus.MustNewConstMetric(t.descs[i], prometheus.CounterValue, float64(c[i][j]), name, value)
			}
		}
	}
}

func (c counts) clone() counts {
	for i := range c {
		c[i] = slices.Clone(c[i])
	}
	return c
}
