package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// paced returns a pool of one worker that is too slow if more than 5 of 100 first tokens take longer
// than that.
func paced(p95 time.Duration) (p *Pool, w *Worker, gate *recordingGate) {
	gate = &recordingGate{}
	p = poolOf(Member{ID: "a", Weight: 1, Gate: gate})
	p.SetSlowness(Slowness{P95Above: p95, MinSamples: 1})
	return p, p.workers[0], gate
}

// last is the last sample.
func (p *pace) last() sample { return p.samples[len(p.samples)-1] }

// predicted is the predicted time to first token of a worker's last stream.
func (w *Worker) predicted() time.Duration {
	s := w.pace.last()
	return time.Duration(float64(s.observed)/s.ratio + 0.5)
}

func TestPaceIsMeasuredByThePoolsRate(t *testing.T) {
	cut := errors.New("cut")
	for name, c := range map[string]struct {
		stream   bool
		answer   error
		end      error
		p95      time.Duration
		paced    int
		outcomes string
		cuts     string
	}{
		"in time":             {true, nil, nil, time.Hour, 1, "[<nil>]", "[]"},
		"in time, then cut":   {true, nil, cut, time.Hour, 1, "[<nil>]", "[cut]"},
		"slow":                {true, nil, nil, time.Second, 1, "[the worker is too slow]", "[]"},
		"slow, then cut":      {true, nil, cut, time.Second, 1, "[the worker is too slow]", "[]"},
		"failed":              {true, cut, cut, time.Second, 0, "[cut]", "[]"},
		"not a stream":        {false, nil, nil, time.Second, 0, "[<nil>]", "[]"},
		"the client left":     {true, nil, ErrExcluded, time.Hour, 1, "[<nil>]", "[]"},
		"excluded, no answer": {true, ErrExcluded, ErrExcluded, time.Second, 0, "[" + ErrExcluded.Error() + "]", "[]"},
	} {
		p, w, g := paced(c.p95)
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 8000, Stream: c.stream})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start.Add(3*time.Second), c.answer)
		l.Release(Result{Err: c.end})
		if got, cuts := fmt.Sprint(g.outcomes), fmt.Sprint(g.cuts); len(w.pace.samples) != c.paced || got != c.outcomes ||
			cuts != c.cuts {
			t.Errorf("%s: %d samples, reported %s, then %s; want %d, %s and %s", name, len(w.pace.samples), got, cuts, c.paced,
				c.outcomes, c.cuts)
		}
		if want := time.Second + firstStep; c.paced > 0 && (w.pace.last().observed != 3*time.Second ||
			w.predicted() != want) {
			t.Errorf("%s: compares %s with %s, want 3s with %s", name, w.pace.last().observed, w.predicted(), want)
		}
	}
}

// TestNoWorkerIsSlowWithinTheFirstStep: neither one nor twenty milliseconds matter to a client.
func TestNoWorkerIsSlowWithinTheFirstStep(t *testing.T) {
	for _, took := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, firstStep} {
		p, w, _ := paced(time.Hour)
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 1, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start.Add(took), nil)
		l.Release(Result{})
		if got := w.pace.last().observed; got != firstStep {
			t.Errorf("%s is recorded as %s", took, got)
		}
	}
}

// TestStreamsThatWaitInsideTheEngineAreNoSamples for the first 30 s, because they wait for load. An
// engine in which requests always wait may itself be slow.
func TestStreamsThatWaitInsideTheEngineAreNoSamples(t *testing.T) {
	p, w, _ := paced(time.Hour)
	reports := func(after time.Duration, waiting int) {
		p.Observe("a", nil, Status{Up: true, Waiting: waiting, LoadAt: start.Add(after)})
	}
	recorded := func(booked, at time.Duration, want bool) {
		t.Helper()
		before := len(w.pace.samples)
		l, err := p.Acquire(&Request{Now: start.Add(booked), PromptTokens: 100, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start.Add(at), nil)
		l.Release(Result{})
		if got := len(w.pace.samples) > before; got != want {
			t.Errorf("a stream of %s to %s has a pace: %t", booked, at, got)
		}
	}
	const s = time.Second
	reports(0, 0)
	recorded(0, 1*s, true)
	reports(1*s, 3)
	recorded(1*s, 2*s, false)
	reports(2*s, 0)
	recorded(1*s, 3*s, false) // it was there while requests waited
	recorded(3*s, 4*s, true)
	reports(20*s, 3)
	recorded(20*s, 21*s, false)
	reports(31*s, 3)
	recorded(31*s, 32*s, true)
	reports(32*s, 0)
	reports(63*s, 3)
	recorded(63*s, 64*s, false)
}

// TestPredictionIncludesTheWaitForASlot: one stream more than the slots seen so far waits until one
// has ended.
func TestPredictionIncludesTheWaitForASlot(t *testing.T) {
	p, w, _ := paced(time.Hour)
	book := func() Lease {
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 8, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	step := firstStep + time.Millisecond // the step and the prefill
	first, second := book(), book()
	first.Answered(start.Add(time.Second), nil)
	second.Answered(start.Add(time.Second), nil)
	third := book()
	third.Answered(start.Add(time.Second), nil)
	// 256 tokens at 25 ms are the usual answer; one of the two slots comes free after half.
	if want := step + 3200*time.Millisecond; w.predicted() != want {
		t.Errorf("a third stream at two slots is predicted to begin after %s, not %s", w.predicted(), want)
	}
	first.Release(Result{})
	fourth := book()
	fourth.Answered(start.Add(time.Second), nil)
	if w.predicted() != step {
		t.Errorf("a third stream at three slots is predicted to begin after %s, not %s", w.predicted(), step)
	}
	for _, l := range []*Lease{&second, &third, &fourth} {
		l.Release(Result{})
	}
	if w.streams != 0 || w.answering != 0 || w.slots != 3 {
		t.Errorf("%d streams are left, %d of them with an answer, of %d slots", w.streams, w.answering, w.slots)
	}
}
