package sim

import (
	"math"
	"slices"
	"time"

	"tierway/queue"
	"tierway/routing"
)

// Record is how one request went. Times are since the beginning.
type Record struct {
	Request     Request
	Number      int           // in the order of asking
	SubmittedAt time.Duration // for the first time
	Arrived     time.Duration // at the last attempt
	Attempts    int
	Sheds       []error // of the attempts that were refused
	Err         error   // of the last attempt; nil when it was answered, or when the world ended before

	// Of the last attempt.
	Waited       bool
	WaitedSince  time.Duration
	Worker       string // empty when it never got a place
	Reason       routing.Reason
	DispatchedAt time.Duration   // when it got its place
	First        time.Duration   // its first token
	Done         time.Duration   // its end, also that of a request that was never answered
	Ended        bool            // false when the world ended before
	Cached       int64           // tokens of the prompt that the engine had
	Choice       *routing.Choice // what its policy saw; nil without Config.Choices
}

// Answered tells whether the request was answered whole.
func (r *Record) Answered() bool { return r.Ended && r.Err == nil }

// Placed tells whether the request got a place.
func (r *Record) Dispatched() bool { return r.Worker != "" }

// Wait is how long its last attempt waited for a place.
func (r *Record) Wait() time.Duration { return r.DispatchedAt - r.Arrived }

// TTFT is how long its client waited for the first token, from its first
// attempt on.
func (r *Record) TTFT() time.Duration { return r.First - r.SubmittedAt }

// Service is how long it held its place.
func (r *Record) Service() time.Duration { return r.Done - r.DispatchedAt }

// Tokens is what the engine computed or had for it: prompt and answer.
func (r *Record) Tokens() int64 { return r.Request.PromptTokens + r.Request.OutputTokens }

// Result is how a simulation went.
type Result struct {
	Records []*Record // in the order of asking
	End     time.Duration
	Engines []EngineResult
	Queue   queue.View // as it stands at the end; zero without a queue
	Events  uint64     // that the world went through
}

// EngineResult is how one engine went.
type EngineResult struct {
	Name string
	Most int // the most requests that were there at once
	Left int // requests still there at the end
}

func (w *World) result() *Result {
	r := &Result{Records: w.requests, End: w.now, Events: w.events.seq}
	for _, e := range w.engines {
		r.Engines = append(r.Engines, EngineResult{e.Name, e.most, e.inside})
	}
	if q := w.Queue(); q != nil {
		r.Queue = q.View(w.time(w.now))
	}
	return r
}

// Stats sums up some of the requests.
type Stats struct {
	Submitted, Answered, Shed int     // Shed counts those that were never answered because of the queue's bounds
	Attempts                  float64 // the mean of all that have ended
	Prompt, Cached            int64   // tokens of those that were answered, like the two below
	Output                    int64
	Wait, TTFT, Service       Times
}

// Hits is the part of the prompts' tokens that the engines had.
func (s Stats) Hits() float64 {
	if s.Prompt == 0 {
		return 0
	}
	return float64(s.Cached) / float64(s.Prompt)
}

// Of sums up the requests that keep tells, all for nil.
func (r *Result) Of(keep func(*Record) bool) Stats {
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

// Times are durations, sorted.
type Times []time.Duration

// Sort brings them into their order, as the other methods need them.
func (t Times) Sort() { slices.Sort(t) }

// Mean returns their mean, 0 of none.
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

// Quantile returns the smallest that at least a part q of them do not exceed, 0
// of none.
func (t Times) Quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	return t[min(len(t)-1, max(0, int(math.Ceil(q*float64(len(t))))-1))]
}

// Max returns the longest, 0 of none.
func (t Times) Max() time.Duration { return t.Quantile(1) }
