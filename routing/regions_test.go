package routing

import (
	"errors"
	"testing"
	"time"
)

// Regions of the tests, by the hashes of their names.
const (
	west = iota + 1
	east
	eu
)

// TestLoadSpillsToTheNearestOpenRegion: workers of the request's region first, then those of the next region
// with a free worker, at last those of unlisted regions and without one. Groups precede regions.
func TestLoadSpillsToTheNearestOpenRegion(t *testing.T) {
	members := []Member{
		{ID: "none", Weight: 1}, {ID: "far", Weight: 1, Region: eu + 1}, {ID: "eu", Weight: 1, Region: eu},
		{ID: "east", Weight: 1, Region: east, MaxInflight: 1}, {ID: "west-a", Weight: 1, Region: west, MaxInflight: 1},
		{ID: "west-b", Weight: 1, Region: west, MaxInflight: 1}, {ID: "west-spare", Weight: 1, Region: west, Group: 1},
	}
	at := func(p *Pool, id string) *Worker { return p.findLocked(id, nil) }
	steps := []struct {
		name   string
		do     func(p *Pool) // in addition to the steps before
		worker string
		others string
	}{
		{"its own region", func(p *Pool) { at(p, "west-b").inflight = 1 }, "west-a",
			"none region, far region, eu region, east region, west-b full, west-spare group"},
		{"full", func(p *Pool) { at(p, "west-a").inflight = 1 }, "east",
			"none region, far region, eu region, west-a full, west-b full, west-spare group"},
		{"saturated", func(p *Pool) { p.Observe("east", nil, Status{Up: true, Saturated: true}) }, "eu",
			"none region, far region, east saturated, west-a full, west-b full, west-spare group"},
		{"in backoff", func(p *Pool) { p.SetBackoff(at(p, "eu"), start.Add(time.Minute)) }, "none",
			"eu backoff 1m0s, east saturated, west-a full, west-b full, west-spare group"},
		{"a region without an order is as far as none", func(p *Pool) { p.Observe("none", nil, Status{}) }, "far",
			"none down, eu backoff 1m0s, east saturated, west-a full, west-b full, west-spare group"},
		{"back in the nearest region", func(p *Pool) { at(p, "west-b").inflight = 0 }, "west-b",
			"none down, far region, eu backoff 1m0s, east saturated, west-a full, west-spare group"},
		{"ejected", func(p *Pool) {
			p.Eject("west-b", nil, Ejection{At: start, Until: start.Add(time.Minute), Unreachable: true})
		}, "far", "none down, eu backoff 1m0s, east saturated, west-a full, west-b open 1m0s, west-spare group"},
	}
	p := poolOf(members...)
	p.Configure(first{}, members)
	for _, s := range steps {
		s.do(p)
		r := Request{Now: start, Regions: []uint64{west, east, eu}}
		o, err := p.Preview(&r, nil)
		if err != nil || o.Worker != s.worker || excludedText(&o) != s.others {
			t.Errorf("%s: a preview shows %s, not %s (%v)\nothers %s,\nnot    %s", s.name, o.Worker, s.worker, err,
				excludedText(&o), s.others)
		}
		l, err := p.Acquire(&r)
		if err != nil || l.Worker().ID() != s.worker {
			t.Fatalf("%s: it went to %v (%v)", s.name, l.Worker(), err)
		}
		l.Release(Result{})
	}
	if l, err := p.Acquire(&Request{Now: start}); err != nil || l.Worker().ID() != "far" {
		t.Errorf("without regions: %v", err)
	}
}

// TestPlannerSeesFullWorkersOfNearerRegionsOnly: a request can wait for a cache in its own region, and not for one
// farther away than a free worker.
func TestPlannerSeesFullWorkersOfNearerRegionsOnly(t *testing.T) {
	members := []Member{{ID: "west", Weight: 1, Region: west, MaxInflight: 1}, {ID: "east", Weight: 1, Region: east},
		{ID: "eu", Weight: 1, Region: eu, MaxInflight: 1}}
	p := poolOf(members...)
	p.Configure(mustCHWBL(t, Config{}), members)
	p.workers[0].inflight, p.workers[2].inflight = 1, 1
	r := Request{Now: start, Wait: true, Regions: []uint64{west, east, eu}}
	o, err := p.Preview(&r, nil)
	if err != nil || o.Choice.Seen != 2 || excludedText(&o) != "eu region" {
		t.Errorf("%d candidates, %s (%v)", o.Choice.Seen, excludedText(&o), err)
	}
	p.Observe("east", nil, Status{})
	if o, err = p.Preview(&r, nil); !errors.Is(err, ErrFull) || o.Choice.Seen != 2 || excludedText(&o) != "east down" {
		t.Errorf("with no free worker: %d candidates, %s (%v)", o.Choice.Seen, excludedText(&o), err)
	}
}

// TestSlowStartSpillsToTheNextRegion: requests beyond the share of the only worker of a region go to the next
// region. They do not wait.
func TestSlowStartSpillsToTheNextRegion(t *testing.T) {
	members := []Member{{ID: "west", Weight: 1, Region: west}, {ID: "east", Weight: 1, Region: east}}
	p := poolOf(members...)
	p.Restore("west", nil, start)
	got := map[string]int{}
	for i := range 1000 {
		l, err := p.Acquire(&Request{Now: start.Add(5 * time.Second), Rand: uint64(i) * golden, Wait: true,
			Regions: []uint64{west, east}})
		if err != nil {
			t.Fatal(err)
		}
		got[l.Worker().ID()]++
		l.Release(Result{})
	}
	if got["west"] < 500 || got["west"] > 600 {
		t.Errorf("at a share of 0.55 the requests went to %v", got)
	}
}

// TestEligibleFollowsRegions: a replay's view of a pool follows the same order.
func TestEligibleFollowsRegions(t *testing.T) {
	workers := []Loaded{{Member: Member{ID: "east", Weight: 1, Region: east}},
		{Member: Member{ID: "west", Weight: 1, Region: west}}}
	r := Request{Now: start, Regions: []uint64{west, east}}
	for _, want := range []string{"west", "east"} {
		ws, err := Eligible(first{}, Saturation{}, &r, workers)
		if err != nil || len(ws) != 1 || ws[0].ID != want {
			t.Errorf("%+v (%v), want %s", ws, err, want)
		}
		workers[1].Full = true
	}
}

func TestRegionsAllocateNothing(t *testing.T) {
	members := []Member{{ID: "east", Weight: 1, Region: east}, {ID: "west", Weight: 1, Region: west}}
	p := poolOf(members...)
	r := Request{Now: start, Regions: []uint64{west, east}}
	mustAcquire(t, p).Release(Result{})
	if n := testing.AllocsPerRun(100, func() {
		l, err := p.Acquire(&r)
		if err != nil {
			t.Fatal(err)
		}
		l.Release(Result{})
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
