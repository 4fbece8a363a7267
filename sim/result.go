package sim

import (
	"math"
	"slices"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Record is the history of one request. Times are since the start of the simulation.
type Record struct {
	Request     Request
	Number      int           // in order of submission
	Direct      bool          // it went past the gateway
	SubmittedAt time.Duration // first submission
	Arrived     time.Duration // start of the last attempt
	Attempts    int
	Sheds       []error // errors of refused attempts
	// error of the last attempt; nil if it was answered, or had not ended with the simulation
	Err error

	// The remaining fields describe the last attempt.
	Waited       bool
	WaitedSince  time.Duration
	Worker       string // empty: never dispatched
	Reason       routing.Reason
	Prefill      string          // engine that computed the prompt for Worker; empty: Worker itself
	DispatchedAt time.Duration   // dispatch to the worker
	Started      time.Duration   // start of the prefill
	Computed     time.Duration   // the prompt is computed
	First        time.Duration   // first token
	Done         time.Duration   // end, also without an answer
	Ended        bool            // false if the simulation ended first
	Cached       int64           // prompt tokens that the engine had cached
	Choice       *routing.Choice // the candidates and the choice of the policy; nil without Config.Choices
}

// Answered reports whether the request got a whole answer.
func (r *Record) Answered() bool { return r.Ended && r.Err == nil }

// Dispatched reports whether the request was dispatched.
func (r *Record) Dispatched() bool { return r.Worker != "" }

// Wait returns the queue time of its last attempt.
func (r *Record) Wait() time.Duration { return r.DispatchedAt - r.Arrived }

// TTFT returns the time from its first submission to its first token.
func (r *Record) TTFT() time.Duration { return r.First - r.SubmittedAt }

// Service returns how long it occupied its slot.
func (r *Record) Service() time.Duration { return r.Done - r.DispatchedAt }

// Tokens returns its tokens, cached or computed: prompt plus answer.
func (r *Record) Tokens() int64 { return r.Request.PromptTokens + r.Request.OutputTokens }

// Result is the outcome of a simulation.
type Result struct {
	Records []*Record // in order of submission
	End     time.Duration
	Engines []EngineResult
	Queue   queue.View // at the end; zero without a queue
	Events  uint64     // number of simulated events
}

// EngineResult is the outcome of one engine.
type EngineResult struct {
	Name   string
	Stages routing.Stages // 0 without a hand-over
	Most   int            // maximum of concurrent requests
	Left   int            // requests still inside at the end
}

func (w *Simulation) result() *Result {
	r := &Result{Records: w.requests, End: w.now, Events: w.events.seq}
	for _, e := range w.engines {
		result := EngineResult{Name: e.Name, Most: e.maxInside, Left: e.inside}
		if w.config.Handover != nil {
			result.Stages = e.Stages
		}
		r.Engines = append(r.Engines, result)
	}
	if q := w.Queue(); q != nil {
		r.Queue = q.View(w.time(w.now))
	}
	return r
}

// Stats summarizes a set of requests.
type Stats struct {
	Submitted, Answered, Shed int     // Shed counts requests that the queue's bounds refused for good.
	Attempts                  float64 // mean of all ended requests
	Prompt, Cached            int64   // tokens of answered requests, like Output
	Output                    int64
	Wait, TTFT, Service       Times
}

// Hits returns the share of the prompt tokens that the engines had cached.
func (s Stats) Hits() float64 {
	if s.Prompt == 0 {
		return 0
	}
	return float64(s.Cached) / float64(s.Prompt)
}

// Stats summarizes the requests for which keep returns true; all for nil.
func (r *Result) Stats(keep func(*Record) bool) Stats {
	var s Stats
	attempts, ended := 0, 0
	for _, rec := range r.Records {
		if keep != nil && !keep(rec) {
			continue
		}
		s.Submitted++
		if rec.Ended {
			attempts, ended = attempts+rec.Attempts, ended+1
		}
		switch {
		case rec.Err != nil:
			s.Shed++
		case rec.Answered():
			s.Answered++
			s.Prompt += rec.Request.PromptTokens
			s.Cached += rec.Cached
			s.Output += rec.Request.OutputTokens
			s.Wait, s.TTFT, s.Service = append(s.Wait, rec.Wait()), append(s.TTFT, rec.TTFT()), append(s.Service, rec.Service())
		}
	}
	if ended > 0 {
		s.Attempts = float64(attempts) / float64(ended)
	}
	for _, t := range []Times{s.Wait, s.TTFT, s.Service} {
		t.Sort()
	}
	return s
}

// Times is a list of durations, sorted.
type Times []time.Duration

// Sort sorts the durations, as the other methods require.
func (t Times) Sort() { slices.Sort(t) }

// Mean returns the mean; 0 for an empty list.
func (t Times) Mean() time.Duration {
	if len(t) == 0 {
		return 0
	}
	sum := 0.0
	for _, d := range t {
		sum += float64(d)
	}
	return time.Duration(sum / float64(len(t)))
}

// Quantile returns the smallest duration that at least a part q of them does not exceed; 0 for
// an empty list.
func (t Times) Quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(len(t)-1, max(0, int(math.Ceil(q*float64(len(t))))-1))]
}

// Max returns the longest duration; 0 for an empty list.
func (t Times) Max() time.Duration { return t.Quantile(1) }
