package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAnOpenWorkerGetsNothingUntilItsTime(t *testing.T) {
	ref := new(int)
	p := poolOf(Member{ID: "a", Weight: 1, Ref: ref}, Member{ID: "b", Weight: 1})
	p.SetOpen("a", ref, start.Add(time.Minute))
	p.SetOpen("b", ref, start.Add(time.Minute)) // of another engine
	for range 5 {
		if l := mustAcquire(t, p); l.Worker().ID() != "b" {
			t.Error("a worker was used past its open breaker")
		}
	}
	if v := p.Snapshot(start.Add(time.Second)); v[0].Open != 59*time.Second || v[1].Open != 0 {
		t.Errorf("the snapshot shows %+v", v)
	}
	p.SetOpen("a", ref, start.Add(time.Second)) // the last call holds
	l, err := p.Acquire(&Request{Now: start.Add(time.Second)})
	if err != nil || l.Worker().ID() != "a" {
		t.Errorf("at its time the worker is not used: %v", err)
	}
	p.SetOpen("a", ref, start.Add(time.Hour))
	p.SetOpen("a", ref, time.Time{})
	if l := mustAcquire(t, p); l.Worker().ID() != "a" {
		t.Error("a closed worker is not used")
	}
}

func TestWhoIsBackFirstDecidesTheError(t *testing.T) {
	at := func(s int) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return start.Add(time.Duration(s) * time.Second)
	}
	for name, c := range map[string]struct {
		cool, open [2]int // seconds from now for two workers; 0 is not at all
		up         bool
		want       error
	}{
		"all open":                         {[2]int{}, [2]int{9, 5}, false, &OpenError{at(5)}},
		"all cooling":                      {[2]int{7, 3}, [2]int{}, true, &CooledError{at(3)}},
		"the cooling one is back first":    {[2]int{3, 0}, [2]int{0, 5}, true, &CooledError{at(3)}},
		"the open one is back first":       {[2]int{6, 0}, [2]int{0, 5}, true, &OpenError{at(5)}},
		"both at once, open for longer":    {[2]int{3, 9}, [2]int{4, 0}, true, &OpenError{at(4)}},
		"both at once, cooling for longer": {[2]int{4, 9}, [2]int{3, 0}, true, &CooledError{at(4)}},
		"one is left":                      {[2]int{4, 0}, [2]int{3, 0}, true, nil},
		"all over":                         {[2]int{-1, 0}, [2]int{0, -1}, true, nil},
	} {
		p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
		for i, w := range p.workers {
			p.Cool(w, at(c.cool[i]))
			p.SetOpen(w.id, nil, at(c.open[i]))
		}
		if got := p.Up(start); got != c.up {
			t.Errorf("%s: up is %v", name, got)
		}
		_, err := p.Acquire(ask())
		if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", c.want, c.want) {
			t.Errorf("%s: Acquire says %v, want %v", name, err, c.want)
		}
	}
}

func TestUpCountsWhoeverWaitingWouldOpen(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b"})
	mustAcquire(t, p)
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) || !p.Up(start) {
		t.Errorf("a full pool says it is up: %v (%v)", p.Up(start), err)
	}
	p.Observe("a", nil, Status{Up: true, Saturated: true})
	if !p.Up(start) {
		t.Error("a saturated pool is not up")
	}
	p.Observe("a", nil, Status{})
	if p.Up(start) {
		t.Error("a pool with a worker that is down and one without weight is up")
	}
}

func TestAModelGoesWhereItIsServed(t *testing.T) {
	models := []uint64{1, 2}
	members := []Member{{ID: "base", Weight: 1, Models: []uint64{1}}, {ID: "both", Weight: 1, Models: models}, {ID: "down", Weight: 1}}
	p := poolOf(members...)
	p.Observe("down", nil, Status{})
	models[1] = 9 // the caller's slice is its own
	for model, want := range map[uint64]string{1: "map[base:true both:true]", 2: "map[both:true]", 0: "map[base:true both:true]"} {
		got := map[string]bool{}
		for i := range 8 {
			l, err := p.Acquire(&Request{Now: start, Model: model, Rand: uint64(i)})
			if err != nil {
				t.Fatal(err)
			}
			got[l.Worker().ID()] = true
			l.Release(Result{})
		}
		if fmt.Sprint(got) != want {
			t.Errorf("model %d went to %v, want %s", model, got, want)
		}
	}
	if _, err := p.Acquire(&Request{Now: start, Model: 3}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a model that nobody serves: %v", err)
	}
}

// first is a policy that takes the first worker that it is shown.
type first struct{}

func (first) Name() string                        { return "first" }
func (first) Pick(*Request, []View) (int, Reason) { return 0, "first" }

func TestAWarmingWorkerIsShownByItsShare(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}}
	p := poolOf(members...)
	p.Configure(first{}, members)
	p.Warm("a", nil, start)
	for s, want := range map[int]float64{-5: 0.1, 0: 0.1, 2: 0.28, 5: 0.55, 9: 0.91, 10: 1, 60: 1} {
		now, got := start.Add(time.Duration(s)*time.Second), 0
		for i := range 10000 {
			l, err := p.Acquire(&Request{Now: now, Rand: uint64(i) * 0x9E3779B97F4A7C15})
			if err != nil {
				t.Fatal(err)
			}
			if l.Worker().ID() == "a" {
				got++
			}
			l.Release(Result{})
		}
		if share := float64(got) / 10000; share < want-0.02 || share > want+0.02 {
			t.Errorf("after %d s it got %v of the requests, want %v", s, share, want)
		}
		if v := p.Snapshot(now)[0]; v.Share < want-1e-9 || v.Share > want+1e-9 {
			t.Errorf("after %d s the snapshot shows a share of %v", s, v.Share)
		}
	}
}

func TestAWarmingWorkerIsNotFlooded(t *testing.T) {
	var members []Member
	for i := range 8 {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
	}
	p := poolOf(members...)
	p.Observe("w0", nil, Status{})
	for i := range 280 { // 40 on each of the others
		if _, err := p.Acquire(&Request{Now: start, Rand: uint64(i), OutputTokens: 100}); err != nil {
			t.Fatal(err)
		}
	}
	p.Observe("w0", nil, Status{Up: true})
	p.Warm("w0", nil, start)
	for i := range 500 { // it is the least loaded by far
		now := start.Add(time.Duration(i) * 10 * time.Millisecond)
		if _, err := p.Acquire(&Request{Now: now, Rand: uint64(i) * 0x9E3779B97F4A7C15, OutputTokens: 100}); err != nil {
			t.Fatal(err)
		}
		vs, others := p.Snapshot(now), 0
		for _, v := range vs[1:] {
			others += v.Inflight
		}
		if most := vs[0].Share*float64(others)/7 + 1; float64(vs[0].Inflight) > most {
			t.Fatalf("after %d requests it has %d in flight, at a share of %v and a mean of %d", i, vs[0].Inflight, vs[0].Share, others/7)
		}
	}
	if v := p.Snapshot(start)[0]; v.Inflight < 20 {
		t.Errorf("after five seconds it has only %d in flight", v.Inflight)
	}
}

func TestAWarmingWorkerThatIsAloneTakesAll(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1, MaxInflight: 1}, Member{ID: "c", Weight: 1, Group: 1})
	p.Warm("a", nil, start)
	p.Observe("b", nil, Status{})
	for i := range 100 {
		if l, err := p.Acquire(&Request{Now: start, Rand: uint64(i)}); err != nil || l.Worker().ID() != "a" {
			t.Fatalf("request %d: %v, %v", i, l.Worker(), err)
		}
	}
	p.Warm("b", nil, start)
	p.Observe("b", nil, Status{Up: true})
	got := map[string]int{}
	for i := range 100 {
		l, err := p.Acquire(&Request{Now: start, Rand: uint64(i) * 0x9E3779B97F4A7C15})
		if err != nil {
			t.Fatal(err)
		}
		got[l.Worker().ID()]++
		l.Release(Result{})
	}
	if got["a"] == 0 || got["b"] == 0 || got["c"] != 0 {
		t.Errorf("two that are warming took %v", got)
	}
}

func TestUnbookGivesBackTheLoadAndLeavesTheVerdict(t *testing.T) {
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		end  func(l *Lease)
		want string
	}{
		"released":              {func(l *Lease) { l.Release(Result{Err: broke}) }, "[broke]"},
		"answered and released": {func(l *Lease) { l.Answered(start, broke); l.Release(Result{}) }, "[broke]"},
		"unbooked twice":        {func(l *Lease) { l.Unbook(); l.Release(Result{}); l.Unbook(); l.Release(Result{Err: broke}) }, "[<nil>]"},
	} {
		g := &ledger{}
		p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 100, OutputTokens: 10, Blocks: prompt(1, 0, 9)})
		if err != nil {
			t.Fatal(err)
		}
		l.Unbook()
		wantBooks(t, p, "a 0 0 0")
		noChains(t, p)
		if len(g.verdicts) != 0 {
			t.Errorf("%s: a verdict was given already: %v", name, g.verdicts)
		}
		other := mustAcquire(t, p)
		c.end(&l)
		wantBooks(t, p, "a 1 100 10") // the other's, although it has the first one's record
		if got := fmt.Sprint(g.verdicts); got != c.want {
			t.Errorf("%s: told %s, want %s", name, got, c.want)
		}
		other.Release(Result{})
		wantBooks(t, p, "a 0 0 0")
	}
	var zero Lease
	zero.Unbook()
}
