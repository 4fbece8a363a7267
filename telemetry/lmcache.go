package telemetry

import "github.com/prometheus/client_golang/prometheus"

// LMCache resolves the histogram of look-ups of a tier whose policy uses LMCache's controller. RemoveTier removes it.
func (m *Metrics) LMCache(tier string) prometheus.Observer {
	return m.lmcacheLookups.WithLabelValues(tier)
}

// LMCacheGauges is the state of LMCache's controller for one tier or pool. Totals count since the policy was
// configured.
type LMCacheGauges struct {
	Tier      string `label:"tier"`
	Up        bool   `metric:"tierway_lmcache_up" help:"1 while LMCache's controller answers, lists workers of the tier and, in mode prefix_lookup, finds prompts; GET /admin/overview has the state in one word. Absent without the policy lmcache_aware."`
	Workers   int    `metric:"tierway_lmcache_workers" help:"Instances of LMCache that the controller lists and that are workers of the tier."`
	Keys      int64  `metric:"tierway_lmcache_keys" help:"Keys of these instances: chunks in their caches. 0 if the controller states none."`
	Matched   int64  `metric:"tierway_lmcache_lookups_total" with:"result=match" help:"Look-ups in LMCache's controller by result. match: a worker of the tier has the beginning of the prompt. miss: none is known to have it. failed, timeout: no answer that can be used, and further look-ups are suspended. suspended: not sent for that reason. skipped: not sent, because 64 others had no answer yet."`
	Missed    int64  `metric:"tierway_lmcache_lookups_total" with:"result=miss"`
	Failed    int64  `metric:"tierway_lmcache_lookups_total" with:"result=failed"`
	TimedOut  int64  `metric:"tierway_lmcache_lookups_total" with:"result=timeout"`
	Suspended int64  `metric:"tierway_lmcache_lookups_total" with:"result=suspended"`
	Skipped   int64  `metric:"tierway_lmcache_lookups_total" with:"result=skipped"`
}
