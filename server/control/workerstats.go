package control

import (
	"math"
	"sync"
	"time"
)

// workerStats holds the totals of one worker since the program started, and the latencies of its recent
// attempts. It is safe for concurrent use; the zero workerStats is empty.
type workerStats struct {
	mu      sync.Mutex
	totals  StatsView      // without the fields of the windows
	windows [2]statsWindow // the current and the previous one, indexed by the parity of their epoch
}

// AttemptOutcome is the end of an attempt for the totals of its worker.
type AttemptOutcome uint8

// The outcomes of an attempt. An excluded attempt says nothing about the worker: the client
// disconnected, or the request was at fault.
const (
	AttemptOK AttemptOutcome = iota
	AttemptExcluded
	AttemptFailed
)

// AttemptStats has the measurements of one completed attempt on a worker.
type AttemptStats struct {
	Outcome AttemptOutcome
	TTFT    time.Duration // time to the first event; 0: there was none
	Total   time.Duration // duration; counted for AttemptOK only

	Prompt, Cached, Output int64 // tokens

	Failure *AttemptFailure // nil: the attempt did not fail, or is no evidence about the worker
}

// AttemptFailure is how an attempt failed on a worker. It is immutable.
type AttemptFailure struct {
	At        time.Time
	Status    int    // of the worker's answer; 0: it sent none
	Words     string // first words of the engine's error, or what the gateway found
	RequestID string
}

// statsWindow5m is the length of a window. A view has the current and the previous window, and so the
// last 5 to 10 minutes: enough requests for the P99 of a quiet worker, and short enough to follow a
// deployment.
const statsWindow5m = 5 * time.Minute

// statsWindow is one window's attempts and times.
type statsWindow struct {
	epoch       int64 // number of the window since 1970
	attempts    int64 // of every outcome
	total, ttft histogram
}

// Observe counts an attempt that ended at now. If the window of now is already replaced, the attempt
// counts in the window that replaced it.
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
	if a.Failure != nil {
		t.LastFailure = a.Failure
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

// StatsView has the totals and recent latencies of a worker at one moment.
type StatsView struct {
	OK, Excluded, Failed   int64
	Prompt, Cached, Output int64     // tokens
	LastSelected           time.Time // the end of the last attempt; zero: there was none
	LastFailure            *AttemptFailure
	Recent                 int64     // attempts within the windows
	Total, TTFT            TimesView // within the windows
}

// TimesView summarizes durations. Its percentiles are at most 5 % off for durations from 1 µs to 71
// minutes.
type TimesView struct {
	Count          int64
	Mean, P95, P99 time.Duration
}

// View returns the totals and recent latencies at now.
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

// Buckets of a histogram, from 1 µs to 71 minutes, which exceeds the longest request. There are eight
// for each doubling, so that the middle of a bucket is at most 4.4 % off.
const (
	perOctave   = 8
	bucketCount = perOctave * 32
)

// histogram counts durations in buckets. The zero histogram is empty.
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

// bucketOf returns the bucket of a duration: its binary logarithm in eighths.
func bucketOf(d time.Duration) int {
	micros := max(1, float64(d)/float64(time.Microsecond))
	return min(int(perOctave*math.Log2(micros)), bucketCount-1)
}

// bucketMiddle returns the duration in the middle of a bucket.
func bucketMiddle(bucket int) time.Duration {
	return time.Duration(math.Exp2((float64(bucket)+0.5)/perOctave) * float64(time.Microsecond))
}

// view summarizes the histogram.
func (h *histogram) view() TimesView {
	if h.count == 0 {
		return TimesView{}
	}
	return TimesView{Count: h.count, Mean: h.sum / time.Duration(h.count), P95: h.quantile(0.95), P99: h.quantile(0.99)}
}

// quantile returns the duration that the share q of all durations does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(math.Ceil(q * float64(h.count)))
	for i, n := range h.buckets {
		if rank -= int64(n); rank <= 0 {
			return bucketMiddle(i)
		}
	}
	return bucketMiddle(bucketCount - 1)
}
