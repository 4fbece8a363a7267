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
	t := m.tenants
	t.ranking.Lock()
	defer t.ranking.Unlock()
	t.mu.Lock()
	t.keep = max(n, 0)
	t.mu.Unlock()
	t.compare(1, nil)
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
	t.compare(decay, known)
}

// compare counts the last requests into the scores, forgets tenants, and gives the
// series to the busiest, each of which must be clearly ahead of the one whose series it
// takes. Requests that end wait only while the result is entered.
func (t *tenantCounts) compare(decay float64, known func(tenant string) bool) {
	t.mu.Lock()
	all := t.listed
	t.mu.Unlock()
	var left, forgotten []*tenant
	for _, one := range all {
		one.score = one.score*decay + float64(one.recent.Swap(0))
		if !one.own && one.score < idle || known != nil && !known(one.name) {
			forgotten = append(forgotten, one)
		} else {
			left = append(left, one)
		}
	}
	losing, gaining := t.changes(left)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listed = append(left, t.listed[len(all):]...)
	for _, one := range forgotten {
		if one.own {
			t.demote(one)
		}
		delete(t.known, one.name)
	}
	for _, one := range losing {
		t.demote(one)
	}
	for _, one := range gaining {
		if t.own < t.keep { // a new tenant may have taken the place meanwhile
			t.promote(one)
		}
	}
}

// changes returns which tenants lose their series and which ones gain series.
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
	busiest := func(a, b *tenant) int { return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.name, b.name)) }
	slices.SortFunc(own, busiest)
	lose := func() {
		last := len(own) - 1
		losing, own = append(losing, own[last]), own[:last]
	}
	for len(own) > t.keep {
		lose()
	}
	full := func() bool { return len(own)+len(gaining) >= t.keep }
	behind := func(one *tenant) bool {
		return full() && (len(own) == 0 || one.score <= lead*own[len(own)-1].score)
	}
	rest = slices.DeleteFunc(rest, behind)
	slices.SortFunc(rest, busiest)
	for _, one := range rest {
		if behind(one) {
			break
		}
		if full() {
			lose()
		}
		gaining = append(gaining, one)
	}
	return losing, gaining
}
