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
