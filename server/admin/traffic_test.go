package admin

import (
	"testing"
	"time"

	"tierway/config"
	"tierway/server/control"
	"tierway/telemetry"
)

// trafficPool returns a pool with one worker, without its routing.
func trafficPool(m *telemetry.Metrics, name string) *control.Pool {
	p := &control.Pool{Pool: config.Pool{Name: name}}
	p.Series = m.Tier(name, "random", control.Dialects, control.Outcomes)
	p.Members = map[string]*control.Member{name + "-0": {Series: m.Worker(name, name+"-0", "random", nil)}}
	return p
}

func TestRatesAreOfTheLastTenSeconds(t *testing.T) {
	m := telemetry.New("test")
	m.SetRequestLabels(control.Dialects, control.Outcomes)
	small, large := trafficPool(m, "small"), trafficPool(m, "large")
	pools := []*control.Pool{small, large}
	var tr traffic
	now := time.Unix(1_700_000_000, 0)
	everything := func(string) bool { return true }
	is := func(name string, got *float64, want float64) {
		t.Helper()
		if got == nil || *got < want-0.001 || *got > want+0.001 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	small.Series.Ended(0, 0) // before the first sample: of no interval
	tr.sample(now, pools, m.ResultsWithoutTier())
	if requests, _, _ := tr.rates(everything); requests != nil {
		t.Errorf("without an interval: %v", *requests)
	}
	for range 20 {
		now = now.Add(time.Second)
		small.Series.Ended(0, 0) // ok
		large.Series.Ended(0, 2) // failed
		m.EndedWithoutTier(0, 1) // refused
		tr.sample(now, pools, m.ResultsWithoutTier())
		tr.sample(now.Add(time.Millisecond), pools, m.ResultsWithoutTier()) // of another reader
	}
	requests, failed, refused := tr.rates(everything)
	is("requests", requests, 3)
	is("errors", failed, 1)
	is("refused", refused, 1)
	requests, failed, _ = tr.rates(func(tier string) bool { return tier == "small" })
	is("requests of small", requests, 1)
	is("errors of small", failed, 0)
	for range 10 {
		now = now.Add(time.Second)
		tr.sample(now, pools, m.ResultsWithoutTier())
	}
	requests, _, _ = tr.rates(everything)
	is("requests after ten quiet seconds", requests, 0)
	tr.sample(now.Add(maxPause+time.Second), pools, m.ResultsWithoutTier())
	if requests, _, _ := tr.rates(everything); requests != nil {
		t.Errorf("after a pause: %v", *requests)
	}
	if !tr.answered() {
		t.Error("no request was answered")
	}
}

func TestTTFTIsOfTheLastMinute(t *testing.T) {
	m := telemetry.New("test")
	p := trafficPool(m, "small")
	var tr traffic
	now := time.Unix(1_700_000_000, 0)
	tr.sample(now, []*control.Pool{p}, nil)
	for i := range 100 {
		p.Members["small-0"].Series.TTFT.Observe(float64(i) / 1000) // 0 to 99 ms
	}
	now = now.Add(time.Second)
	tr.sample(now, []*control.Pool{p}, nil)
	p50, p95 := tr.ttftOf("small")
	if p50 == nil || *p50 < 45 || *p50 > 55 || p95 == nil || *p95 < 90 || *p95 > 100 {
		t.Errorf("the percentiles are %v and %v", p50, p95)
	}
	if p50, _ := tr.ttftOf("large"); p50 != nil {
		t.Errorf("a tier without streams has %v", *p50)
	}
	for range 60 {
		now = now.Add(time.Second)
		tr.sample(now, []*control.Pool{p}, nil)
	}
	if p50, _ := tr.ttftOf("small"); p50 != nil || len(tr.samples) > 60 {
		t.Errorf("after a minute it is %v, of %d samples", p50, len(tr.samples))
	}
}

func TestCountersThatBeganAgainCountFromZero(t *testing.T) {
	if got := counterGrowth([]int64{1, 7}, []int64{5, 6}); got[0] != 1 || got[1] != 7 {
		t.Errorf("after a restart of the counters: %v", got)
	}
	if got := counterGrowth([]int64{6, 7}, []int64{5, 6}); got[0] != 1 || got[1] != 1 {
		t.Errorf("%v", got)
	}
}

func TestProcessorMeterNeedsAnInterval(t *testing.T) {
	var m processorMeter
	now := time.Now()
	if m.sample(now) != nil {
		t.Error("the first sample has an interval")
	}
	for begun := time.Now(); time.Since(begun) < 20*time.Millisecond; {
	}
	if got := m.sample(now.Add(time.Second)); processorTime() > 0 && (got == nil || *got <= 0) {
		t.Errorf("it used %v cores", got)
	}
	if got := m.sample(now.Add(time.Minute)); got != nil {
		t.Errorf("after a pause it used %v cores", *got)
	}
	if got := residentMemory(); got < 1<<20 {
		t.Errorf("the process has %d bytes", got)
	}
}
