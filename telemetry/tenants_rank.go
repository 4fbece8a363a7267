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
	// ahead is how many times as busy as a tenant with series another one must be to
	// take them. Without it two that are alike would swap every minute, and neither
	// had a curve.
	ahead = 1.5
	// idle is the score below which a tenant without series is forgotten: that of
	// one request nearly two hours ago.
	idle = 0.001
)

// KeepTenants says how many tenants may have series of their own; the rest is
// counted as other. Fewer than there are takes effect at once, the least busy
// losing theirs; more are given as tenants come, and by RankTenants.
func (m *Metrics) KeepTenants(n int) {
	t := m.tenants
	t.ranking.Lock()
	defer t.ranking.Unlock()
	var r ranks
	for _, one := range t.all() {
		r.add(one)
	}
	r.sort()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep = max(n, 0)
	t.place(&r)
}

// RankTenants compares the tenants by their requests up to now, of which old ones
// count less, and gives the series to the busiest. It is to be called once a minute
// or so. Tenants that known does not know lose their series; a nil known knows all.
func (m *Metrics) RankTenants(now time.Time, known func(tenant string) bool) {
	t := m.tenants
	t.ranking.Lock()
	defer t.ranking.Unlock()
	decay := 1.0
	if since := now.Sub(t.ranked); !t.ranked.IsZero() && since > 0 {
		decay = math.Exp2(-float64(since) / float64(halfLife))
	}
	t.ranked = now
	var r ranks // made before the lock: nothing is counted while that is held
	for _, one := range t.all() {
		one.score = one.score*decay + float64(one.recent.Swap(0))
		if !one.own && one.score < idle || known != nil && !known(one.name) {
			r.gone = append(r.gone, one)
		} else {
			r.add(one)
		}
	}
	r.sort()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range r.gone {
		if one.own {
			t.demote(one.tenant)
		}
		delete(t.known, one.name)
	}
	t.place(&r)
}

// rankedTenant is a tenant that is compared.
type rankedTenant struct {
	name string
	*tenant
}

// all returns the tenants that can be compared. The caller holds ranking, so that
// none of them changes its place.
func (t *tenantCounts) all() []rankedTenant {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]rankedTenant, 0, len(t.known))
	for name, one := range t.known {
		if name != "" && name != other {
			all = append(all, rankedTenant{name, one})
		}
	}
	return all
}

// ranks are the tenants as they compare.
type ranks struct {
	own, rest, gone []rankedTenant // with series of their own, without, and not to be known any more
}

func (r *ranks) add(one rankedTenant) {
	switch {
	case one.own:
		r.own = append(r.own, one)
	case !one.shares:
		r.rest = append(r.rest, one)
	}
}

// sort puts the busiest first.
func (r *ranks) sort() {
	busiest := func(a, b rankedTenant) int {
		if d := cmp.Compare(b.score, a.score); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	}
	slices.SortFunc(r.own, busiest)
	slices.SortFunc(r.rest, busiest)
}

// place gives the places to the busiest, each of which must be clearly ahead of
// the one whose place it takes. The caller holds the lock for writing.
func (t *tenantCounts) place(r *ranks) {
	own, rest := r.own, r.rest
	for len(own) > 0 && t.own > t.keep {
		t.demote(own[len(own)-1].tenant)
		own = own[:len(own)-1]
	}
	for len(rest) > 0 && t.own < t.keep {
		t.promote(rest[0].tenant)
		rest = rest[1:]
	}
	for len(own) > 0 && len(rest) > 0 && rest[0].score > ahead*own[len(own)-1].score {
		t.demote(own[len(own)-1].tenant)
		t.promote(rest[0].tenant)
		own, rest = own[:len(own)-1], rest[1:]
	}
}
