package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAStreamsPaceIsJudgedByThePoolsRate(t *testing.T) {
	slow, cut := errors.New("slow"), errors.New("cut")
	for name, c := range map[string]struct {
		stream   bool
		answer   error
		end      error
		pace     error
		paced    int
		verdicts string
		cuts     string
	}{
		"in time":             {true, nil, nil, nil, 1, "[<nil>]", "[]"},
		"in time, then cut":   {true, nil, cut, nil, 1, "[<nil>]", "[cut]"},
		"slow":                {true, nil, nil, slow, 1, "[slow]", "[]"},
		"slow, then cut":      {true, nil, cut, slow, 1, "[slow]", "[]"},
		"failed":              {true, cut, cut, slow, 0, "[cut]", "[]"},
		"not a stream":        {false, nil, nil, slow, 0, "[<nil>]", "[]"},
		"the client left":     {true, nil, ErrExcluded, nil, 1, "[<nil>]", "[]"},
		"excluded, no answer": {true, ErrExcluded, ErrExcluded, slow, 0, "[excluded from the verdict]", "[]"},
	} {
		g := &pacer{verdict: c.pace}
		p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 8000, Stream: c.stream})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start.Add(3*time.Second), c.answer)
		l.Release(Result{Err: c.end})
		if got, cuts := fmt.Sprint(g.verdicts), fmt.Sprint(g.cuts); g.paced != c.paced || got != c.verdicts || cuts != c.cuts {
			t.Errorf("%s: asked %d times for the pace, told %s, then %s; want %d, %s and %s", name, g.paced, got, cuts, c.paced, c.verdicts, c.cuts)
		}
		if want := time.Second + firstStep; c.paced > 0 && (g.observed != 3*time.Second || g.predicted != want) {
			t.Errorf("%s: told %s against %s, want 3s against %s", name, g.observed, g.predicted, want)
		}
	}
}

// TestNobodyIsSlowWithinTheFirstStep: of one and of twenty milliseconds neither
// keeps anybody waiting.
func TestNobodyIsSlowWithinTheFirstStep(t *testing.T) {
	for _, took := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond, firstStep} {
		g := &pacer{}
		p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 1, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start.Add(took), nil)
		l.Release(Result{})
		if g.observed != firstStep {
			t.Errorf("%s is told as %s", took, g.observed)
		}
	}
}

// TestStreamsThatWaitInsideTheirEngineHaveNoPace for the first 30 s: what they wait for
// is the load. An engine in which requests always wait may be slow itself.
func TestStreamsThatWaitInsideTheirEngineHaveNoPace(t *testing.T) {
	g := &pacer{}
	p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
	reports := func(after time.Duration, waiting int) {
		p.Observe("a", nil, Status{Up: true, Waiting: waiting, LoadAt: start.Add(after)})
	}
	paced := func(booked, at time.Duration, want bool) {
		t.Helper()
		before := g.paced
		l, err := p.Acquire(&Request{Now: start.Add(booked), PromptTokens: 100, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start.Add(at), nil)
		l.Release(Result{})
		if got := g.paced > before; got != want {
			t.Errorf("a stream of %s to %s has a pace: %t", booked, at, got)
		}
	}
	const s = time.Second
	reports(0, 0)
	paced(0, 1*s, true)
	reports(1*s, 3)
	paced(1*s, 2*s, false)
	reports(2*s, 0)
	paced(1*s, 3*s, false) // it was there while requests waited
	paced(3*s, 4*s, true)
	reports(20*s, 3)
	paced(20*s, 21*s, false)
	reports(31*s, 3)
	paced(31*s, 32*s, true)
	reports(32*s, 0)
	reports(63*s, 3)
	paced(63*s, 64*s, false)
}

// TestPaceIsPredictedWithTheSlots that streams have shown their engine to have: a stream
// more waits until one has ended.
func TestPaceIsPredictedWithTheSlots(t *testing.T) {
	g := &pacer{}
	p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
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
	if want := step + 3200*time.Millisecond; g.predicted != want {
		t.Errorf("a third stream at two slots is predicted to begin after %s, not %s", g.predicted, want)
	}
	first.Release(Result{})
	fourth := book()
	fourth.Answered(start.Add(time.Second), nil)
	if g.predicted != step {
		t.Errorf("a third stream at three slots is predicted to begin after %s, not %s", g.predicted, step)
	}
	for _, l := range []*Lease{&second, &third, &fourth} {
		l.Release(Result{})
	}
	if w := p.workers[0]; w.streams != 0 || w.streaming != 0 || w.slots != 3 {
		t.Errorf("%d streams are left, %d of them with an answer, of %d slots", w.streams, w.streaming, w.slots)
	}
}
