package routing

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// simEngine is one simulated engine. It runs a number of sequences at once; other requests wait
// inside it in order. It prefills one prompt at a time and decodes the tokens of an answer one by one.
type simEngine struct {
	slots     int
	rate      float64 // prefill, tokens/s
	tokenTime float64
	noise     float64 // sigma of a log-normal factor on the time from seat to first token

	taken    int
	freeAt   time.Time // when its prefill is done with all before
	waiting  []*simRequest
	pausedTo time.Time
}

// simRequest is one request of the simulation.
type simRequest struct {
	r        Request
	output   float64
	computed float64 // tokens that the engine prefills
	lease    Lease
	came     time.Time // to the gateway
	sentAt   time.Time
}

type simEvent struct {
	at    time.Time
	visit *simRequest // nil: the next arrival
	first bool
}

type simEvents []simEvent

func (h simEvents) Len() int           { return len(h) }
func (h simEvents) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h simEvents) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *simEvents) Push(x any)        { *h = append(*h, x.(simEvent)) }
func (h *simEvents) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// engineSim is a gateway with one worker without a configured bound, in virtual time: arrivals that do
// not depend on the load, and one queue before the worker.
type engineSim struct {
	pool           *Pool
	engine         simEngine
	rng            rng // of arrivals: independent of all other events
	luck           rng // of all else
	now            time.Time
	next           simEvents
	line           []*simRequest
	arrivals       float64                           // a second
	prompt, output float64                           // mean tokens
	draw           func() (prompt, computed float64) // instead of prompts of exponential length; nil without
	unbound        bool                              // the learned bound is forgotten all the time

	// Of the time since the last look.
	since        time.Time
	done         int
	ttft, levels []float64
	total        []float64 // time to first token with the wait at the gateway
	waited       int       // arrivals that had to wait at the gateway
	asked        int
}

func newEngineSim(e simEngine, arrivals, prompt, output float64) *engineSim {
	w := &engineSim{pool: poolOf(Member{ID: "a", Weight: 1}), engine: e, rng: 11, luck: 13, now: start, since: start,
		arrivals: arrivals, prompt: prompt, output: output}
	heap.Push(&w.next, simEvent{at: start})
	return w
}

// capacity returns the largest number of requests per second that the engine ends.
func (w *engineSim) capacity() float64 {
	e := &w.engine
	seat := w.prompt/e.rate + w.output*e.tokenTime
	return min(float64(e.slots)/seat, e.rate/w.prompt)
}

func (d *rng) normal() float64 {
	return math.Sqrt(-2*math.Log(1-d.unit())) * math.Cos(2*math.Pi*d.unit())
}

// run advances the time by d.
func (w *engineSim) run(d time.Duration) {
	until := w.now.Add(d)
	for w.next[0].at.Before(until) {
		h := heap.Pop(&w.next).(simEvent)
		w.now = h.at
		switch {
		case h.visit == nil:
			w.arrive()
		case h.first:
			w.beginAnswer(h.visit)
		default:
			h.visit.lease.Release(Result{At: w.now, OutputTokens: int64(h.visit.output), PromptTokens: h.visit.r.PromptTokens,
				Text: true})
			w.engine.taken--
			w.done++
			w.startWaiting()
		}
		w.offer()
	}
	w.now = until
}

func (w *engineSim) arrive() {
	prompt := max(8, w.rng.exp(time.Duration(w.prompt*1e9)).Seconds())
	computed := prompt
	if w.draw != nil {
		prompt, computed = w.draw()
	}
	output := max(2, w.output*(0.5+w.rng.unit()))
	v := &simRequest{came: w.now, output: output, computed: computed,
		r: Request{PromptTokens: int64(prompt), OutputTokens: int64(output), Stream: true}}
	w.line = append(w.line, v)
	w.asked++
	if w.offer(); v.sentAt.IsZero() {
		w.waited++
	}
	heap.Push(&w.next, simEvent{at: w.now.Add(w.rng.exp(time.Duration(1e9 / w.arrivals)))})
}

// offer sends requests from the head of the queue while the pool has room.
func (w *engineSim) offer() {
	for len(w.line) > 0 {
		v := w.line[0]
		if w.unbound {
			w.pool.workers[0].concurrencyLimit = concurrencyLimit{}
		}
		v.r.Now, v.r.Rand = w.now, w.luck.next()
		l, err := w.pool.Acquire(&v.r)
		if errors.Is(err, ErrFull) {
			return
		}
		v.lease, v.sentAt, w.line = l, w.now, w.line[1:]
		w.engine.waiting = append(w.engine.waiting, v)
		w.levels = append(w.levels, float64(w.pool.Snapshot(w.now)[0].Inflight))
		w.startWaiting()
	}
}

// startWaiting starts requests that wait inside the engine.
func (w *engineSim) startWaiting() {
	e := &w.engine
	for e.taken < e.slots && len(e.waiting) > 0 {
		v := e.waiting[0]
		e.waiting = e.waiting[1:]
		e.taken++
		begin := w.now
		if e.freeAt.After(begin) {
			begin = e.freeAt
		}
		from := w.now
		if e.pausedTo.After(from) {
			from = e.pausedTo
		}
		if from.After(begin) {
			begin = from
		}
		e.freeAt = begin.Add(seconds(v.computed / e.rate))
		took := e.freeAt.Sub(from) + firstStep
		first := from.Add(seconds(took.Seconds() * math.Exp(e.noise*w.luck.normal())))
		heap.Push(&w.next, simEvent{first, v, true})
		heap.Push(&w.next, simEvent{first.Add(seconds(v.output * e.tokenTime)), v, false})
	}
}

func (w *engineSim) beginAnswer(v *simRequest) {
	v.lease.Answered(w.now, nil)
	w.ttft = append(w.ttft, w.now.Sub(v.sentAt).Seconds())
	w.total = append(w.total, w.now.Sub(v.came).Seconds())
}

// measurement holds the results since the last measurement.
type measurement struct {
	bound                  int
	mean, p10, p90         float64 // level in flight that requests were booked at
	throughput, ttft, ttf9 float64 // of capacity; median and ninth decile of time to first token inside the engine
	total, total9          float64 // the same from the arrival at the gateway on
	held                   float64 // part of the arrivals
}

func (w *engineSim) measure() measurement {
	l := measurement{bound: w.pool.Snapshot(w.now)[0].ConcurrencyLimit, held: float64(w.waited) / float64(max(1, w.asked))}
	l.throughput = float64(w.done) / w.now.Sub(w.since).Seconds() / w.capacity()
	for _, x := range w.levels {
		l.mean += x / float64(len(w.levels))
	}
	at := func(s []float64, q float64) float64 {
		if len(s) == 0 {
			return 0
		}
		slices.Sort(s)
		return s[int(q*float64(len(s)-1))]
	}
	l.p10, l.p90 = at(w.levels, 0.1), at(w.levels, 0.9)
	l.ttft, l.ttf9 = at(w.ttft, 0.5), at(w.ttft, 0.9)
	l.total, l.total9 = at(w.total, 0.5), at(w.total, 0.9)
	w.since, w.done, w.waited, w.asked, w.ttft, w.total, w.levels = w.now, 0, 0, 0, w.ttft[:0], w.total[:0], w.levels[:0]
	return l
}

func (l measurement) String() string {
	return fmt.Sprintf("bound %3d, level %5.1f (%3.0f to %3.0f), throughput %5.1f %%, ttft %6.2fs (p90 %6.2fs), from "+
		"arrival %6.2fs (%6.2fs), held %4.1f %%",
		l.bound, l.mean, l.p10, l.p90, 100*l.throughput, l.ttft, l.ttf9, l.total, l.total9, 100*l.held)
}

// usual returns an engine with 64 slots, which requests of 256 tokens occupy for 6.4 seconds.
func usual() simEngine { return simEngine{slots: 64, rate: 8000, tokenTime: 0.025} }
