package routing

import (
	"errors"
	"testing"
	"time"
)

// kept returns the worker that a round reserved for the request, or "", and the result of Reserve.
func kept(p *Pool, now time.Time, r *Request, tried ...*Worker) (id string, said bool) {
	round := p.BeginRound(now)
	defer round.End()
	said = round.Reserve(r, tried)
	for _, w := range p.workers {
		if w.reserved {
			id += w.id
		}
	}
	return id, said
}

// TestReserveSelectsAmongTheOfferedWorkers: only in the group that serves the request, no worker that is
// paused or saturated, and none if the request has room. All have 900 of 1,000 tokens in flight but
// b, which has 800; the request brings 500.
func TestReserveSelectsAmongTheOfferedWorkers(t *testing.T) {
	type members = map[string]Member
	for name, c := range map[string]struct {
		change members // of the usual ones
		spoil  func(p *Pool)
		want   string
	}{
		"the one with the fewest tokens": {nil, nil, "b"},
		"room on another one":            {members{"c": {MaxTokensInflight: 2000}}, nil, ""},
		"room in the group for fallback": {members{"c": {Group: 1, MaxTokensInflight: 2000}}, nil, "b"},
		"no worker of the first group is usable": {members{"b": {Group: 1}}, func(p *Pool) {
			p.Observe("a", nil, Status{})
			p.Observe("c", nil, Status{})
		}, "b"},
		"the fewest tokens in a group of its own": {members{"b": {Group: 1}}, nil, "a"},
		"a later member of a lower group":         {members{"a": {Group: 1}, "b": {Group: 1}}, nil, "c"},
		"saturated": {nil, func(p *Pool) {
			p.Observe("b", nil, Status{Up: true, Saturated: true})
		}, "a"},
		"saturated by its metrics": {nil, func(p *Pool) {
			p.SetSaturation(Saturation{KVUsage: 0.9})
			p.Observe("b", nil, Status{Up: true, Waiting: 1, KVUsage: 0.95, LoadAt: start})
		}, "a"},
		"room on a saturated one": {members{"c": {MaxTokensInflight: 2000}}, func(p *Pool) {
			p.Observe("c", nil, Status{Up: true, Saturated: true})
		}, "b"},
		"saturated ones hold their group": {members{"a": {Group: 1}, "c": {Group: 1}}, func(p *Pool) {
			p.Observe("b", nil, Status{Up: true, Saturated: true})
		}, ""},
		"in backoff":                    {nil, func(p *Pool) { p.SetBackoff(p.workers[1], start.Add(time.Hour)) }, "a"},
		"another model":                 {members{"b": {Models: []uint64{9}}}, nil, "a"},
		"no bound in tokens":            {members{"b": {MaxInflight: 1, MaxTokensInflight: -1}}, nil, "a"},
		"full, and with room in tokens": {members{"b": {MaxInflight: 1, MaxTokensInflight: 2000}}, nil, "a"},
		"all are full by requests": {members{
			"a": {MaxInflight: 1, MaxTokensInflight: -1}, "b": {MaxInflight: 1, MaxTokensInflight: -1},
			"c": {MaxInflight: 1, MaxTokensInflight: -1},
		}, nil, ""},
	} {
		var all []Member
		for _, id := range []string{"a", "b", "c"} {
			m := c.change[id]
			if m.ID, m.Weight = id, 1; m.MaxTokensInflight == 0 {
				m.MaxTokensInflight = 1000
			}
			all = append(all, m)
		}
		p := poolOf(all...)
		for i, w := range p.workers {
			r := Request{Now: start, OutputTokens: []int64{900, 800, 900}[i]}
			p.Observe(w.id, nil, Status{})
			for _, other := range p.workers {
				p.Observe(other.id, nil, Status{Up: other == w})
			}
			if _, err := p.Acquire(&r); err != nil {
				t.Fatal(err)
			}
		}
		for _, w := range p.workers {
			p.Observe(w.id, nil, Status{Up: true})
		}
		if c.spoil != nil {
			c.spoil(p)
		}
		if got, said := kept(p, start, &Request{Model: 1, OutputTokens: 500}); got != c.want || said != (c.want != "") {
			t.Errorf("%s: it reserved %q and returned %v, want %q", name, got, said, c.want)
		}
	}
}

// TestReservationLastsOneRound: no other request of the round gets the worker, the next reservation is
// another worker, and the next round has no reservation.
func TestReservationLastsOneRound(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxTokensInflight: 1000}, Member{ID: "b", Weight: 1, MaxTokensInflight: 1000})
	for range 2 {
		if _, err := p.Acquire(&Request{Now: start, OutputTokens: 600}); err != nil {
			t.Fatal(err)
		}
	}
	long, short := &Request{OutputTokens: 500}, &Request{OutputTokens: 10}
	round := p.BeginRound(start)
	for i, want := range []bool{true, true, false} {
		if got := round.Reserve(long, nil); got != want {
			t.Errorf("reservation %d: %v", i, got)
		}
		if i == 0 {
			if l, err := round.Offer(short, nil); err != nil || l.Worker().reserved {
				t.Errorf("a short request went to %v: %v", l.Worker(), err)
			}
		}
	}
	if _, err := round.Offer(short, nil); !errors.Is(err, ErrFull) || round.Open() {
		t.Errorf("with both reserved a short request went: %v", err)
	}
	round.End()
	if got, said := kept(p, start, short); got != "" || said {
		t.Errorf("where there is room it kept %q", got)
	}
}
