package telemetry

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// hookSeconds are the buckets of the calls of hooks: finest below the default timeout of 200 ms.
var hookSeconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .5, 1, 2.5}

type hookVectors struct {
	calls   *prometheus.HistogramVec
	ignored *prometheus.CounterVec
}

func newHookVectors(d *definer) (v hookVectors) {
	d.setSubject("Hooks")
	v.calls = d.histograms("tierway_hook_seconds", "Duration of the calls of hooks by result: allowed, rejected, "+
		"transformed, timeout, error, refused (the gateway refused a change), busy (64 calls were in flight; not called), "+
		"open (the breaker was open; not called), cancelled (the client left).", hookSeconds, "hook", "result")
	v.ignored = d.counters("tierway_hook_ignored_headers_total", "Header changes of a hook that the gateway ignored, "+
		"because hooks may change only the headers that choose tier, priority and session.", "hook")
	return v
}

// HookCalled records a call of a hook: its result, a word of the fixed set, its duration and the number of ignored
// header changes.
func (m *Metrics) HookCalled(hook, result string, took time.Duration, ignored int) {
	m.hooks.calls.WithLabelValues(hook, result).Observe(took.Seconds())
	if ignored > 0 {
		m.hooks.ignored.WithLabelValues(hook).Add(float64(ignored))
	}
}

// HookCalls are the calls of a hook with one result.
type HookCalls struct {
	Hook, Result string
	Durations    []uint64 // number of calls in each bucket of HookSeconds, and beyond them
}

// HookSeconds returns the upper bounds of the buckets of HookCalls, in seconds.
func HookSeconds() []float64 { return slices.Clone(hookSeconds) }

// HookCalls returns the calls of all hooks since the gateway started, sorted by hook and result. A result that no call
// had is omitted.
func (m *Metrics) HookCalls() (all []HookCalls) {
	for _, s := range readSeries(m.hooks.calls) {
		all = append(all, HookCalls{Hook: labelOf(s, "hook"), Result: labelOf(s, "result"),
			Durations: bucketsOf(s.GetHistogram(), len(hookSeconds))})
	}
	slices.SortFunc(all, func(a, b HookCalls) int {
		return cmp.Or(cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Result, b.Result))
	})
	return all
}

// RemoveHook removes the series of a hook.
func (m *Metrics) RemoveHook(hook string) {
	removeSeries(prometheus.Labels{"hook": hook}, m.hooks.calls, m.hooks.ignored)
}
