package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestAWarmingWorkerIsNotFloodedFromTheQueue: while the others are full, one
// that starts slowly gets its share of what they have in flight, and is not left
// idle by the draw.
func TestAWarmingWorkerIsNotFloodedFromTheQueue(t *testing.T) {
	var members []Member
	for i := range 4 {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 20})
	}
	policy := mustCHWBL(t, Config{})
	p := poolOf(members...)
	p.Configure(policy, members)
	p.Observe("w0", nil, Status{})
	for i := range 60 {
		if _, err := p.Acquire(&Request{Now: start, Prefix: uint64(i + 1), PromptTokens: 10}); err != nil {
			t.Fatal(err)
		}
	}
	p.Observe("w0", nil, Status{Up: true})
	p.Warm("w0", nil, start)
	for s, want := range []int{2, 4, 6, 8, 10, 11, 13, 15, 17, 19, 20} { // ceil(20 × (0.1 + 0.09 s))
		round := p.Begin(start.Add(time.Duration(s) * time.Second))
		for i := range 200 {
			_, err := round.Offer(&Request{Rand: uint64(i) * golden, Prefix: uint64(i + 1), PromptTokens: 10, Wait: true}, nil)
			if err != nil && !errors.Is(err, ErrHeld) {
				t.Fatal(err)
			}
		}
		round.End()
		if got := p.Snapshot(start)[0].Inflight; got != want {
			t.Errorf("after %d s it has %d in flight, want %d", s, got, want)
		}
	}
}

// TestAnIdleWorkerThatIsWarmingServesTheQueue: where only full workers are left
// beside it, the draw does not keep requests from it, and its share still does.
func TestAnIdleWorkerThatIsWarmingServesTheQueue(t *testing.T) {
	members := []Member{{ID: "warm", Weight: 1}, {ID: "full", Weight: 1, MaxInflight: 11}}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, Config{}), members)
	for range 11 {
		if _, err := p.Acquire(&Request{Now: start}, p.workers[0]); err != nil {
			t.Fatal(err)
		}
	}
	p.Warm("warm", nil, start)
	r := Request{Wait: true}
	for chance(r.Rand, 0) < 0.99 { // drawn for the last moment of its slow start
		r.Rand++
	}
	round := p.Begin(start)
	for i, want := range []error{nil, nil, ErrHeld} { // a tenth of 11, rounded up
		one := r
		if _, err := round.Offer(&one, nil); err != want {
			t.Errorf("request %d: %v, want %v", i, err, want)
		}
	}
	round.End()
}

// TestTheDrawKeepsAWarmingWorkerFromRequestsThatOthersTake: with one open beside
// it and the full ones, a slow start is as ever.
func TestTheDrawKeepsAWarmingWorkerFromRequestsThatOthersTake(t *testing.T) {
	members := []Member{{ID: "warm", Weight: 1}, {ID: "full", Weight: 1, MaxInflight: 1}, {ID: "open", Weight: 1}}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, Config{}), members)
	mustAcquire(t, p, p.workers[0], p.workers[2])
	p.Warm("warm", nil, start)
	r := Request{Wait: true, OutputTokens: 1000}
	for chance(r.Rand, 0) < 0.99 {
		r.Rand++
	}
	round := p.Begin(start)
	for range 3 {
		one := r
		if l, err := round.Offer(&one, nil); err != nil || l.Worker().ID() != "open" {
			t.Errorf("it went to %v: %v", l.Worker(), err)
		}
	}
	round.End()
}
