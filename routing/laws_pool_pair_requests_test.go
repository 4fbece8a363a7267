package routing_test

import (
	"errors"
	"reflect"

	"pgregory.net/rapid"

	"tierway/routing"
)

// drawTried draws tried workers, the same ones of each pool.
func (m *poolPair) drawTried(rt *rapid.T) (tried [2][]*routing.Worker) {
	if n := len(m.leases[0]); n > 0 && rapid.IntRange(0, 3).Draw(rt, "tries again") == 0 {
		i := rapid.IntRange(0, n-1).Draw(rt, "tried")
		m.both(func(_ *routing.Pool, side int) { tried[side] = append(tried[side], m.leases[side][i].Worker()) })
	}
	return tried
}

// drawPair draws a request, with one copy for each pool.
func (m *poolPair) drawPair(rt *rapid.T) (pair [2]*routing.Request) {
	r := drawRequest(rt, m.now)
	if rapid.Bool().Draw(rt, "usual") { // of sizes among which bounds are reached
		r.PromptTokens, r.OutputTokens = rapid.Int64Range(0, 30_000).Draw(rt, "usual prompt"),
			rapid.Int64Range(0, 2000).Draw(rt, "usual output")
	}
	if rapid.IntRange(0, 9).Draw(rt, "for one only") == 0 {
		_, ref := m.drawRef(rt)
		r.Only = ref
	}
	m.both(func(_ *routing.Pool, side int) { own := r; pair[side] = &own })
	return pair
}

// preview previews a request on the first pool: twice, with a draft of the present configuration, and with
// other drafts. Nothing may change.
func (m *poolPair) preview(rt *rapid.T, r *routing.Request, tried []*routing.Worker) (routing.Preview, error) {
	p := m.pools[0]
	preview, err := p.Preview(r, nil, tried...)
	for _, draft := range []*routing.Draft{
		{Policy: m.policies[0], Members: m.drawMembers(rt), Limit: m.limit}, {Policy: m.other, Members: m.members},
	} {
		if o, failed := p.Preview(r, draft, tried...); (failed == nil) != (o.Worker != "" && !o.WorkerFull) {
			rt.Fatalf("a draft says %+v (%v)", o, failed)
		}
	}
	for what, draft := range map[string]*routing.Draft{"a second time": nil,
		"with itself as the draft": {Policy: m.policies[0], Members: m.members, Limit: m.limit}} {
		again, failed := p.Preview(r, draft, tried...)
		if !sameError(err, failed) || !reflect.DeepEqual(preview, again) {
			rt.Fatalf("a preview says %+v (%v), and %s %+v (%v)", preview, err, what, again, failed)
		}
	}
	if n := len(preview.Excluded) + preview.Choice.Seen; n != len(m.members) {
		rt.Fatalf("a preview lists %d members of %d: %+v", n, len(m.members), preview)
	}
	return preview, err
}

func (m *poolPair) acquire(rt *rapid.T) {
	pair, tried := m.drawPair(rt), m.drawTried(rt)
	m.sendRequest(rt, pair, tried)
}

// sendRequest previews a request and sends it.
func (m *poolPair) sendRequest(rt *rapid.T, pair [2]*routing.Request, tried [2][]*routing.Worker) {
	preview, want := m.preview(rt, pair[0], tried[0])
	pair[0].Record = &routing.Choice{}
	var leases [2]*routing.Lease
	var errs [2]error
	m.both(func(p *routing.Pool, side int) {
		lease, err := p.Acquire(pair[side], tried[side]...)
		leases[side], errs[side] = &lease, err
	})
	m.checkPreview(rt, pair[0], &preview, want, leases[0], errs[0])
	m.checkPlaced(rt, pair, leases, errs)
}

// checkPreview compares the result of a request with its preview.
func (m *poolPair) checkPreview(rt *rapid.T, r *routing.Request, preview *routing.Preview, want error,
	lease *routing.Lease, err error) {
	held := errors.Is(err, routing.ErrBestWorkerFull) || errors.Is(err, routing.ErrFull)
	switch {
	case !sameError(want, err):
		rt.Fatalf("a preview says %v, and the request ended with %v", want, err)
	case !reflect.DeepEqual(preview.Choice, *r.Record):
		rt.Fatalf("a preview says\n%+v, and the request's record\n%+v", preview.Choice, *r.Record)
	case err == nil && (lease.Worker().ID() != preview.Worker || lease.Reason() != preview.Reason ||
		preview.WorkerFull):
		rt.Fatalf("a preview says %+v, and %s took it (%s)", preview, lease.Worker().ID(), lease.Reason())
	case err != nil && (preview.Worker != "") != preview.WorkerFull, preview.WorkerFull && !held,
		preview.WorkerFull != preview.Choice.WorkerFull:
		rt.Fatalf("a preview says %+v, and the request ended with %v", preview, err)
	case preview.WorkerFull:
		m.redecide(rt, r, r.Record, preview.Worker, preview.Reason)
	}
}

// checkPlaced compares the results of a request in both pools and decides it again.
func (m *poolPair) checkPlaced(rt *rapid.T, pair [2]*routing.Request, leases [2]*routing.Lease, errs [2]error) {
	if !sameError(errs[0], errs[1]) {
		rt.Fatalf("recorded, a request ended with %v, and else with %v", errs[0], errs[1])
	}
	if errs[0] != nil {
		return
	}
	one, two := leases[0], leases[1]
	if one.Worker().ID() != two.Worker().ID() || one.Reason() != two.Reason() || one.Overlap() != two.Overlap() ||
		one.Expected() != two.Expected() {
		rt.Fatalf("recorded, a request went to %s (%s), and else to %s (%s)", one.Worker().ID(), one.Reason(),
			two.Worker().ID(), two.Reason())
	}
	m.both(func(_ *routing.Pool, side int) { m.leases[side] = append(m.leases[side], leases[side]) })
	m.redecide(rt, pair[0], pair[0].Record, one.Worker().ID(), one.Reason())
}

// round offers the waiting requests and some others; the first of them is previewed.
func (m *poolPair) round(rt *rapid.T) {
	offers := [2][]*routing.Request{m.waiting[0], m.waiting[1]}
	for range rapid.IntRange(0, 6).Draw(rt, "offers") {
		pair := m.drawPair(rt)
		wait := rapid.IntRange(0, 3).Draw(rt, "waits") > 0
		m.both(func(_ *routing.Pool, side int) {
			pair[side].Wait = wait
			offers[side] = append(offers[side], pair[side])
		})
	}
	if len(offers[0]) == 0 {
		return
	}
	tried := m.drawTried(rt)
	first := offers[0][0]
	first.Now = m.now
	preview, want := m.preview(rt, first, tried[0])
	rounds := [2]*routing.DispatchRound{m.pools[0].BeginRound(m.now), m.pools[1].BeginRound(m.now)}
	m.waiting = [2][]*routing.Request{}
	var made [2][]*routing.Lease
	for i := range offers[0] {
		pair := [2]*routing.Request{offers[0][i], offers[1][i]}
		pair[0].Record = &routing.Choice{}
		var leases [2]*routing.Lease
		var errs [2]error
		m.both(func(_ *routing.Pool, side int) {
			lease, err := rounds[side].Offer(pair[side], tried[side])
			leases[side], errs[side] = &lease, err
			if err == nil {
				made[side] = append(made[side], leases[side])
			} else if pair[side].Wait && len(m.waiting[side]) < 4 {
				m.waiting[side] = append(m.waiting[side], pair[side])
			}
		})
		if i == 0 {
			m.checkPreview(rt, pair[0], &preview, want, leases[0], errs[0])
		}
		m.checkPlaced(rt, pair, leases, errs)
	}
	m.both(func(_ *routing.Pool, side int) { rounds[side].End() })
	m.both(func(_ *routing.Pool, side int) {
		for _, l := range made[side] {
			if err := l.Admit(); err != nil {
				rt.Fatalf("admitting: %v", err)
			}
		}
	})
}

// draft previews a request under other members and other rules and then applies them: the preview
// must be the same. A new member is up.
func (m *poolPair) draft(rt *rapid.T) {
	members, pair := m.drawMembers(rt), m.drawPair(rt)
	m.limit.Waiting = rapid.IntRange(0, 9).Draw(rt, "saturated at")
	m.health.Factor = rapid.SampledFrom([]float64{0, healthFactor}).Draw(rt, "health factor")
	preview, want := m.pools[0].Preview(pair[0], &routing.Draft{Policy: m.policies[0], Members: members, Limit: m.limit,
		Health: m.health})
	known := map[string]bool{}
	for _, w := range m.members {
		known[w.ID] = true
	}
	m.configure(members)
	m.both(func(p *routing.Pool, _ int) {
		p.SetSaturation(m.limit)
		p.SetHealthWeight(m.health)
		for _, w := range members {
			if !known[w.ID] {
				p.Observe(w.ID, w.Ref, routing.Status{Up: true})
			}
		}
	})
	if now, failed := m.pools[0].Preview(pair[0], nil); !sameError(want, failed) || !reflect.DeepEqual(preview, now) {
		rt.Fatalf("a draft says %+v (%v), and the pool so configured %+v (%v)", preview, want, now, failed)
	}
	m.sendRequest(rt, pair, [2][]*routing.Worker{})
}
