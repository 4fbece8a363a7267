package routing

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// rng is xorshift64*, which is unrelated to the hash of the ring.
type rng uint64

func (d *rng) next() uint64 {
	x := uint64(*d)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*d = rng(x)
	return x * 2685821657736338717
}

func (d *rng) unit() float64 { return float64(d.next()>>11) / (1 << 53) }
func (d *rng) below(n int) int {
	return int(d.unit() * float64(n))
}

// exp returns an exponentially distributed time.
func (d *rng) exp(mean time.Duration) time.Duration {
	return time.Duration(-math.Log(1-d.unit()) * float64(mean))
}

// zipf returns the cumulative probabilities of n ranks.
func zipf(n int, s float64) []float64 {
	sums, sum := make([]float64, n), 0.0
	for i := range sums {
		sum += math.Pow(float64(i+1), -s)
		sums[i] = sum
	}
	for i := range sums {
		sums[i] /= sum
	}
	return sums
}

func (d *rng) draw(sums []float64) int {
	i, _ := slices.BinarySearch(sums, d.unit())
	return min(i, len(sums)-1)
}

// policySim is equal workers under one policy, in virtual time: bookings end at their time.
type policySim struct {
	policy Policy
	ws     []View
	now    time.Time
	rng    rng
	ends   ends
	took   []int   // requests by worker
	tokens []int64 // prompt tokens by worker
}

type ending struct {
	at      time.Time
	worker  int
	request int
	pending int64
	output  int64
}

type ends []ending

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newPolicySim(p Policy, n int) *policySim {
	w := &policySim{policy: p, now: start, rng: 7, took: make([]int, n), tokens: make([]int64, n)}
	for i := range n {
		w.ws = append(w.ws, View{ID: fmt.Sprint("w", i), Index: i, Weight: 1, Rate: 8000})
	}
	return w
}

// send places a request now. Its prompt stays booked for prefill, its answer and itself for whole.
func (w *policySim) send(r *Request, prefill, whole time.Duration) (int, Reason) {
	for len(w.ends) > 0 && !w.now.Before(w.ends[0].at) {
		e := heap.Pop(&w.ends).(ending)
		v := &w.ws[e.worker]
		v.Inflight -= e.request
		v.PendingTokens -= e.pending
		v.OutputTokens -= e.output
	}
	r.Now, r.Rand = w.now, w.rng.next()
	i, reason := w.policy.Pick(r, w.ws)
	v := &w.ws[i]
	v.Inflight++
	v.PendingTokens += r.PromptTokens
	v.OutputTokens += r.OutputTokens
	heap.Push(&w.ends, ending{at: w.now.Add(prefill), worker: i, pending: r.PromptTokens})
	heap.Push(&w.ends, ending{at: w.now.Add(whole), worker: i, request: 1, output: r.OutputTokens})
	w.took[i]++
	w.tokens[i] += r.PromptTokens
	return i, reason
}

// imbalance returns the largest number of requests in flight on a worker, divided by their mean.
func (w *policySim) imbalance() float64 {
	most, sum := 0, 0
	for i := range w.ws {
		most, sum = max(most, w.ws[i].Inflight), sum+w.ws[i].Inflight
	}
	return float64(most) * float64(len(w.ws)) / float64(sum)
}

// unfair returns the largest count divided by the mean.
func unfair[T int | int64](counts []T) float64 {
	sum := 0.0
	for _, c := range counts {
		sum += float64(c)
	}
	return float64(slices.Max(counts)) * float64(len(counts)) / sum
}

func mustCHWBL(t *testing.T, c Config) *chwbl {
	t.Helper()
	c.Name = "chwbl"
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*chwbl)
}
