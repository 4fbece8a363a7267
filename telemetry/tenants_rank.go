package telemetry

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// halfLife is after how long a request counts for half when the busiest tenants
	// are sought: who was busy for an hour keeps its series through a coffee break.
	halfLife = 10 * time.Minute
	// lead is how many times as busy as a tenant with series another one must be to
	// take them. Without it two that are alike would swap every minute, and neither
	// had a curve.
	lead = 1.5
	// idle is the score below which a tenant without series is forgotten: that of
	// one request nearly two hours ago.
	idle = 0.001
)

// KeepTenants says how many tenants may have series of their own; the rest is
// counted as other. Fewer than there are takes effect at once, the least busy
// losing theirs; more are given as tenants come, and by RankTenants.
func (m *Metrics) KeepTenants(n int) {
	m.tenants.mu.Lock()
	defer m.tenants.mu.Unlock()
	m.tenants.keep = max(n, 0)
	m.tenants.placeLocked()
}

// RankTenants compares the tenants by their requests up to now, of which old ones
// count less, and gives the series to the busiest. It is to be called once a minute
// or so. Tenants that known does not know lose their series; a nil known knows all.
func (m *Metrics) RankTenants(now time.Time, known func(tenant string) bool) {
	t := m.tenants
	t.mu.Lock()
	defer t.mu.Unlock()
	decay := 1.0
	if since := now.Sub(t.ranked); !t.ranked.IsZero() && since > 0 {
		decay = math.Exp2(-float64(since) / float64(halfLife))
	}
	t.ranked = now
	for name, one := range t.known {
		if name == "" || name == other {
			continue
		}
		one.score, one.recent = one.score*decay+float64(one.recent), 0
		if !one.own && one.score < idle || known != nil && !known(name) {
			if one.own {
				t.demote(one)
			}
			delete(t.known, name)
		}
	}
	t.placeLocked()
}

// placeLocked gives the series to the busiest tenants, each of which must be clearly
// ahead of the one whose series it takes.
func (t *tenantCounts) placeLocked() {
	var own, rest []*tenant
	for _, one := range t.known {
		switch {
		case one.own:
			own = append(own, one)
		case !one.shares:
			rest = append(rest, one)
		}
	}
	busiest := func(a, b *tenant) int { return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.name, b.name)) }
	slices.SortFunc(own, busiest)
	demote := func() {
		t.demote(own[len(own)-1])
		own = own[:len(own)-1]
	}
	for t.own > t.keep {
		demote()
	}
	ahead := func(one *tenant) bool {
		return t.own < t.keep || len(own) > 0 && one.score > lead*own[len(own)-1].score
	}
	rest = slices.DeleteFunc(rest, func(one *tenant) bool { return !ahead(one) })
	slices.SortFunc(rest, busiest)
	for _, one := range rest {
		if !ahead(one) {
			return
		}
		if t.own == t.keep {
			demote()
		}
		t.promote(one)
	}
}
