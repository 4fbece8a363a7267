package routing

import (
	"errors"
	"testing"
	"time"
)

func TestRoundReportsWhetherAWorkerIsOpen(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(p *Pool)
		open  bool
	}{
		"idle":         {func(*Pool) {}, true},
		"down":         {func(p *Pool) { p.Observe("a", nil, Status{}) }, false},
		"saturated":    {func(p *Pool) { p.Observe("a", nil, Status{Up: true, Saturated: true}) }, false},
		"in backoff":   {func(p *Pool) { p.SetBackoff(p.workers[0], start.Add(1)) }, false},
		"backoff over": {func(p *Pool) { p.SetBackoff(p.workers[0], start) }, true},
		"open":         {func(p *Pool) { p.SetOpen("a", nil, start.Add(1)) }, false},
		"full":         {func(p *Pool) { mustAcquire(t, p); mustAcquire(t, p) }, false},
		"half full":    {func(p *Pool) { mustAcquire(t, p) }, true},
		"no weight":    {func(p *Pool) { p.Configure(leastLoad{}, []Member{{ID: "a"}}) }, false},
		"no worker":    {func(p *Pool) { p.Configure(leastLoad{}, nil) }, false},
		"all tokens in flight": {func(p *Pool) {
			p.Configure(leastLoad{}, []Member{{ID: "a", Weight: 1, MaxTokensInflight: 109}})
			mustAcquire(t, p)
		}, false},
	} {
		p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 2})
		c.spoil(p)
		round := p.BeginRound(start)
		for range 2 { // it remembers
			if round.Open() != c.open {
				t.Errorf("%s: open is %v", name, !c.open)
			}
		}
		if _, err := round.Offer(ask(), nil); (err == nil) != c.open {
			t.Errorf("%s: an offer ends with %v", name, err)
		}
		round.End()
	}
	p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 1})
	round := p.BeginRound(start)
	if !round.Open() {
		t.Error("an idle worker is not open")
	}
	if _, err := round.Offer(ask(), nil); err != nil || round.Open() {
		t.Errorf("after the last place was taken (%v) the round is open", err)
	}
	round.End()
}

// TestRoundIsOpenForTheSmallestRequest: a request without tokens fits where no more tokens fit.
func TestRoundIsOpenForTheSmallestRequest(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxTokensInflight: 110})
	mustAcquire(t, p)
	round := p.BeginRound(start)
	if !round.Open() {
		t.Error("the round reports no free worker")
	}
	if _, err := round.Offer(ask(), nil); !errors.Is(err, ErrFull) {
		t.Errorf("a request with tokens: %v", err)
	}
	if _, err := round.Offer(&Request{}, nil); err != nil {
		t.Errorf("a request without tokens: %v", err)
	}
	round.End()
}

// TestRoundIsSizedIfAWorkerBoundsTokens: without such a worker, requests that differ only in their
// tokens have the same result.
func TestRoundIsSizedIfAWorkerBoundsTokens(t *testing.T) {
	for bound, want := range map[int64]bool{0: false, 1000: true} {
		p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 2}, Member{ID: "b", Weight: 1, MaxTokensInflight: bound})
		round := p.BeginRound(start)
		if round.Sized() != want {
			t.Errorf("with a bound of %d tokens it is sized: %v", bound, !want)
		}
		round.End()
	}
}

func TestOfferUsesTheRoundsTime(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	p.SetBackoff(p.workers[0], start.Add(time.Minute))
	r := &Request{Now: start, Wait: true}
	for _, c := range []struct {
		at time.Time
		ok bool
	}{{start.Add(59 * time.Second), false}, {start.Add(time.Minute), true}} {
		round := p.BeginRound(c.at)
		l, err := round.Offer(r, nil)
		round.End()
		if (err == nil) != c.ok || !r.Now.Equal(c.at) || c.ok && !l.bookedAt.Equal(c.at) {
			t.Errorf("at %s: %v, and the request is of %s", c.at, err, r.Now)
		}
	}
}

// TestGateIsCalledAfterTheRound: a round calls no gate, and a refusal undoes the booking and owes
// nothing.
func TestGateIsCalledAfterTheRound(t *testing.T) {
	for name, refuse := range map[string]bool{"admitted": false, "refused": true} {
		g, changes := &recordingGate{refuse: refuse}, 0
		p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
		p.Watch(func() { changes++ })
		round := p.BeginRound(start)
		l, err := round.Offer(ask(), nil)
		round.End()
		if err != nil || g.asked != 0 {
			t.Fatalf("%s: offering ended with %v, and called the gate %d times", name, err, g.asked)
		}
		err = l.Admit()
		if (err != nil) != refuse || g.asked != 1 {
			t.Errorf("%s: %v after %d calls of the gate", name, err, g.asked)
		}
		if refuse {
			wantBooks(t, p, "a 0 0 0")
			l.Answered(start, nil)
			l.Release(Result{At: start, OutputTokens: 5})
			if len(g.outcomes) != 0 || p.Estimates().OutputTokens.Count != 0 || changes != 1 {
				t.Errorf("a refused lease gave outcomes %v and was seen %d times", g.outcomes, changes)
			}
			continue
		}
		if l.Admit() != nil || g.asked != 1 {
			t.Errorf("an admitted lease called the gate again")
		}
		wantBooks(t, p, "a 1 100 10")
		l.Release(Result{})
		if len(g.outcomes) != 1 {
			t.Errorf("outcomes %v", g.outcomes)
		}
	}
	p := poolOf(Member{ID: "a", Weight: 1})
	if l := mustAcquire(t, p); l.Admit() != nil {
		t.Error("a lease without a gate is refused")
	}
	var zero Lease
	if zero.Admit() != nil {
		t.Error("a zero lease is refused")
	}
}
