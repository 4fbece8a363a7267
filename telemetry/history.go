package telemetry

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"time"
)

// SampleKind selects how the samples of a series are aggregated into steps.
type SampleKind uint8

// The kinds.
const (
	SampleRate     SampleKind = iota // Value is a counter: its growth per second
	SampleShare                      // Value and Whole are counters: the growth of Value divided by that of Whole
	SampleMaximum                    // Value is a gauge: its maximum
	SampleLast                       // Value is a gauge: its last value
	SampleQuantile                   // Buckets are counters: the quantile Value of the observations, in their unit
)

// Sample is the value of a series at one moment.
type Sample struct {
	Name    string   // of the series
	Labels  []string // names and values in turns
	Unit    string   // shown in charts
	Kind    SampleKind
	Value   float64
	Whole   float64
	Bounds  []float64 // upper bounds of Buckets without the last one, which has none
	Buckets []uint64  // observations by bucket
}

// HistorySeries is a series of a history with its values by step; NaN is a gap.
type HistorySeries struct {
	Name, Unit string
	Labels     []string
	Values     []float32
}

// The periods of a history: the steps of each are as fine as a chart can show them. A series takes 4.6 KB.
var historyPeriods = [...]struct {
	length, step int64 // seconds
}{{300, 5}, {3600, 10}, {86400, 120}}

const (
	// maxHistorySeries bounds the memory of a history to 3 MB: series of 64 workers and 30 tenants.
	maxHistorySeries = 512
	// historySetBack is the longest time, in seconds, by which the clock may be set back without a new beginning.
	// A time service that corrects the clock stays below it.
	historySetBack = 60
	// historyPause is the longest gap between samples, in seconds. After a longer gap, counters start again.
	historyPause = 5
)

// History keeps values of the last 24 hours in memory, at three resolutions. No request takes its lock. It is safe
// for concurrent use.
type History struct {
	mu      sync.Mutex
	at      int64 // Unix time of the last samples; 0: none
	series  map[string]*series
	order   []*series
	omitted int  // last samples that had no room
	behind  bool // the clock was set back and has not passed at
}

type series struct {
	HistorySeries
	kind     SampleKind
	seen     int64 // Unix time of the last sample
	before   Sample
	q        float64 // of SampleQuantile
	bounds   []float64
	steps    [len(historyPeriods)]openStep
	finished [len(historyPeriods)][]float32 // rings, indexed by the number of the step
}

// openStep collects the samples of a step that has not ended.
type openStep struct {
	any           bool
	sum, whole    float64 // growth of counters
	seconds       int64
	highest, last float64
	buckets       []uint64
}

// NewHistory returns an empty history.
func NewHistory() *History { return &History{series: map[string]*series{}} }

// Record adds the samples of one moment. Call it once per second; a call within the same second is ignored. If the
// clock was set back by a minute at most, the samples until its last time are ignored. Beyond that, the history
// begins again.
func (h *History) Record(now time.Time, samples []Sample) {
	at := now.Unix()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case at == h.at && !h.behind:
		return
	case at <= h.at && at >= h.at-historySetBack:
		// The samples are ignored, and also the growth of counters until them: their time has its values.
		h.behind = true
		for i := range samples {
			if s := h.series[keyOf(&samples[i])]; s != nil {
				s.before = samples[i]
			}
		}
		return
	case at < h.at:
		h.series, h.order, h.at = map[string]*series{}, nil, 0
	}
	h.behind = false
	for _, s := range h.order {
		s.finish(h.at, at)
	}
	// Where the samples of a moment ago were complete, a new counter has begun at 0 since then.
	began := h.at
	if h.omitted > 0 || at-h.at > historyPause {
		began = 0
	}
	h.at = at
	h.removeOld(at)
	h.omitted = 0
	for i := range samples {
		s := h.series[keyOf(&samples[i])]
		if s == nil {
			if s = h.create(&samples[i], began); s == nil {
				continue
			}
		}
		s.add(at, samples[i])
	}
}

func keyOf(v *Sample) string {
	key := v.Name
	for _, l := range v.Labels {
		key += "\x00" + l
	}
	if v.Kind == SampleQuantile {
		key += "\x00" + strconv.FormatFloat(v.Value, 'g', -1, 64)
	}
	return key
}

// create adds the series of a sample, or returns nil if there is no room for another one. A counter was 0 at the
// time began; 0: its value was unknown.
func (h *History) create(v *Sample, began int64) *series {
	if len(h.order) >= maxHistorySeries {
		h.omitted++
		return nil
	}
	s := &series{HistorySeries: HistorySeries{Name: v.Name, Unit: v.Unit, Labels: v.Labels}, kind: v.Kind, seen: began,
		bounds: v.Bounds, q: v.Value}
	for i, p := range historyPeriods {
		s.finished[i] = make([]float32, p.length/p.step)
		for k := range s.finished[i] {
			s.finished[i][k] = float32(math.NaN())
		}
	}
	h.series[keyOf(v)], h.order = s, append(h.order, s)
	return s
}

// removeOld removes each series after its last sample has left the longest period.
func (h *History) removeOld(at int64) {
	old := func(s *series) bool { return s.seen < at-historyPeriods[len(historyPeriods)-1].length }
	if !slices.ContainsFunc(h.order, old) {
		return
	}
	h.order = slices.DeleteFunc(h.order, old)
	for key, s := range h.series {
		if old(s) {
			delete(h.series, key)
		}
	}
}

// finish ends the steps that were open at the time from and have ended at the time to. Steps without a sample are
// gaps.
func (s *series) finish(from, to int64) {
	for i, p := range historyPeriods {
		ring := s.finished[i]
		first, end := from/p.step, to/p.step
		if first == end {
			continue
		}
		ring[first%int64(len(ring))] = float32(s.value(&s.steps[i]))
		s.steps[i] = openStep{buckets: s.steps[i].buckets[:0]}
		for step := max(first+1, end-int64(len(ring))); step < end; step++ {
			ring[step%int64(len(ring))] = float32(math.NaN())
		}
	}
}

// value returns the value of a step; NaN without a sample.
func (s *series) value(o *openStep) float64 {
	switch {
	case !o.any:
		return math.NaN()
	case s.kind == SampleMaximum:
		return o.highest
	case s.kind == SampleLast:
		return o.last
	case s.kind == SampleQuantile:
		return Quantile(s.bounds, o.buckets, s.q)
	case s.kind == SampleShare:
		return o.sum / o.whole // NaN if nothing was counted
	}
	return o.sum / float64(o.seconds)
}

// add adds a sample to the open steps. The first sample of a counter has no growth if the value before is unknown.
func (s *series) add(at int64, v Sample) {
	passed, before := at-s.seen, s.before
	known := s.seen > 0 && passed <= historyPause
	s.seen, s.before = at, v
	gauge := v.Kind == SampleMaximum || v.Kind == SampleLast
	if !known && !gauge {
		return
	}
	for i := range s.steps {
		o := &s.steps[i]
		if gauge {
			if !o.any {
				o.highest = v.Value
			}
			o.highest, o.last, o.any = max(o.highest, v.Value), v.Value, true
			continue
		}
		o.any = true
		o.seconds += passed
		o.sum += growth(before.Value, v.Value)
		o.whole += growth(before.Whole, v.Whole)
		o.addBuckets(before.Buckets, v.Buckets)
	}
}

func (o *openStep) addBuckets(before, now []uint64) {
	if len(o.buckets) != len(now) {
		o.buckets = slices.Grow(o.buckets[:0], len(now))[:len(now)]
		clear(o.buckets)
	}
	for i, n := range now {
		if i < len(before) && before[i] <= n {
			n -= before[i]
		}
		o.buckets[i] += n
	}
}

// growth returns by how much a counter has grown. A counter that fell has begun again at 0.
func growth(before, now float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

// Quantile returns the value that the share q of the observations does not exceed, interpolated within its bucket;
// NaN without observations. Beyond the last bound it returns that bound.
func Quantile(bounds []float64, buckets []uint64, q float64) float64 {
	total := uint64(0)
	for _, n := range buckets {
		total += n
	}
	if total == 0 {
		return math.NaN()
	}
	lower, before := 0.0, 0.0
	for i, upper := range bounds {
		n := float64(buckets[i])
		if within := q*float64(total) - before; n > 0 && within <= n {
			return lower + (upper-lower)*within/n
		}
		lower, before = upper, before+n
	}
	return lower
}

// HistoryView is the part of a history within a period.
type HistoryView struct {
	Step   int64   // seconds
	Times  []int64 // Unix time of the beginning of each step
	Series []HistorySeries
	// Omitted is the number of series that the history has no room for.
	Omitted int
}

// View returns the ended steps of the shortest period that is at least as long as length, oldest first. Series
// without a value within it are omitted.
func (h *History) View(length time.Duration) HistoryView {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := len(historyPeriods) - 1
	for i > 0 && historyPeriods[i-1].length >= int64(length/time.Second) {
		i--
	}
	p := historyPeriods[i]
	v := HistoryView{Step: p.step, Omitted: h.omitted}
	end := h.at / p.step
	for step := end - p.length/p.step + 1; step < end; step++ {
		v.Times = append(v.Times, step*p.step)
	}
	for _, s := range h.order {
		out := s.HistorySeries
		any := false
		for _, t := range v.Times {
			value := s.finished[i][t/p.step%int64(len(s.finished[i]))]
			any = any || !math.IsNaN(float64(value))
			out.Values = append(out.Values, value)
		}
		if any {
			v.Series = append(v.Series, out)
		}
	}
	return v
}
