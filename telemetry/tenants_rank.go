package telemetry

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// halfLife is the time after which a request counts half in the comparison of tenants. A
	// tenant that was busy for an hour keeps its series through a short pause.
	halfLife = 10 * time.Minute
	// lead is how many times busier a tenant must be to take over the series of another one.
	// Without it, two similar tenants would swap every minute, and neither would have a curve.
	lead = 1.5
	// idleScore is the score below which a tenant without series is removed: that of one
	// request almost two hours ago.
	idleScore = 0.001
)

// KeepTenants sets how many tenants may have series of their own; all others count as other.
// A smaller number takes effect at once: the least busy tenants lose their series. With a
// larger number, tenants gain series as they send requests and in RankTenants.
func (m *Metrics) KeepTenants(n int) {
	t := m.tenants
	t.ranking.Lock()
	defer t.ranking.Unlock()
	t.mu.Lock()
	t.keep = max(n, 0)
	t.mu.Unlock()
	t.compare(1, nil)
}

// RankTenants compares tenants by their requests up to now, of which old ones count less, and
// gives the series to the busiest tenants. Call it about once a minute. Tenants for which
// exists returns false lose their series; with a nil exists, all tenants exist.
func (m *Metrics) RankTenants(now time.Time, exists func(tenant string) bool) {
	t := m.tenants
	t.ranking.Lock()
	defer t.ranking.Unlock()
	decay := 1.0
	if since := now.Sub(t.ranked); !t.ranked.IsZero() && since > 0 {
		decay = math.Exp2(-float64(since) / float64(halfLife))
	}
	t.ranked = now
	t.compare(decay, exists)
}

// compare adds recent requests to the scores, removes idle tenants and gives the series to the
// busiest tenants. A tenant takes over a series only with a clear lead. What counts requests
// waits for the lock only while the result is applied.
func (t *tenantCounts) compare(decay float64, exists func(tenant string) bool) {
	t.mu.Lock()
	all := t.listed
	t.mu.Unlock()
	var remaining, dropped []*tenant
	for _, one := range all {
		one.score = one.score*decay + float64(one.recent.Swap(0))
		if !one.own && one.score < idleScore || exists != nil && !exists(one.name) {
			dropped = append(dropped, one)
		} else {
			remaining = append(remaining, one)
		}
	}
	losing, gaining := t.changes(remaining)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = append(remaining, t.listed[len(all):]...)
	for _, one := range dropped {
		if one.own {
			t.demote(one)
		}
		delete(t.known, one.name)
	}
	for _, one := range losing {
		t.demote(one)
	}
	for _, one := range gaining {
		if len(t.owners) < t.keep { // a new tenant may have taken the place meanwhile
			t.promote(one)
		}
	}
}

// changes returns the tenants that lose and the tenants that gain series.
func (t *tenantCounts) changes(all []*tenant) (losing, gaining []*tenant) {
	var own, rest []*tenant
	for _, one := range all {
		switch {
		case one.own:
			own = append(own, one)
		case !one.shares:
			rest = append(rest, one)
		}
	}
	byScore := func(a, b *tenant) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.name, b.name))
	}
	slices.SortFunc(own, byScore)
	removeLast := func() {
		last := len(own) - 1
		losing, own = append(losing, own[last]), own[:last]
	}
	for len(own) > t.keep {
		removeLast()
	}
	full := func() bool { return len(own)+len(gaining) >= t.keep }
	behind := func(one *tenant) bool {
		return full() && (len(own) == 0 || one.score <= lead*own[len(own)-1].score)
	}
	rest = slices.DeleteFunc(rest, behind)
	slices.SortFunc(rest, byScore)
	for _, one := range rest {
		if behind(one) {
			break
		}
		if full() {
			removeLast()
		}
		gaining = append(gaining, one)
	}
	return losing, gaining
}
