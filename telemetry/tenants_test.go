package telemetry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

// newBusy returns metrics in which the n busiest tenants have series of their own.
func newBusy(n int) *Metrics {
	m := New("test")
	m.SetRequestLabels([]string{"chat"}, []string{"ok", "refused"})
	m.SetLimitNames([]string{"rpm", "tpm"})
	m.KeepTenants(n)
	return m
}

// requestsOf returns the requests that the series of each tenant show, and under "removed"
// the requests of removed series.
func requestsOf(t interface {
	Helper()
	Fatal(...any)
}, m *Metrics) map[string]float64 {
	t.Helper()
	tenants := prometheus.NewRegistry() // the other metrics take 20 times as long
	tenants.MustRegister(m.tenants)
	families, err := tenants.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "tierway_tenant_requests_total" {
			continue
		}
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "tenant" {
					sums[l.GetValue()] += s.GetCounter().GetValue()
				}
			}
		}
	}
	sums["removed"] = 0
	for _, n := range m.tenants.removed[byOutcome] {
		sums["removed"] += float64(n)
	}
	return sums
}

// ask counts n requests of a tenant.
func ask(m *Metrics, tenant string, n int) {
	for range n {
		m.TenantEnded(tenant, 0, 10, 4, 2)
	}
}

// start is the time of the first comparison of tenants.
var start = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

func TestBusiestTenantsHaveSeries(t *testing.T) {
	m := newBusy(2)
	ask(m, "a", 5) // the first two tenants get series at once
	ask(m, "b", 9)
	ask(m, "c", 8)
	m.RankTenants(start, nil)
	// c has more than 1.5 times as many requests as a. Its series starts at 0.
	want := map[string]float64{"b": 9, "c": 0, "other": 8, "none": 0, "removed": 5}
	if diff := cmp.Diff(want, requestsOf(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	ask(m, "a", 1)
	ask(m, "c", 1)
	want = map[string]float64{"b": 9, "c": 1, "other": 9, "none": 0, "removed": 5}
	if diff := cmp.Diff(want, requestsOf(t, m)); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// TestRefusalsOfOtherTenantsAreCounted under "other", also those of a tenant with that name.
func TestRefusalsOfOtherTenantsAreCounted(t *testing.T) {
	m := newBusy(1)
	m.TenantRefused("a", "rpm")
	if diff := cmp.Diff(map[string]int64{"a": 1}, m.TenantRefusals()); diff != "" {
		t.Error(diff)
	}
	for _, tenant := range []string{"a", "b", "c", "other"} {
		m.TenantRefused(tenant, "tpm")
	}
	if diff := cmp.Diff(map[string]int64{"a": 2, "other": 3}, m.TenantRefusals()); diff != "" {
		t.Error(diff)
	}
}

// TestSimilarTenantsDoNotSwap: a tenant keeps its series until another one is clearly busier.
func TestSimilarTenantsDoNotSwap(t *testing.T) {
	m := newBusy(1)
	ask(m, "a", 10)
	for minute := range 60 {
		ask(m, "a", 10)
		ask(m, "b", 14)
		m.RankTenants(start.Add(time.Duration(minute)*time.Minute), nil)
	}
	if got := requestsOf(t, m); got["a"] != 610 || got["removed"] != 0 {
		t.Errorf("after an hour the series are %v", got)
	}
	for minute := range 60 { // now b is clearly busier
		ask(m, "a", 10)
		ask(m, "b", 40)
		m.RankTenants(start.Add(time.Hour+time.Duration(minute)*time.Minute), nil)
	}
	got := requestsOf(t, m)
	if _, ok := got["a"]; ok || got["b"] == 0 || got["a"]+got["b"]+got["other"]+got["removed"] != 610+60*14+60*50 {
		t.Errorf("after two hours the series are %v", got)
	}
}

// TestRequestsEndDuringTheComparison: a request that ends does not wait for the comparison, and
// a new tenant may take a free place meanwhile.
func TestRequestsEndDuringTheComparison(t *testing.T) {
	m := newBusy(1)
	ask(m, "a", 10)
	m.RankTenants(start, func(string) bool {
		ask(m, "b", 1)
		return false
	})
	ask(m, "c", 1)
	want := map[string]float64{"c": 1, "other": 1, "none": 0, "removed": 10}
	if diff := cmp.Diff(want, requestsOf(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOldRequestsCountLess: a flood of an hour ago counts less than a steady tenant.
func TestOldRequestsCountLess(t *testing.T) {
	m := newBusy(1)
	ask(m, "flood", 1000)
	m.RankTenants(start, nil)
	for minute := 1; minute <= 60; minute++ {
		ask(m, "steady", 5)
		m.RankTenants(start.Add(time.Duration(minute)*time.Minute), nil)
	}
	if got := requestsOf(t, m); got["removed"] != 1000 || got["steady"] == 0 {
		t.Errorf("the series are %v", got)
	}
}

// TestDeletedTenantsLoseTheirSeries: another tenant takes the place.
func TestDeletedTenantsLoseTheirSeries(t *testing.T) {
	m := newBusy(1)
	ask(m, "gone", 100)
	ask(m, "small", 1)
	m.RankTenants(start, func(tenant string) bool { return tenant != "gone" })
	want := map[string]float64{"small": 0, "other": 1, "none": 0, "removed": 100}
	if diff := cmp.Diff(want, requestsOf(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestIdleTenantsAreRemoved: tenants with series stay.
func TestIdleTenantsAreRemoved(t *testing.T) {
	m := newBusy(1)
	ask(m, "first", 1)
	ask(m, "second", 1)
	for hour := range 24 {
		m.RankTenants(start.Add(time.Duration(hour)*time.Hour), nil)
	}
	if m.tenants.known["first"] == nil || m.tenants.known["second"] != nil {
		t.Errorf("%d tenants are kept", len(m.tenants.known))
	}
	want := map[string]float64{"first": 1, "other": 1, "none": 0, "removed": 0}
	if diff := cmp.Diff(want, requestsOf(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeepTenantsTakesEffectAtOnce: the least busy tenants lose their series, down to none.
func TestKeepTenantsTakesEffectAtOnce(t *testing.T) {
	m := newBusy(3)
	ask(m, "a", 1)
	ask(m, "b", 3)
	ask(m, "c", 2)
	m.RankTenants(start, nil)
	for _, step := range []struct {
		n    int
		want map[string]float64
	}{
		{1, map[string]float64{"b": 3, "other": 0, "none": 0, "removed": 3}},
		{0, map[string]float64{"other": 0, "none": 0, "removed": 6}},
		{2, map[string]float64{"b": 0, "c": 0, "other": 0, "none": 0, "removed": 6}},
	} {
		m.KeepTenants(step.n)
		if diff := cmp.Diff(step.want, requestsOf(t, m)); diff != "" {
			t.Errorf("with %d (-want +got):\n%s", step.n, diff)
		}
	}
}

// TestTenantNamesKeepTheScrapeValid: tenants named other or none, and names that no label can
// have, count as other.
func TestTenantNamesKeepTheScrapeValid(t *testing.T) {
	m := newBusy(10)
	for _, name := range []string{"other", "none", "\xff\xfe", "", "a\"b\\c\nd", "team-ü"} {
		ask(m, name, 1)
	}
	m.RankTenants(start, nil)
	want := map[string]float64{"other": 3, "none": 1, "a\"b\\c\nd": 1, "team-ü": 1, "removed": 0}
	if diff := cmp.Diff(want, requestsOf(t, m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(scrape(t, m, "tierway_tenant_")) == 0 {
		t.Error("a scrape shows no tenants")
	}
}

// TestTenThousandTenantsAddNoSeries: only the busiest tenants have series.
func TestTenThousandTenantsAddNoSeries(t *testing.T) {
	m := newBusy(5)
	for i := range 5 {
		ask(m, "t"+strconv.Itoa(i), 1)
	}
	before := len(gather(t, m, "tierway_"))
	for i := range 10_000 {
		name := "junk-" + strconv.Itoa(i)
		ask(m, name, 1)
		m.TenantRefused(name, "rpm")
		m.TenantRefused(name, name)
		m.LimitRefused(name)
	}
	m.RankTenants(start, nil)
	if after := len(gather(t, m, "tierway_")); after != before {
		t.Errorf("%d series, %d before", after, before)
	}
	if got := scrape(t, m, `tierway_tenant_refusals_total{limit="rpm",tenant="other"}`); len(got) != 1 ||
		!strings.HasSuffix(got[0], " 10000") {
		t.Errorf("refusals of others: %q", got)
	}
}

// TestTenantsBeyondTheBoundCountAsOther: the number of compared tenants is bounded.
func TestTenantsBeyondTheBoundCountAsOther(t *testing.T) {
	m := newBusy(1)
	for i := range maxTenants + 100 {
		ask(m, "t"+strconv.Itoa(i), 1)
	}
	if n := len(m.tenants.known); n != maxTenants {
		t.Errorf("%d tenants are kept", n)
	}
	if got := requestsOf(t, m); got["t0"] != 1 || got["other"] != maxTenants+99 {
		t.Errorf("the series are %v", got)
	}
}

// TestNoTenantCountIsLost: tenants send requests, appear, are deleted and swap series. All series
// and the removed counts add up to all requests, and no series falls while it exists.
func TestNoTenantCountIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newBusy(rapid.IntRange(0, 3).Draw(t, "keep"))
		now, truth := start, 0.0
		before := requestsOf(t, m)
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "other", ""})
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				n := rapid.IntRange(1, 20).Draw(t, "n")
				ask(m, name.Draw(t, "tenant"), n)
				truth += float64(n)
			},
			"keep": func(t *rapid.T) { m.KeepTenants(rapid.IntRange(0, 4).Draw(t, "keep")) },
			"rank": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(-1, 120).Draw(t, "minutes")) * time.Minute)
				gone := name.Draw(t, "gone")
				m.RankTenants(now, func(tenant string) bool { return tenant != gone })
			},
			"": func(t *rapid.T) {
				got, sum := requestsOf(t, m), 0.0
				for tenant, n := range got {
					sum += n
					if was, ok := before[tenant]; ok && n < was && (tenant == "other" || tenant == "removed" || tenant == "none") {
						t.Fatalf("%s fell from %v to %v", tenant, was, n)
					}
				}
				if sum != truth {
					t.Fatalf("the sum is %v of %v: %v", sum, truth, got)
				}
				if own := len(got) - 3; own > m.tenants.keep || own != len(m.tenants.owners) {
					t.Fatalf("%d of %d tenants have series: %v", own, m.tenants.keep, got)
				}
				before = got
			},
		})
	})
}

func TestNoTenantCountIsLostDuringSwaps(t *testing.T) {
	m := newBusy(2)
	const each = 3000
	var asking sync.WaitGroup
	for i := range 4 {
		asking.Go(func() {
			for j := range each {
				m.TenantEnded(fmt.Sprint("t", (i+j/100)%6), 0, 3, 2, 1)
				m.TenantRefused(fmt.Sprint("t", (i+j/100)%6), "tpm")
			}
		})
	}
	for i := range 200 {
		m.RankTenants(start.Add(time.Duration(i)*time.Minute), func(tenant string) bool {
			return tenant != fmt.Sprint("t", i%6)
		})
		m.KeepTenants(1 + i%3)
		scrape(t, m, "tierway_tenant_")
	}
	asking.Wait()
	sums := map[string]float64{}
	for _, s := range gather(t, m, "tierway_tenant_") {
		sums[s.name+s.labels["kind"]] += s.value
	}
	for i, name := range []string{"requests", "tokens", "refusals"} {
		for j, n := range m.tenants.removed[i] {
			kind := ""
			if i == byKind {
				kind = tokenKinds[j]
			}
			sums["tierway_tenant_"+name+"_total"+kind] += float64(n)
		}
	}
	want := map[string]float64{"tierway_tenant_requests_total": 4 * each, "tierway_tenant_refusals_total": 4 * each,
		"tierway_tenant_tokens_totalprompt": 12 * each, "tierway_tenant_tokens_totalcached": 8 * each,
		"tierway_tenant_tokens_totaloutput": 4 * each}
	if diff := cmp.Diff(want, sums); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTenantSeriesHaveTheirLabels(t *testing.T) {
	m := newBusy(1)
	m.TenantEnded("a", 1, 100, 40, 7)
	m.TenantEnded("a", 0, 0, 0, 0)
	m.TenantRefused("a", "tpm")
	want := []string{
		`tierway_tenant_refusals_total{limit="rpm",tenant="a"} 0`,
		`tierway_tenant_refusals_total{limit="tpm",tenant="a"} 1`,
		`tierway_tenant_requests_total{outcome="ok",tenant="a"} 1`,
		`tierway_tenant_requests_total{outcome="refused",tenant="a"} 1`,
		`tierway_tenant_tokens_total{kind="cached",tenant="a"} 40`,
		`tierway_tenant_tokens_total{kind="output",tenant="a"} 7`,
		`tierway_tenant_tokens_total{kind="prompt",tenant="a"} 100`,
	}
	got := slices.DeleteFunc(scrape(t, m, "tierway_tenant_"), func(line string) bool {
		return !strings.Contains(line, `tenant="a"`)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
