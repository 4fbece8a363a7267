package telemetry

import (
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// totals returns the sums of one scrape.
func totals(t *testing.T, m *Metrics) (started, ended, inflight float64) {
	t.Helper()
	for _, s := range gather(t, m, "tierway_") {
		switch s.name {
		case "tierway_requests_started_total":
			started += s.value
		case "tierway_requests_total":
			ended += s.value
		case "tierway_inflight":
			inflight += s.value
		}
	}
	return started, ended, inflight
}

// TestEveryScrapeAddsUp scrapes at any moment, also while reloads remove tiers with requests in
// flight.
func TestEveryScrapeAddsUp(t *testing.T) {
	m := New("test")
	dialects, outcomes := []string{"chat", "responses"}, []string{"ok", "failed"}
	m.SetRequestLabels(dialects, outcomes)
	const workers, scrapes = 4, 60
	var storm sync.WaitGroup
	var tier atomic.Pointer[Tier]
	var done atomic.Bool
	tier.Store(m.Tier("t0", "chwbl", dialects, outcomes))
	for w := range workers {
		storm.Go(func() {
			for i := 0; !done.Load(); i++ {
				m.Started.Inc()
				if on := tier.Load(); i%5 != 0 {
					on.Ended(w%2, i%2)
				} else {
					m.EndedWithoutTier(w%2, i%2)
				}
				if i%64 == 0 {
					runtime.Gosched() // to the scrape
				}
			}
		})
	}
	again := make(chan struct{}, 1) // triggers a reload during the next scrape
	storm.Go(func() {
		i := 0
		for range again {
			i++
			tier.Store(m.Tier("t"+strconv.Itoa(i), "chwbl", dialects, outcomes))
			m.RemoveTier("t" + strconv.Itoa(i-1))
		}
	})
	var last float64
	for range scrapes {
		select {
		case again <- struct{}{}:
		default:
		}
		started, ended, inflight := totals(t, m)
		if started != ended+inflight || inflight < 0 || ended < last {
			t.Errorf("%v started, %v ended (%v before), %v in flight", started, ended, last, inflight)
		}
		last = ended
	}
	done.Store(true)
	close(again)
	storm.Wait()
	if started, ended, inflight := totals(t, m); started != ended || inflight != 0 || started == 0 {
		t.Errorf("at rest: %v started, %v ended, %v in flight", started, ended, inflight)
	}
}

// TestRequestsOfARemovedTierStayCounted: while a request is in flight on it, and afterwards.
func TestRequestsOfARemovedTierStayCounted(t *testing.T) {
	m := New("test")
	dialects, outcomes := []string{"chat"}, []string{"ok"}
	m.SetRequestLabels(dialects, outcomes)
	removed := func() float64 {
		for _, s := range gather(t, m, "tierway_requests_total") {
			if s.labels["tier"] == removedTier {
				return s.value
			}
		}
		return -1
	}
	tier := m.Tier("small", "chwbl", dialects, outcomes)
	for range 3 {
		m.Started.Inc()
	}
	tier.Ended(0, 0)
	if removed() != -1 {
		t.Error("a removed tier is shown before a tier was removed")
	}
	m.RemoveTier("small")
	if got := removed(); got != 1 {
		t.Errorf("%v removed, want 1", got)
	}
	m.Tier("small", "chwbl", dialects, outcomes).Ended(0, 0) // it is back
	tier.Ended(0, 0)
	if got := removed(); got != 2 {
		t.Errorf("%v removed after one more request ended there, want 2", got)
	}
	if started, ended, inflight := totals(t, m); started != 3 || ended != 3 || inflight != 0 {
		t.Errorf("%v started, %v ended, %v in flight", started, ended, inflight)
	}
}

// TestResultsAreOfOneTier, and those of requests without a tier are separate.
func TestResultsAreOfOneTier(t *testing.T) {
	m := New("test")
	if got := m.ResultsWithoutTier(); len(got) != 0 {
		t.Errorf("before the labels are set: %v", got)
	}
	dialects, outcomes := []string{"chat", "other"}, []string{"ok", "failed"}
	m.SetRequestLabels(dialects, outcomes)
	small, large := m.Tier("small", "chwbl", dialects, outcomes), m.Tier("large", "chwbl", dialects, outcomes)
	small.Ended(0, 0)
	small.Ended(1, 0)
	small.Ended(1, 1)
	large.Ended(0, 1)
	m.EndedWithoutTier(0, 1)
	for name, tt := range map[string]struct{ got, want []int64 }{
		"small": {small.Results(), []int64{2, 1}}, "large": {large.Results(), []int64{0, 1}},
		"none": {m.ResultsWithoutTier(), []int64{0, 1}}} {
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("%s has %v, want %v", name, tt.got, tt.want)
		}
	}
}

// TestTTFTCountsAreByBucket, and begin again with another policy.
func TestTTFTCountsAreByBucket(t *testing.T) {
	m := New("test")
	w := m.Worker("small", "w0", "random", nil)
	for _, seconds := range []float64{.001, .005, .3, 1000} {
		w.TTFT.Observe(seconds)
	}
	counts, bounds := w.TTFTCounts(), TTFTSeconds()
	if len(counts) != len(bounds)+1 || counts[0] != 2 || counts[slices.Index(bounds, .5)] != 1 ||
		counts[len(bounds)] != 1 {
		t.Errorf("the counts are %v", counts)
	}
	w.SetPolicy("chwbl", nil)
	if counts := w.TTFTCounts(); slices.Max(counts) != 0 {
		t.Errorf("with another policy they are %v", counts)
	}
}
