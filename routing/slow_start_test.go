package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestSlowStartLimitsRequestsFromTheQueue: while the other workers are full, a worker in slow start gets
// its share of their requests in flight, and the draw does not leave it idle.
func TestSlowStartLimitsRequestsFromTheQueue(t *testing.T) {
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
	p.Restore("w0", nil, start)
	for s, want := range []int{2, 4, 6, 8, 10, 11, 13, 15, 17, 19, 20} { // ceil(20 × (0.1 + 0.09 s))
		round := p.BeginRound(start.Add(time.Duration(s) * time.Second))
		for i := range 200 {
			_, err := round.Offer(&Request{Rand: uint64(i) * golden, Prefix: uint64(i + 1), PromptTokens: 10, Wait: true}, nil)
			if err != nil && !errors.Is(err, ErrBestWorkerFull) && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
		}
		round.End()
		if got := p.Snapshot(start)[0].Inflight; got != want {
			t.Errorf("after %d s it has %d in flight, want %d", s, got, want)
		}
	}
}

// TestIdleWorkerInSlowStartServesTheQueue: if only full workers are left beside it, only its share limits
// it, not the draw.
func TestIdleWorkerInSlowStartServesTheQueue(t *testing.T) {
	members := []Member{{ID: "warm", Weight: 1}, {ID: "full", Weight: 1, MaxInflight: 11}}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, Config{}), members)
	for range 11 {
		if _, err := p.Acquire(&Request{Now: start}, p.workers[0]); err != nil {
			t.Fatal(err)
		}
	}
	p.Restore("warm", nil, start)
	r := Request{Wait: true}
	for chance(r.Rand, 0) < 0.99 { // drawn for the last moment of its slow start
		r.Rand++
	}
	round := p.BeginRound(start)
	for i, want := range []error{nil, nil, ErrFull} { // a tenth of 11, rounded up
		one := r
		if _, err := round.Offer(&one, nil); !errors.Is(err, want) {
			t.Errorf("request %d: %v, want %v", i, err, want)
		}
	}
	round.End()
}

// TestSlowStartDrawsIfAnotherWorkerIsOpen: full workers change nothing.
func TestSlowStartDrawsIfAnotherWorkerIsOpen(t *testing.T) {
	members := []Member{{ID: "warm", Weight: 1}, {ID: "full", Weight: 1, MaxInflight: 1}, {ID: "open", Weight: 1}}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, Config{}), members)
	mustAcquire(t, p, p.workers[0], p.workers[2])
	p.Restore("warm", nil, start)
	r := Request{Wait: true, OutputTokens: 1000}
	for chance(r.Rand, 0) < 0.99 {
		r.Rand++
	}
	round := p.BeginRound(start)
	for range 3 {
		one := r
		if l, err := round.Offer(&one, nil); err != nil || l.Worker().ID() != "open" {
			t.Errorf("it went to %v: %v", l.Worker(), err)
		}
	}
	round.End()
}

// floodSize sends 200 requests at once to a pool of four workers with 20 places each, of which the
// first is in slow start. It returns how many requests the first one got.
func floodSize(t *testing.T, policy Policy, ask Request, change func(members []Member), spoil func(p *Pool)) int {
	t.Helper()
	var members []Member
	for i := range 4 {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1, MaxInflight: 20})
	}
	if change != nil {
		change(members)
	}
	p := poolOf(members...)
	p.Configure(policy, members)
	p.Observe("w0", nil, Status{})
	for i := range 60 {
		if _, err := p.Acquire(&Request{Now: start, Prefix: uint64(i + 1), PromptTokens: 10,
			Rand: uint64(i) * golden}); err != nil {
			t.Fatal(err)
		}
	}
	p.Observe("w0", nil, Status{Up: true})
	p.Restore("w0", nil, start)
	if spoil != nil {
		spoil(p)
	}
	round := p.BeginRound(start)
	for i := range 200 {
		r := ask
		r.Rand, r.Prefix, r.PromptTokens = uint64(i)*golden, uint64(i+1), 10
		if _, err := round.Offer(&r, nil); err != nil && !errors.Is(err, ErrFull) && !errors.Is(err, ErrBestWorkerFull) {
			t.Fatal(err)
		}
	}
	round.End()
	return p.Snapshot(start)[0].Inflight
}

// TestBacklogDoesNotFloodAWorkerInSlowStart: under every policy it gets a tenth of the others' requests
// in flight. It gets all requests that no other worker could serve, and those that cannot wait.
func TestBacklogDoesNotFloodAWorkerInSlowStart(t *testing.T) {
	for _, name := range Names() {
		for what, c := range map[string]struct {
			ask    Request
			change func(members []Member)
			spoil  func(p *Pool)
			want   int
		}{
			"the others are full":     {Request{Wait: true}, nil, nil, 2},
			"it has twice the weight": {Request{Wait: true}, func(ms []Member) { ms[0].Weight = 2 }, nil, 4},
			"they are saturated": {Request{Wait: true}, nil,
				others(func(p *Pool, w *Worker) { p.Observe(w.id, nil, Status{Up: true, Saturated: true}) }), 2},
			"no request can wait":     {Request{}, nil, nil, 20},
			"it is for that one only": {Request{Wait: true, Only: 7}, func(ms []Member) { ms[0].Ref = 7 }, nil, 20},
			"the others are down": {Request{Wait: true}, nil,
				others(func(p *Pool, w *Worker) { p.Observe(w.id, nil, Status{}) }), 20},
			"they are in backoff": {Request{Wait: true}, nil,
				others(func(p *Pool, w *Worker) { p.SetBackoff(w, start.Add(time.Minute)) }), 20},
			"they are of other models": {Request{Wait: true, Model: 1}, func(ms []Member) {
				ms[1].Models, ms[2].Models, ms[3].Models = []uint64{2}, []uint64{2}, []uint64{2}
			}, nil, 20},
			"they are a fallback": {Request{Wait: true}, func(ms []Member) {
				ms[1].Group, ms[2].Group, ms[3].Group = 1, 1, 1
			}, nil, 20},
			"they are back as well": {Request{Wait: true}, nil,
				others(func(p *Pool, w *Worker) { p.Restore(w.id, nil, start) }), 20},
		} {
			policy, err := New(Config{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			if got := floodSize(t, policy, c.ask, c.change, c.spoil); got != c.want {
				t.Errorf("%s, %s: it got %d at once, want %d", name, what, got, c.want)
			}
		}
	}
}

// others applies a function to all workers but the first.
func others(do func(p *Pool, w *Worker)) func(p *Pool) {
	return func(p *Pool) {
		for _, w := range p.workers[1:] {
			do(p, w)
		}
	}
}

// TestSlowStartShareCountsFullWorkers: the share is one of all workers' requests, also for a request that
// cannot wait and has a free worker beside the one in slow start.
func TestSlowStartShareCountsFullWorkers(t *testing.T) {
	for what, c := range map[string]struct {
		full, open int // places of the others, of which one is left open
		want       int
	}{
		"mostly on the full one": {60, 10, 4}, // ceil(0.1 × (60 + 9)/2)
		"mostly on the open one": {10, 60, 4},
	} {
		members := []Member{{ID: "full", Weight: 1, MaxInflight: c.full}, {ID: "open", Weight: 1, MaxInflight: c.open},
			{ID: "warm", Weight: 1}}
		p := poolOf(members...)
		p.Observe("warm", nil, Status{})
		for range c.full {
			mustAcquire(t, p, p.workers[1])
		}
		for range c.open - 1 {
			mustAcquire(t, p, p.workers[0])
		}
		p.Observe("warm", nil, Status{Up: true})
		p.Restore("warm", nil, start)
		p.Configure(last{}, members)
		for i := range 500 {
			if l, err := p.Acquire(&Request{Now: start, Rand: uint64(i) * golden}); err != nil {
				t.Fatal(err)
			} else if l.Worker().ID() == "open" {
				l.Release(Result{})
			}
		}
		if got := p.workers[2].inflight; got != c.want {
			t.Errorf("%s: it got %d, want %d", what, got, c.want)
		}
	}
}

func TestSlowStartShowsTheWorkerByItsShare(t *testing.T) {
	members := []Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}}
	p := poolOf(members...)
	p.Configure(first{}, members)
	p.Restore("a", nil, start)
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

func TestSlowStartRampsUp(t *testing.T) {
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
	p.Restore("w0", nil, start)
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
			t.Fatalf("after %d requests it has %d in flight, at a share of %v and a mean of %d", i, vs[0].Inflight, vs[0].Share,
				others/7)
		}
	}
	if v := p.Snapshot(start)[0]; v.Inflight < 20 {
		t.Errorf("after five seconds it has only %d in flight", v.Inflight)
	}
}

func TestOnlyWorkerInSlowStartTakesAll(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1, MaxInflight: 1},
		Member{ID: "c", Weight: 1, Group: 1})
	p.Restore("a", nil, start)
	p.Observe("b", nil, Status{})
	for i := range 100 {
		if l, err := p.Acquire(&Request{Now: start, Rand: uint64(i)}); err != nil || l.Worker().ID() != "a" {
			t.Fatalf("request %d: %v, %v", i, l.Worker(), err)
		}
	}
	p.Restore("b", nil, start)
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
		t.Errorf("two in slow start took %v", got)
	}
}
