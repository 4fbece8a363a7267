package control

import (
	"math"
	"sync"
	"time"
)

// workerStats is what one worker has done since the program started, and how fast
// it was of late. It is safe for concurrent use; the zero workerStats is empty.
type workerStats struct {
	mu      sync.Mutex
	totals  StatsView      // without what the windows hold
	windows [2]statsWindow // the present one and the one before, by the parity of their epoch
}

// AttemptOutcome is how an attempt on a worker ended, as the worker's totals count it.
type AttemptOutcome uint8

// The outcomes of an attempt. An excluded attempt says nothing of the worker: the client
// left, or its request was at fault.
const (
	AttemptOK AttemptOutcome = iota
	AttemptExcluded
	AttemptFailed
)

// AttemptStats is one attempt on a worker, after its end.
type AttemptStats struct {
	Outcome AttemptOutcome
	TTFT    time.Duration // until the first event; 0: there was none
	Total   time.Duration // counts only for an attempt that is ok

	Prompt, Cached, Output int64 // tokens
}

// statsWindow5m is how long a window collects. A view shows the present window and the one
// before, and so the last 5 to 10 minutes: long enough for a hundredth of a quiet
// worker's requests, short enough to follow a deployment.
const statsWindow5m = 5 * time.Minute

// statsWindow is one window's attempts and times.
type statsWindow struct {
	epoch       int64 // which 5 minutes since 1970
	attempts    int64 // all, whatever their outcome
	total, ttft histogram
}

// Observe counts one attempt that ended at now. One that ended in a window that is gone
// counts in a present one.
func (st *workerStats) Observe(now time.Time, a AttemptStats) {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := &st.totals
	switch a.Outcome {
	case AttemptOK:
		t.OK++
	case AttemptExcluded:
		t.Excluded++
	default:
		t.Failed++
	}
	t.Prompt += a.Prompt
	t.Cached += a.Cached
	t.Output += a.Output
	if now.After(t.LastSelected) {
		t.LastSelected = now
	}
	epoch := now.UnixNano() / int64(statsWindow5m)
	w := &st.windows[epoch&1]
	if w.epoch < epoch {
		*w = statsWindow{epoch: epoch}
	}
	w.attempts++
	if a.TTFT > 0 {
		w.ttft.add(a.TTFT)
	}
	if a.Outcome == AttemptOK {
		w.total.add(a.Total)
	}
}

// StatsView is what a worker has done, at one moment.
type StatsView struct {
	OK, Excluded, Failed   int64
	Prompt, Cached, Output int64     // tokens
	LastSelected           time.Time // the end of the last attempt; zero: there was none
	Recent                 int64     // attempts within the windows
	Total, TTFT            TimesView // within the windows
}

// TimesView sums up times. Its percentiles are at most a twentieth off for times from 1 µs
// to 71 minutes.
type TimesView struct {
	Count          int64
	Mean, P95, P99 time.Duration
}

// View returns what the worker has done until now.
func (st *workerStats) View(now time.Time) StatsView {
	st.mu.Lock()
	defer st.mu.Unlock()
	v := st.totals
	epoch := now.UnixNano() / int64(statsWindow5m)
	var total, ttft histogram
	for i := range st.windows {
		if w := &st.windows[i]; w.epoch >= epoch-1 {
			v.Recent += w.attempts
			total.merge(&w.total)
			ttft.merge(&w.ttft)
		}
	}
	v.Total, v.TTFT = total.view(), ttft.view()
	return v
}

// Buckets of a histogram: eight for each doubling, so that the middle of a bucket is at
// most 4.4 % from any of its times; from 1 µs to 71 minutes, longer than any request may
// take.
const (
	perOctave   = 8
	bucketCount = perOctave * 32
)

// histogram counts times in buckets. The zero histogram is empty.
type histogram struct {
	sum     time.Duration
	count   int64
	buckets [bucketCount]uint32
}

func (h *histogram) add(d time.Duration) {
	h.sum += d
	h.count++
	h.buckets[bucketOf(d)]++
}

func (h *histogram) merge(o *histogram) {
	h.sum += o.sum
	h.count += o.count
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
}

// bucketOf returns the bucket of a time: its logarithm in eighths of an octave.
func bucketOf(d time.Duration) int {
	micros := max(1, float64(d)/float64(time.Microsecond))
	return min(int(perOctave*math.Log2(micros)), bucketCount-1)
}

// middle returns the time in the middle of a bucket.
func middle(bucket int) time.Duration {
	return time.Duration(math.Exp2((float64(bucket)+0.5)/perOctave) * float64(time.Microsecond))
}

// view sums up the histogram.
func (h *histogram) view() TimesView {
	if h.count == 0 {
		return TimesView{}
	}
	return TimesView{Count: h.count, Mean: h.sum / time.Duration(h.count), P95: h.quantile(0.95), P99: h.quantile(0.99)}
}

// quantile returns the time that a share q of all stays at or below.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.count)))
	for i, n := range h.buckets {
		if rank -= int64(n); rank <= 0 {
			return middle(i)
		}
	}
	return middle(bucketCount - 1)
}
