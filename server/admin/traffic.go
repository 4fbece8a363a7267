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
)

// traffic has the counts of requests of the last minute. It needs external locking; the zero traffic has no samples.
type traffic struct {
	samples   []trafficSample // oldest first, at most ttftWindow apart
	succeeded bool            // a request has succeeded since the start
}

// trafficSample has the counts at one moment. The key of requests without a tier is "".
type trafficSample struct {
	at    time.Time
	tiers map[string]tierCounts
}

// tierCounts are the ended requests by outcome and the times to first token by bucket, since the start. ttft is nil
// for a tier that had no worker.
type tierCounts struct {
	results []int64
	ttft    []uint64
}

// add adds a sample that is newer than the others.
func (t *traffic) add(s trafficSample) {
	t.samples = slices.DeleteFunc(append(t.samples, s), func(old trafficSample) bool {
		return s.at.Sub(old.at) > ttftWindow
	})
	ok := slices.Index(control.Outcomes, string(decisions.OK))
	for _, c := range s.tiers {
		t.succeeded = t.succeeded || len(c.results) > ok && c.results[ok] > 0
	}
}

// within returns the oldest sample of a window and the newest one. Without two samples both are the same.
func (t *traffic) within(window time.Duration) (oldest, newest trafficSample) {
	if len(t.samples) == 0 {
		return oldest, newest
	}
	newest = t.samples[len(t.samples)-1]
	first := slices.IndexFunc(t.samples, func(s trafficSample) bool { return newest.at.Sub(s.at) <= window })
	return t.samples[first], newest
}

// rates returns the requests per second of the tiers that selected reports, within rateWindow. All are nil without
// two samples.
func (t *traffic) rates(selected func(tier string) bool) (requests, failed, refused *float64) {
	oldest, newest := t.within(rateWindow)
	length := newest.at.Sub(oldest.at)
	if length == 0 {
		return nil, nil, nil
	}
	sums := make([]int64, len(control.Outcomes))
	for tier, c := range newest.tiers {
		if !selected(tier) {
			continue
		}
		for i, n := range counterGrowth(c.results, oldest.tiers[tier].results) {
			sums[i] += n
		}
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

type outcomeCounts struct{ answered, failed, refused int64 }

// outcomes returns the requests that ended within ttftWindow by tier; "" has the requests without a tier. It leaves
// out requests that their clients abandoned.
func (t *traffic) outcomes() map[string]outcomeCounts {
	oldest, newest := t.within(ttftWindow)
	out := map[string]outcomeCounts{}
	for tier, c := range newest.tiers {
		grown := counterGrowth(c.results, oldest.tiers[tier].results)
		of := func(o decisions.Result) int64 { return grown[slices.Index(control.Outcomes, string(o))] }
		out[tier] = outcomeCounts{answered: of(decisions.OK), failed: of(decisions.Failed) + of(decisions.Truncated),
			refused: of(decisions.Refused)}
	}
	return out
}

// ttftOf returns the median and the 95th percentile of a tier's times to first token within ttftWindow,
// in milliseconds; nil if no stream began.
func (t *traffic) ttftOf(tier string) (p50, p95 *float64) {
	oldest, newest := t.within(ttftWindow)
	counts := counterGrowth(newest.tiers[tier].ttft, oldest.tiers[tier].ttft)
	return quantile(counts, 0.5), quantile(counts, 0.95)
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

// counterGrowth returns by how much each counter has grown. A counter that fell was reset to 0, and a counter that
// before does not have began at 0.
func counterGrowth[N int64 | uint64](now, before []N) []N {
	out := slices.Clone(now)
	for i := range min(len(now), len(before)) {
		if before[i] <= now[i] {
			out[i] -= before[i]
		}
	}
	return out
}
