package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/server/control"
	"tierway/telemetry"
)

var begun = time.Unix(1_700_000_000, 0)

// counted returns the counts of a tier: ok and failed requests, and the requests of each bucket of the times to first
// token.
func counted(ok, failed int64, ttft ...uint64) tierCounts {
	results := make([]int64, len(control.Outcomes))
	results[0], results[2] = ok, failed
	return tierCounts{results: results, ttft: ttft}
}

func TestRatesAreOfTheLastTenSeconds(t *testing.T) {
	var tr traffic
	everything := func(string) bool { return true }
	is := func(name string, got *float64, want float64) {
		t.Helper()
		if got == nil || *got < want-0.001 || *got > want+0.001 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	second := 0
	sample := func(small, large, none int64) {
		second++
		refused := make([]int64, len(control.Outcomes))
		refused[1] = none
		tr.add(trafficSample{at: begun.Add(time.Duration(second) * time.Second), tiers: map[string]tierCounts{
			"small": counted(small, 0), "large": counted(0, large), "": {results: refused}}})
	}
	sample(500, 0, 0)
	if requests, _, _ := tr.rates(everything); requests != nil {
		t.Errorf("one sample has the rate %v", *requests)
	}
	for n := range int64(20) {
		sample(501+n, 1+n, 1+n)
	}
	requests, failed, refused := tr.rates(everything)
	is("requests", requests, 3)
	is("errors", failed, 1)
	is("refused", refused, 1)
	requests, failed, _ = tr.rates(func(tier string) bool { return tier == "small" })
	is("requests of small", requests, 1)
	is("errors of small", failed, 0)
	for range 10 {
		sample(520, 20, 20)
	}
	requests, _, _ = tr.rates(everything)
	is("requests after ten quiet seconds", requests, 0)
	second += 3600 // the machine slept
	sample(900, 20, 20)
	if requests, _, _ := tr.rates(everything); requests != nil {
		t.Errorf("after an hour without samples: %v", *requests)
	}
	if !tr.succeeded {
		t.Error("no request has succeeded")
	}
}

func TestTTFTIsOfTheLastMinute(t *testing.T) {
	var tr traffic
	sample := func(second int, ttft ...uint64) {
		tr.add(trafficSample{at: begun.Add(time.Duration(second) * time.Second),
			tiers: map[string]tierCounts{"small": counted(0, 0, ttft...)}})
	}
	bounds := telemetry.TTFTSeconds()
	before, after := make([]uint64, len(bounds)+1), make([]uint64, len(bounds)+1)
	before[0], after[0], after[3] = 7, 7, 10
	sample(0, before...)
	sample(1, after...)
	p50, p95 := tr.ttftOf("small")
	if p50 == nil || *p50 < 1000*bounds[2] || *p50 > 1000*bounds[3] || p95 == nil || *p95 < *p50 {
		t.Errorf("the percentiles are %v and %v", p50, p95)
	}
	if p50, _ := tr.ttftOf("large"); p50 != nil {
		t.Errorf("a tier without streams has %v", *p50)
	}
	for i := range 60 {
		sample(2+i, after...)
	}
	if p50, _ := tr.ttftOf("small"); p50 != nil || len(tr.samples) > 61 {
		t.Errorf("after a minute it is %v, of %d samples", p50, len(tr.samples))
	}
}

func TestCountersThatBeganAgainCountFromZero(t *testing.T) {
	if got := counterGrowth([]int64{1, 7}, []int64{5, 6}); got[0] != 1 || got[1] != 1 {
		t.Errorf("the second counter has grown by 1, the first one began again: %v", got)
	}
	if got := counterGrowth([]int64{6, 7}, nil); got[0] != 6 || got[1] != 7 {
		t.Errorf("new counters: %v", got)
	}
}

func TestProcessorMeterNeedsAnInterval(t *testing.T) {
	var m processorMeter
	now := time.Now()
	if m.sample(now) != nil {
		t.Error("the first sample has an interval")
	}
	for begun := processorTime(); processorTime() > 0 && processorTime()-begun < 20*time.Millisecond; {
	}
	if got := m.sample(now.Add(time.Second)); processorTime() > 0 && (got == nil || *got <= 0) {
		t.Errorf("it used %v cores", got)
	}
	if got := residentMemory(); got < 1<<20 {
		t.Errorf("the process has %d bytes", got)
	}
}

// TestRejectionsOfOtherTenantsAreSampled: the history has the rejections of tenants without series of their own.
func TestRejectionsOfOtherTenantsAreSampled(t *testing.T) {
	r := newPlaneRig(t)
	r.metrics.SetLimitNames([]string{"rpm"})
	r.metrics.KeepTenants(1)
	for second := range time.Duration(11) {
		if second == 2 {
			r.metrics.TenantRefused("a", "rpm")
			r.metrics.TenantRefused("b", "rpm")
		}
		r.plane.sampler.sample(begun.Add(second * time.Second))
	}
	got := r.ask("ops", http.MethodGet, "/admin/metrics?name=limited", "").Body.String()
	if !strings.Contains(got, `"tenant":"a"`) || !strings.Contains(got, `"tenant":"other"`) {
		t.Errorf("the series are %s", got)
	}
}
