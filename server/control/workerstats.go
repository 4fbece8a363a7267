package control

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// workerStats is what one worker has done since the program started, and how fast
// it was of late. It is safe for concurrent use; the zero workerStats is empty.
type workerStats struct {
	ok, excluded, failed   atomic.Int64
	prompt, cached, output atomic.Int64
	selected               atomic.Int64 // Unix nanoseconds of the last attempt; 0: none

	rotating sync.Mutex // one goroutine begins a window
	windows  [2]statsWindow
}

// attemptOutcome is how an attempt on a worker ended, as its totals count it.
type attemptOutcome uint8

const (
	AttemptOK       attemptOutcome = iota
	AttemptExcluded                // it says nothing of the worker: the client left, or its request was at fault
	AttemptFailed
)

// AttemptStats is one attempt on a worker, after its end.
type AttemptStats struct {
	Outcome attemptOutcome
	TTFT    time.Duration // until the first event; 0: there was none
	Total   time.Duration // only that of an attempt that is ok counts

	Prompt, Cached, Output int64 // tokens
}

// statsWindow5m is how long a window collects. What is shown is of the present one
// and the one before, and so of the last 5 to 10 minutes: long enough for a
// hundredth of a quiet worker's requests, short enough to follow a deployment.
const statsWindow5m = 5 * time.Minute

// statsWindow is one window's requests and times.
type statsWindow struct {
	epoch    atomic.Int64 // which 5 minutes since 1970
	attempts atomic.Int64 // all, whatever their outcome
	total    histogram
	ttft     histogram
}

// Observe counts one attempt that ended at now. It takes no lock but once in five
// minutes.
func (st *workerStats) Observe(now time.Time, a AttemptStats) {
	switch a.Outcome {
	case AttemptOK:
		st.ok.Add(1)
	case AttemptExcluded:
		st.excluded.Add(1)
	default:
		st.failed.Add(1)
	}
	add(&st.prompt, a.Prompt)
	add(&st.cached, a.Cached)
	add(&st.output, a.Output)
	st.choose(now)
	w := st.window(now)
	w.attempts.Add(1)
	if a.TTFT > 0 {
		w.ttft.add(a.TTFT)
	}
	if a.Outcome == AttemptOK {
		w.total.add(a.Total)
	}
}

// add spares the write where there is nothing to add.
func add(to *atomic.Int64, n int64) {
	if n > 0 {
		to.Add(n)
	}
}

// choose notes that the worker was chosen for an attempt.
func (st *workerStats) choose(now time.Time) {
	if at := now.UnixNano(); at > st.selected.Load() {
		st.selected.Store(at) // two at once are the same to whoever looks
	}
}

// window returns the window of a time, which is made empty when its five minutes
// begin. A straggler of a window that is gone counts in the present one.
func (st *workerStats) window(now time.Time) *statsWindow {
	epoch := now.UnixNano() / int64(statsWindow5m)
	w := &st.windows[epoch&1]
	if w.epoch.Load() >= epoch {
		return w
	}
	st.rotating.Lock()
	defer st.rotating.Unlock()
	if w.epoch.Load() < epoch {
		w.attempts.Store(0)
		w.total.clear()
		w.ttft.clear()
		w.epoch.Store(epoch)
	}
	return w
}

// StatsView is workerStats at one moment.
type StatsView struct {
	OK, Excluded, Failed   int64
	Prompt, Cached, Output int64
	LastSelected           time.Time // zero: never
	Recent                 int64     // attempts within the windows
	Total, TTFT            TimesView
}

// TimesView sums up the times of the windows. Percentiles are at most a fifteenth
// off.
type TimesView struct {
	Count          int64
	Mean, P95, P99 time.Duration
}

// View returns what is known at now.
func (st *workerStats) View(now time.Time) StatsView {
	v := StatsView{OK: st.ok.Load(), Excluded: st.excluded.Load(), Failed: st.failed.Load(),
		Prompt: st.prompt.Load(), Cached: st.cached.Load(), Output: st.output.Load()}
	if at := st.selected.Load(); at != 0 {
		v.LastSelected = time.Unix(0, at)
	}
	epoch := now.UnixNano() / int64(statsWindow5m)
	var total, ttft []*histogram
	for i := range st.windows {
		if w := &st.windows[i]; w.epoch.Load() >= epoch-1 {
			v.Recent += w.attempts.Load()
			total, ttft = append(total, &w.total), append(ttft, &w.ttft)
		}
	}
	v.Total, v.TTFT = summary(total), summary(ttft)
	return v
}

// Buckets of a histogram: eight for each doubling, so that the middle of one is
// at most a fifteenth from any of its times; from a microsecond to 71 minutes,
// longer than any request may take.
const (
	perOctave   = 8
	octaves     = 32
	bucketCount = perOctave * octaves
)

// histogram counts times in buckets.
type histogram struct {
	sum     atomic.Int64 // nanoseconds
	buckets [bucketCount]atomic.Uint32
}

func (h *histogram) add(d time.Duration) {
	h.sum.Add(int64(d))
	h.buckets[bucketOf(d)].Add(1)
}

func (h *histogram) clear() {
	h.sum.Store(0)
	for i := range h.buckets {
		h.buckets[i].Store(0)
	}
}

// bucketOf returns the bucket of a time: its power of two in microseconds, and
// the three bits behind it.
func bucketOf(d time.Duration) int {
	// Counted in eighths of a microsecond, the lowest power has its three bits too.
	n := uint64(max(d.Nanoseconds()/125, perOctave))
	octave := bits.Len64(n) - 4
	return min(octave*perOctave+int(n>>octave)&(perOctave-1), bucketCount-1)
}

// middle returns the time in the middle of a bucket.
func middle(bucket int) time.Duration {
	octave, part := bucket/perOctave, bucket%perOctave
	low := float64(uint64(perOctave+part) << octave)
	return time.Duration((low + math.Ldexp(0.5, octave)) * 125)
}

// summary puts histograms together.
func summary(hs []*histogram) TimesView {
	var counts [bucketCount]int64
	var v TimesView
	var sum int64
	for _, h := range hs {
		sum += h.sum.Load()
		for i := range counts {
			n := int64(h.buckets[i].Load())
			counts[i] += n
			v.Count += n
		}
	}
	if v.Count == 0 {
		return v
	}
	v.Mean = time.Duration(sum / v.Count)
	v.P95, v.P99 = quantile(&counts, v.Count, 0.95), quantile(&counts, v.Count, 0.99)
	return v
}

// quantile returns the time that a share q of all stays at or below.
func quantile(counts *[bucketCount]int64, all int64, q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(all)))
	for i, n := range counts {
		if rank -= n; rank <= 0 {
			return middle(i)
		}
	}
	return middle(bucketCount - 1)
}
