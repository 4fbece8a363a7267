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

// tenantCounts counts what tenants use. The busiest tenants have series of their own; all
// other tenants share the series of the tenant "other". A series begins at 0 and never falls,
// so that its rate is right even when a tenant gains or loses its series.
type tenantCounts struct {
	descs [len(tenantLabels)]*prometheus.Desc

	ranking sync.Mutex // held while tenants are compared, before mu; guards ranked and the scores
	ranked  time.Time  // the last comparison; zero before the first

	mu      sync.Mutex       // guards the fields below; keep and tenant.own of a known tenant change under both
	keep    int              // how many tenants may have series of their own
	owners  map[*tenant]bool // those that have
	known   map[string]*tenant
	listed  []*tenant // the known tenants that can be removed; the elements are never replaced
	other   counts
	removed counts // of removed series; tests check with it that no count is lost
	labels  [len(tenantLabels)][]string
}

// tenant is a tenant that has sent requests recently.
type tenant struct {
	counts              // its own, or those of "other"
	name   string       // "" for requests without a known tenant
	own    bool         // it has series of its own
	shares bool         // it never has series of its own
	recent atomic.Int64 // requests since the last comparison
	score  float64      // sum of requests, halved every halfLife
}

// counts are the values of one tenant's series, by tenantLabels, then by label value.
type counts [len(tenantLabels)][]int64

// tokenKinds are the values of the label kind.
var tokenKinds = []string{"prompt", "cached", "output"}

const (
	// noTenant is the tenant label of requests that ended before their tenant was known.
	noTenant = "none"
	// maxTenants limits the tenants that are compared. Further tenants count as "other" until
	// idle tenants are removed. 100,000 tenants take about 15 MB.
	maxTenants = 100_000
)

// tenantLabels are the labels of tenant series beside tenant.
var tenantLabels = [...]string{"outcome", "kind", "limit"}

// The indexes into tenantLabels.
const (
	byOutcome = iota
	byKind
	byLimit
)

func newTenantCounts(d *definer) *tenantCounts {
	t := &tenantCounts{}
	for i, help := range [...]string{
		byOutcome: "Ended requests by tenant and outcome. The busiest tenants (telemetry.tenants) have series of " +
			"their own, which start at 0. tenant=other: all other tenants. tenant=none: requests without a known tenant.",
		byKind: "Tokens by tenant and kind: prompt, cached (part of prompt), output. Where the engine reported no " +
			"tokens, the gateway's estimate counts. Tenants as in tierway_tenant_requests_total.",
		byLimit: "Requests rejected by a limit, by tenant and limit. Tenants as in tierway_tenant_requests_total.",
	} {
		name := "tierway_tenant_" + [...]string{"requests", "tokens", "refusals"}[i] + "_total"
		t.descs[i] = d.series(name, help, "tenant", tenantLabels[i])
	}
	t.setLabels(byKind, tokenKinds)
	d.registry.MustRegister(t)
	return t
}

// setLabels sets the values of a label. Call it before anything is counted.
func (t *tenantCounts) setLabels(label int, values []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.labels[label] = values
	t.other, t.removed, t.listed = t.newCounts(), t.newCounts(), nil
	t.owners = map[*tenant]bool{}
	t.known = map[string]*tenant{
		"":    {counts: t.newCounts(), shares: true},
		other: {counts: t.other, name: other, shares: true},
	}
}

func (t *tenantCounts) newCounts() (c counts) {
	for i, values := range t.labels {
		c[i] = make([]int64, len(values))
	}
	return c
}

// TenantEnded counts an ended request of a tenant with the tokens that it was charged for: the
// engine's numbers, or the gateway's estimate. tenant is "" if it is unknown. outcome is an
// index into the outcomes of SetRequestLabels. Call it once per request.
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

// TenantRefused counts a request of a tenant that a limit rejected. limit is one of the names
// that SetLimitNames got.
func (m *Metrics) TenantRefused(tenant, limit string) {
	m.tenants.mu.Lock()
	defer m.tenants.mu.Unlock()
	if i := slices.Index(m.tenants.labels[byLimit], limit); i >= 0 {
		m.tenants.tenantLocked(tenant).counts[byLimit][i]++
	}
}

// TenantRefusals returns the number of requests that limits rejected, by tenant with series of its own. All other
// tenants are "other", once a limit has rejected one of their requests.
func (m *Metrics) TenantRefusals() map[string]int64 {
	m.tenants.mu.Lock()
	defer m.tenants.mu.Unlock()
	all := make(map[string]int64, len(m.tenants.owners)+1)
	for _, n := range m.tenants.other[byLimit] {
		if n > 0 {
			all[other] += n
		}
	}
	for one := range m.tenants.owners {
		for _, n := range one.counts[byLimit] {
			all[one.name] += n
		}
	}
	return all
}

// tenantLocked returns the tenant of a name. A new tenant gets series of its own while there
// are fewer than keep.
func (t *tenantCounts) tenantLocked(name string) *tenant {
	known := t.known[name]
	switch {
	case known != nil:
		return known
	case len(t.known) >= maxTenants:
		return t.known[other]
	}
	// A label value must be UTF-8, and "none" is the label of requests without a tenant.
	added := &tenant{counts: t.other, name: name, shares: name == noTenant || !utf8.ValidString(name)}
	t.known[name], t.listed = added, append(t.listed, added)
	if len(t.owners) < t.keep && !added.shares {
		t.promote(added)
	}
	return added
}

// promote gives a tenant series of its own, which begin at 0.
func (t *tenantCounts) promote(one *tenant) {
	one.counts, one.own = t.newCounts(), true
	t.owners[one] = true
}

// demote removes a tenant's series. The tenant counts as "other" from then on.
func (t *tenantCounts) demote(one *tenant) {
	for i := range one.counts {
		addCounts(t.removed[i], one.counts[i])
	}
	one.counts, one.own = t.other, false
	delete(t.owners, one)
}

func (t *tenantCounts) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range t.descs {
		ch <- desc
	}
}

// Collect is part of prometheus.Collector. It sends the counts of one moment.
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
				n := float64(c[i][j])
				ch <- prometheus.MustNewConstMetric(t.descs[i], prometheus.CounterValue, n, name, value)
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
