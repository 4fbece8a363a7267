package admin

import (
	"math"
	"slices"
	"time"

	"tierway/decisions"
	"tierway/server/control"
	"tierway/telemetry"
)

const (
	// rateWindow is the period of the rates: short enough to show a change at once.
	rateWindow = 10 * time.Second
	// ttftWindow is the period of the times to first token. A percentile needs more requests than a
	// rate.
	ttftWindow = time.Minute
	// minInterval is the shortest interval of a sample. Several readers within one interval share it.
	minInterval = 500 * time.Millisecond
	// maxPause is the longest interval of a sample. After a longer pause without readers, the counts
	// say nothing about the last seconds.
	maxPause = 15 * time.Second
)

// traffic samples the requests by tier while the overview is read. Its samples begin with the first
// reader, and a pause of more than maxPause ends them. It needs external locking; the zero traffic has
// no samples.
type traffic struct {
	at      time.Time // the end of the last interval
	results map[*telemetry.Tier][]int64
	ttft    map[*telemetry.Worker][]uint64
	other   []int64 // results of requests without a tier
	samples []trafficSample
}

// trafficSample has the counts of one interval. The key of requests without a tier is "".
type trafficSample struct {
	end    time.Time
	length time.Duration
	tiers  map[string]tierCounts
}

// tierCounts are the ended requests by outcome, and the times to first token by bucket.
type tierCounts struct {
	results []int64
	ttft    []uint64
}

// sample ends an interval at now. The counters are read without a lock of a request.
func (t *traffic) sample(now time.Time, pools []*control.Pool, other []int64) {
	length := now.Sub(t.at)
	if length < minInterval {
		return
	}
	if length > maxPause {
		*t = traffic{}
	}
	s := trafficSample{end: now, length: length, tiers: map[string]tierCounts{"": {results: counterGrowth(other, t.other)}}}
	was := *t
	t.at, t.other = now, other
	t.results, t.ttft = map[*telemetry.Tier][]int64{}, map[*telemetry.Worker][]uint64{}
	for _, p := range pools {
		results := p.Series.Results()
		t.results[p.Series] = results
		c := tierCounts{results: counterGrowth(results, was.results[p.Series]), ttft: make([]uint64, len(telemetry.TTFTSeconds())+1)}
		for _, m := range p.Members {
			counts := m.Series.TTFTCounts()
			t.ttft[m.Series] = counts
			for i, n := range counterGrowth(counts, was.ttft[m.Series]) {
				c.ttft[i] += n
			}
		}
		s.tiers[p.Name] = c
	}
	if was.at.IsZero() {
		return // the counts since the start of the program are of no interval
	}
	t.samples = slices.DeleteFunc(append(t.samples, s), func(s trafficSample) bool {
		return now.Sub(s.end) >= ttftWindow
	})
}

// counterGrowth returns by how much counters have grown. Counters that began again count from 0.
func counterGrowth[N int64 | uint64](now, before []N) []N {
	out := slices.Clone(now)
	for i, n := range before {
		if n > now[i] {
			return slices.Clone(now)
		}
		out[i] = now[i] - n
	}
	return out
}

// rates returns the requests per second of the tiers that selected reports, within rateWindow. All are
// nil without samples.
func (t *traffic) rates(selected func(tier string) bool) (requests, failed, refused *float64) {
	var length time.Duration
	sums := make([]int64, len(control.Outcomes))
	for _, s := range t.samples {
		if t.at.Sub(s.end) >= rateWindow {
			continue
		}
		length += s.length
		for tier, c := range s.tiers {
			if selected(tier) {
				for i, n := range c.results {
					sums[i] += n
				}
			}
		}
	}
	if length == 0 {
		return nil, nil, nil
	}
	perSecond := func(outcomes ...decisions.Result) *float64 {
		n := int64(0)
		for _, o := range outcomes {
			n += sums[slices.Index(control.Outcomes, string(o))]
		}
		return new(float64(n) / length.Seconds())
	}
	requests = perSecond(decisions.OK, decisions.Refused, decisions.Failed, decisions.Truncated, decisions.ClientGone)
	return requests, perSecond(decisions.Failed, decisions.Truncated), perSecond(decisions.Refused)
}

// ttftOf returns the median and the 95th percentile of a tier's times to first token within ttftWindow,
// in milliseconds; nil if no stream began.
func (t *traffic) ttftOf(tier string) (p50, p95 *float64) {
	var sums []uint64
	for _, s := range t.samples {
		for i, n := range s.tiers[tier].ttft {
			if sums == nil {
				sums = make([]uint64, len(s.tiers[tier].ttft))
			}
			sums[i] += n
		}
	}
	return quantile(sums, 0.5), quantile(sums, 0.95)
}

// quantile returns the duration in milliseconds that the share q of the counted times does not exceed; nil without
// times.
func quantile(counts []uint64, q float64) *float64 {
	seconds := telemetry.Quantile(telemetry.TTFTSeconds(), counts, q)
	if math.IsNaN(seconds) {
		return nil
	}
	return new(1000 * seconds)
}

// answered reports whether any request has succeeded since the start, by the last sample.
func (t *traffic) answered() bool {
	for _, results := range t.results {
		if results[slices.Index(control.Outcomes, string(decisions.OK))] > 0 {
			return true
		}
	}
	return false
}
