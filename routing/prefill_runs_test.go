package routing

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// flight is a request on an engine of a test.
type flight struct {
	lease    Lease
	tokens   int64
	arrival  time.Time
	first    time.Time // end of its prefill
	streamed bool
	leaves   bool // its client leaves before its prefill begins
}

// event is an end of a prefill or of a request.
type event struct {
	at time.Time
	do func()
}

// fifoFlights returns requests in bursts to an engine that prefills them in order of arrival. Half of the answers
// are streamed, and some clients leave.
func fifoFlights(seed uint64, n int, rate float64, streamed float64) (all []*flight) {
	now, idle, usual := start, start, 2200/rate
	for i := range uint64(n) {
		unit := func(k uint64) float64 { return Unit(Draw(seed + 10*i + k)) }
		if unit(0) < 0.2 {
			now = now.Add(seconds(4 * usual * unit(1)))
		}
		now = now.Add(seconds(1.4 * usual * unit(2)))
		f := &flight{tokens: 200 + int64(4000*unit(3)), arrival: now, streamed: unit(4) < streamed}
		if f.leaves = unit(5) < 0.1 && idle.After(now.Add(100*time.Millisecond)); f.leaves {
			f.first = now.Add(50 * time.Millisecond)
		} else {
			if idle.Before(now) {
				idle = now.Add(5 * time.Millisecond)
			}
			idle = idle.Add(seconds(0.005 + float64(f.tokens)/rate))
			f.first = idle
		}
		all = append(all, f)
	}
	return all
}

// runFlights books the requests and reports their ends in the order of time.
func runFlights(t *rapid.T, p *Pool, all []*flight) {
	var events []event
	for _, f := range all {
		events = append(events, event{f.arrival, func() {
			l, err := p.Acquire(&Request{Now: f.arrival, PromptTokens: f.tokens, OutputTokens: 20, Stream: f.streamed})
			if err != nil {
				t.Fatal(err)
			}
			f.lease = l
		}})
		if f.leaves {
			events = append(events, event{f.first, func() { f.lease.Release(Result{At: f.first, Err: ErrExcluded}) }})
			continue
		}
		if f.streamed {
			events = append(events, event{f.first, func() { f.lease.Answered(f.first, nil) }})
		}
		end := f.first.Add(time.Second)
		events = append(events, event{end, func() {
			f.lease.Answered(end, nil)
			f.lease.Release(Result{At: end, PromptTokens: f.tokens, OutputTokens: 20, Text: true})
		}})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	for _, e := range events {
		e.do()
	}
}

// TestTimesAreLearnedFromAllClients: streamed or not, and although some clients leave.
func TestTimesAreLearnedFromAllClients(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Float64Range(3000, 20_000).Draw(rt, "rate")
		streamed, seed := rapid.Float64Range(0.3, 1).Draw(rt, "streamed"), rapid.Uint64().Draw(rt, "seed")
		p := kvPool(Member{MaxInflight: 1000})
		runFlights(rt, p, fifoFlights(seed, 1500, rate, streamed))
		w := p.workers[0]
		for _, tokens := range []float64{1000, 4000} {
			want := 0.005 + tokens/rate
			if got := p.prefillSecondsLocked(w, oneByOne, prefillRegressors(tokens, 0, true)); math.Abs(got/want-1) > 0.2 {
				rt.Errorf("a prefill of %v tokens takes %.3f s, and %.3f s are predicted", tokens, want, got)
			}
		}
		if p.times.order() != oneByOne {
			rt.Error("the prefills count as parallel")
		}
		if w.costs.first != nil || w.costs.seconds != 0 || len(w.prefillEnds) > 0 {
			rt.Errorf("after the last request %v s are booked", w.costs.seconds)
		}
	})
}

// TestRunsEndWithTheirLastFirstToken: what follows it in a run does not show how long it takes.
func TestRunsEndWithTheirLastFirstToken(t *testing.T) {
	p := kvPool(Member{})
	w := p.workers[0]
	at := func(s float64) time.Time { return start.Add(seconds(s)) }
	join := func(tokens int64, seen time.Time) {
		t.Helper()
		p.addToRunLocked(w, p.joinRunLocked(w, tokens, seen), float64(tokens), 0, 0)
	}
	learned := func() float64 { return w.costs.prefillScale[oneByOne].weight }
	for _, c := range []struct {
		name  string
		do    func()
		learn bool
	}{
		{"a first token", func() { join(1000, at(1)) }, true},
		{"an unknown end", func() { join(1000, time.Time{}) }, false},
		{"an unknown end, and a first token", func() { join(1000, time.Time{}); join(1000, at(1)) }, true},
		{"a first token, and an unknown end", func() { join(1000, at(1)); join(1000, time.Time{}) }, false},
		{"a first token, and a client that leaves", func() { join(1000, at(1)); p.breakRunLocked(w) }, true},
		{"a client that leaves, and a first token", func() { p.breakRunLocked(w); join(1000, at(1)) }, false},
		{"a mostly assumed prefix", func() {
			p.addToRunLocked(w, p.joinRunLocked(w, 1000, at(1)), 1000, 1001, 0)
		}, false},
		{"a first token of unknown usage", func() { p.joinRunLocked(w, 1000, at(1)) }, false},
	} {
		p.beginRunLocked(w, start, true)
		before := learned()
		c.do()
		p.beginRunLocked(w, at(10), true)
		if got := learned() > before; got != c.learn {
			t.Errorf("%s: learned %v", c.name, got)
		}
	}
	p.beginRunLocked(w, start, true)
	before := learned()
	for i := range 20 {
		join(1000, at(float64(i+1)/10))
	}
	if learned() <= before {
		t.Error("a long run is not learned while it goes on")
	}
}

// TestWholeAnswersKeepTheirRunAndCancelledOnesBreakIt: the stream behind them shows the time of both, or nothing.
func TestWholeAnswersKeepTheirRunAndCancelledOnesBreakIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(first *Lease, at time.Time)
		learn bool
	}{
		{"whole answer", func(first *Lease, at time.Time) {
			first.Answered(at, nil)
			first.Release(Result{At: at, PromptTokens: 1000, OutputTokens: 1, Text: true})
		}, true},
		{"whole answer, released at once", func(first *Lease, at time.Time) {
			first.Release(Result{At: at, PromptTokens: 1000, OutputTokens: 1, Text: true})
		}, true},
		{"cancelled", func(first *Lease, at time.Time) { first.Release(Result{At: at, Err: ErrExcluded}) }, false},
		{"unbooked", func(first *Lease, _ time.Time) { first.Unbook() }, false},
	} {
		p := kvPool(Member{})
		at := func(s float64) time.Time { return start.Add(seconds(s)) }
		first := book(t, p, Request{Now: start, PromptTokens: 1000, OutputTokens: 1})
		second := book(t, p, Request{Now: start, PromptTokens: 1000, OutputTokens: 1, Stream: true})
		c.end(first, at(0.1)) // before the predicted end of its prefill
		second.Answered(at(0.3), nil)
		second.Release(Result{At: at(0.4), PromptTokens: 1000, OutputTokens: 1, Text: true})
		book(t, p, Request{Now: at(1), PromptTokens: 1000, OutputTokens: 1, Stream: true}) // closes the run
		if learned := p.workers[0].costs.prefillScale[oneByOne].weight > 0; learned != c.learn {
			t.Errorf("%s: learned %v", c.name, learned)
		}
	}
}
