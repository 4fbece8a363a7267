package telemetry

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// oneQueue has a class with waiting requests and an unused class.
var oneQueue = QueueGauges{Tier: "small", Bytes: 4096, Stale: 7, MaxBytes: 1 << 20, MaxDepth: 50,
	Classes: []ClassGauges{
		{Class: "interactive", Depth: 2, Oldest: 1500 * time.Millisecond, Entered: 31, Dispatched: 20, Promoted: 3,
			Abandoned: 4, Expired: 5, Moved: 6,
			Shed: []ShedTotal{{"depth", 4}, {"wait", 0}}},
		{Class: "batch", Shed: []ShedTotal{{"depth", 0}, {"wait", 0}}},
	}}

func TestScrapeShowsQueues(t *testing.T) {
	m := New("test")
	queues := []QueueGauges{oneQueue}
	Observe(m, func() []QueueGauges { return queues })
	want := []string{
		`tierway_metrics_stale_seconds_total{tier="small"} 7`,
		`tierway_queue_abandoned_total{class="batch",tier="small"} 0`,
		`tierway_queue_abandoned_total{class="interactive",tier="small"} 4`,
		`tierway_queue_bytes{tier="small"} 4096`,
		`tierway_queue_depth{class="batch",tier="small"} 0`,
		`tierway_queue_depth{class="interactive",tier="small"} 2`,
		`tierway_queue_dispatched_total{class="batch",tier="small"} 0`,
		`tierway_queue_dispatched_total{class="interactive",tier="small"} 20`,
		`tierway_queue_entered_total{class="batch",tier="small"} 0`,
		`tierway_queue_entered_total{class="interactive",tier="small"} 31`,
		`tierway_queue_expired_total{class="batch",tier="small"} 0`,
		`tierway_queue_expired_total{class="interactive",tier="small"} 5`,
		`tierway_queue_limit_bytes{tier="small"} 1.048576e+06`,
		`tierway_queue_limit_requests{tier="small"} 50`,
		`tierway_queue_moved_total{class="batch",tier="small"} 0`,
		`tierway_queue_moved_total{class="interactive",tier="small"} 6`,
		`tierway_queue_oldest_age_seconds{class="batch",tier="small"} 0`,
		`tierway_queue_oldest_age_seconds{class="interactive",tier="small"} 1.5`,
		`tierway_queue_promotions_total{class="batch",tier="small"} 0`,
		`tierway_queue_promotions_total{class="interactive",tier="small"} 3`,
		`tierway_queue_shed_total{class="batch",reason="depth",tier="small"} 0`,
		`tierway_queue_shed_total{class="batch",reason="wait",tier="small"} 0`,
		`tierway_queue_shed_total{class="interactive",reason="depth",tier="small"} 4`,
		`tierway_queue_shed_total{class="interactive",reason="wait",tier="small"} 0`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_queue_", "tierway_metrics_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	queues = nil
	if left := scrape(t, m, "tierway_queue_", "tierway_metrics_"); len(left) > 0 {
		t.Errorf("a removed queue leaves %q", left)
	}
}

// TestQueueTimesFallIntoTheirBuckets: the first bucket means no wait, the last one is the longest
// default of max_wait.
func TestQueueTimesFallIntoTheirBuckets(t *testing.T) {
	m := New("test")
	w := m.Waits("small", []string{"interactive", "batch"})
	for _, wait := range []time.Duration{0, time.Millisecond, 2 * time.Second, 10 * time.Minute, time.Hour} {
		w.Dispatched(1, wait)
	}
	got := scrape(t, m, "tierway_queue_wait_seconds")
	for _, want := range []string{
		`tierway_queue_wait_seconds_bucket{class="batch",tier="small",le="0.001"} 2`,
		`tierway_queue_wait_seconds_bucket{class="batch",tier="small",le="1"} 2`,
		`tierway_queue_wait_seconds_bucket{class="batch",tier="small",le="2.5"} 3`,
		`tierway_queue_wait_seconds_bucket{class="batch",tier="small",le="600"} 4`,
		`tierway_queue_wait_seconds_count{class="batch",tier="small"} 5`,
		`tierway_queue_wait_seconds_sum{class="batch",tier="small"} 4202.001`,
		`tierway_queue_wait_seconds_count{class="interactive",tier="small"} 0`,
	} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("there is no %s in %q", want, got)
		}
	}
}

func TestScrapeShowsWorkers(t *testing.T) {
	m := New("test")
	Observe(m, func() []WorkerGauges {
		return []WorkerGauges{{Tier: "small", Worker: "a", Up: true, Breaker: 2, PrefillRate: 7, ChecksOK: 9,
			ChecksFailed: 10, WorkerLoad: WorkerLoad{Weight: 6, Inflight: 1, PendingTokens: 2, OutputTokens: 3,
				Waiting: 4, Running: 5,
				EffectiveWeight: 4.5, SuccessRatio: 0.85, KVUsage: 0.5, ConcurrencyLimit: 8, Saturated: true,
				OthersInflight: 11, HistoryTokens: 12}}}
	})
	want := map[string]float64{"up": 1, "weight": 6, "backoff": 0, "inflight": 1, "pending_tokens": 2, "output_tokens": 3,
		"engine_waiting": 4,
		"engine_running": 5, "kv_usage_ratio": 0.5, "breaker": 2, "prefill_tokens_per_second": 7, "concurrency_limit": 8,
		"saturated": 1, "effective_weight": 4.5, "success_ratio": 0.85, "other_gateways_inflight": 11, "history_tokens": 12}
	got := map[string]float64{}
	for _, s := range gather(t, m, "tierway_worker_") {
		if s.labels["tier"] != "small" || s.labels["worker"] != "a" {
			t.Errorf("%+v", s)
		}
		got[strings.TrimPrefix(s.name, "tierway_worker_")] = s.value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// sample is one gathered gauge or counter.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// gather returns the series with a name prefix; the value of a histogram is its count.
func gather(t *testing.T, m *Metrics, prefix string) (all []sample) {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, s := range f.GetMetric() {
			got := sample{f.GetName(), map[string]string{}, math.NaN()}
			for _, l := range s.GetLabel() {
				got.labels[l.GetName()] = l.GetValue()
			}
			switch f.GetType().String() {
			case "GAUGE":
				got.value = s.GetGauge().GetValue()
			case "COUNTER":
				got.value = s.GetCounter().GetValue()
			case "HISTOGRAM":
				got.value = float64(s.GetHistogram().GetSampleCount())
			}
			all = append(all, got)
		}
	}
	return all
}

// resolve resolves and uses every series that a tier and its worker can have.
func resolve(m *Metrics, tier, worker string) *Tier {
	resolved := m.Tier(tier, "chwbl", []string{"chat"}, []string{"ok"})
	resolved.Ended(0, 0)
	resolved.Resolved("default")
	m.Waits(tier, []string{"interactive"}).Dispatched(0, time.Second)
	w := m.Worker(tier, worker, "chwbl", []string{"prefix_home"})
	w.OK.Inc()
	w.BreakerChanged("open")
	w.TTFT.Observe(1)
	return resolved
}

// TestDecisionsForARemovedTierCountAsRemoved: a reload may remove a tier while a request is decided.
func TestDecisionsForARemovedTierCountAsRemoved(t *testing.T) {
	m := New("test")
	m.SetRequestLabels([]string{"chat"}, []string{"ok"})
	gone := resolve(m, "gone", "a")
	m.RemoveTier("gone")
	gone.Resolved("default")
	gone.Resolved("default")
	want := []string{`tierway_tier_decisions_total{rule="default",tier="removed"} 2`}
	if diff := cmp.Diff(want, scrape(t, m, "tierway_tier_decisions_total")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	resolve(m, "gone", "a") // it starts at 0
	if got := scrape(t, m, "tierway_tier_decisions_total"); len(got) != 2 ||
		got[0] != `tierway_tier_decisions_total{rule="default",tier="gone"} 1` {
		t.Errorf("%q", got)
	}
}

// TestRemovedTierLeavesNoSeries: neither do its workers; other tiers keep their series.
func TestRemovedTierLeavesNoSeries(t *testing.T) {
	m := New("test")
	m.SetRequestLabels([]string{"chat"}, []string{"ok"})
	resolve(m, "gone", "a")
	resolve(m, "stays", "b")
	of := func(tier string) (n int) {
		for _, s := range gather(t, m, "tierway_") {
			if s.labels["tier"] == tier {
				n++
			}
		}
		return n
	}
	none, stays := of(noTier), of("stays")
	if none == 0 || of("gone") != stays {
		t.Fatalf("%d series of no tier, %d and %d of two that are alike", none, of("gone"), stays)
	}
	m.RemoveTier("gone")
	if of("gone") != 0 || of("stays") != stays {
		t.Errorf("%d series of the tier that is gone, %d of %d of the other", of("gone"), of("stays"), stays)
	}
	m.RemoveTier(noTier) // a configured tier may have that name
	if of(noTier) != none {
		t.Errorf("%d of %d series of no tier are left", of(noTier), none)
	}
	resolve(m, "gone", "a") // the tier returns
	for _, s := range gather(t, m, "tierway_") {
		if s.labels["tier"] == "gone" && s.value > 1 {
			t.Errorf("a tier that returned starts with %+v", s)
		}
	}
}

// TestRemovedWorkerLeavesNoSeries: the other workers of its tier keep their series.
func TestRemovedWorkerLeavesNoSeries(t *testing.T) {
	m := New("test")
	resolve(m, "small", "gone")
	resolve(m, "small", "stays")
	m.RemoveWorker("gone")
	n := map[string]int{}
	for _, s := range gather(t, m, "tierway_") {
		n[s.labels["worker"]]++
	}
	if n["gone"] != 0 || n["stays"] == 0 {
		t.Errorf("the series by worker are %v", n)
	}
}
