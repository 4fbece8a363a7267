package routing_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// expected returns the workers that may get the request or be waited for, or the error if there are none.
// It follows the documented rules, not the pool's code. If gates is true, shut gates refuse.
func (m *machine) expected(r *routing.Request, tried []*member, gates bool) (may []*member, err error) {
	prompt, output := tokensOf(r)
	full := func(w *member) bool { return w.full(prompt + output) }
	group, err := m.usable(r, tried, gates)
	if err != nil {
		return nil, err
	}
	slow := !gates && r.Wait && !slices.ContainsFunc(group, func(w *member) bool {
		return !w.status.Saturated && !full(w) && !m.overShare(w, group)
	})
	for _, w := range group {
		if !w.status.Saturated && (full(w) && r.Wait && m.policy.Plans(r) || !full(w) && !slow) {
			may = append(may, w)
		}
	}
	if len(may) == 0 {
		return nil, routing.ErrFull
	}
	return m.nearest(r, may, full), nil
}

// nearest drops the workers that are farther than a free worker outside of slow start.
func (m *machine) nearest(r *routing.Request, may []*member, full func(*member) bool) []*member {
	if len(r.Regions) == 0 {
		return may
	}
	distance := func(w *member) int {
		at := slices.Index(r.Regions, w.Region)
		if at < 0 {
			return len(r.Regions)
		}
		return at
	}
	nearest := len(r.Regions)
	for _, w := range may {
		if !full(w) && w.share(m.now) == 1 {
			nearest = min(nearest, distance(w))
		}
	}
	return slices.DeleteFunc(may, func(w *member) bool { return distance(w) > nearest })
}

// overShare reports whether one more request would exceed the share of a worker in slow start, compared
// with the other workers of its group.
func (m *machine) overShare(w *member, group []*member) bool {
	share := w.share(m.now)
	inflight, weight := 0, 0
	for _, other := range group {
		if other.share(m.now) == 1 {
			inflight, weight = inflight+other.inflight, weight+other.Weight
		}
	}
	return share < 1 && weight > 0 && w.inflight > 0 &&
		float64(w.inflight+1) > math.Ceil(share*(float64(w.Weight)*float64(inflight)/float64(weight)))
}

// usable returns the workers of the lowest group with a usable worker, full and saturated ones too.
func (m *machine) usable(r *routing.Request, tried []*member, gates bool) (group []*member, err error) {
	var usable, resting []*member
	prompt, output := tokensOf(r)
	for _, w := range m.members {
		g := w.gate()
		switch {
		case !w.status.Up, w.Weight <= 0, !w.serves(r.Model), slices.Contains(tried, w), r.Only != nil && w.Ref != r.Only,
			gates && g != nil && g.shut && !w.full(prompt+output) && !w.status.Saturated && !m.now.Before(w.pausedUntil()):
		case m.now.Before(w.pausedUntil()):
			resting = append(resting, w)
		default:
			usable = append(usable, w)
		}
	}
	if len(usable) == 0 {
		if len(resting) == 0 {
			return nil, routing.ErrNoWorker
		}
		first := slices.MinFunc(resting, func(a, b *member) int { return a.pausedUntil().Compare(b.pausedUntil()) })
		if first.openUntil.After(first.backoffUntil) {
			return nil, &routing.OpenError{Until: first.openUntil}
		}
		return nil, &routing.BackoffError{Until: first.backoffUntil}
	}
	lowest := slices.MinFunc(usable, func(a, b *member) int { return a.Group - b.Group }).Group
	return slices.DeleteFunc(usable, func(w *member) bool { return w.Group != lowest }), nil
}

// drawTried draws workers that were tried before.
func (m *machine) drawTried(rt *rapid.T) (tried []*routing.Worker, members []*member) {
	for _, h := range m.leases {
		if len(tried) < 2 && rapid.IntRange(0, 7).Draw(rt, "tried") == 0 {
			tried, members = append(tried, h.lease.Worker()), append(members, h.on)
		}
	}
	return tried, members
}

func (m *machine) acquire(rt *rapid.T) {
	tried, members := m.drawTried(rt)
	r := drawRequest(rt, m.now)
	m.drawOnly(rt, &r)
	may, want := m.expected(&r, members, true)
	before := m.snapshot()
	lease, err := m.pool.Acquire(&r, tried...)
	starts := func(w *member) bool { return w.share(m.now) < 1 }
	if want == nil && r.Wait && errors.Is(err, routing.ErrFull) && slices.ContainsFunc(may, starts) {
		return // its share was compared with workers whose gates refused afterwards
	}
	m.checkPlaced(rt, &r, &lease, err, may, want, before)
}

// drawOnly sets Only for some requests; that worker may have been removed.
func (m *machine) drawOnly(rt *rapid.T, r *routing.Request) {
	if rapid.IntRange(0, 7).Draw(rt, "for one only") == 0 {
		r.Only = m.refs[m.drawName(rt)][rapid.IntRange(0, 1).Draw(rt, "ref")]
	}
}

// checkPlaced checks the result of a request against the model and books it there.
func (m *machine) checkPlaced(rt *rapid.T, r *routing.Request, lease *routing.Lease, err error, may []*member,
	want error, before []routing.WorkerView) (booked *bookedLease) {
	if policyWaits(err, want) {
		m.checkWait(rt, err)
		return nil
	}
	if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", want, want) {
		rt.Fatalf("placing failed with %v, not with %v; %d workers may take the request", err, want, len(may))
	}
	if err != nil {
		return nil
	}
	prompt, output := tokensOf(r)
	at := slices.IndexFunc(may, func(w *member) bool { return w.Ref == lease.Ref() })
	if at < 0 || may[at].full(prompt+output) {
		rt.Fatalf("%s was chosen and may not take the request", lease.Worker().ID())
	}
	h := &bookedLease{
		lease:    lease,
		on:       may[at],
		bookedAt: m.now,
		stream:   r.Stream,
		blocks:   r.Blocks,
		output:   output,
		tokens:   prompt + output,
	}
	if prompt > 0 {
		h.prefill = max(1, prompt-m.policy.overlap(h.on.ID))
	}
	h.on.inflight++
	h.on.output += h.output
	h.on.tokens += h.tokens
	m.leases = append(m.leases, h)
	if !r.Stream && h.prefill > 0 {
		rate := before[slices.Index(m.members, h.on)].Rate
		h.due = m.now.Add(time.Duration(min(600, float64(m.pending(h.on))/rate) * 1e9))
		for _, other := range m.leases {
			if other.on == h.on && other.prefill > 0 && other.due.After(h.due) {
				h.due = other.due
			}
		}
	}
	return h
}

// policyWaits reports whether a policy let the request wait although some worker could take it.
func policyWaits(err, want error) bool {
	return want == nil && (errors.Is(err, routing.ErrBestWorkerFull) || errors.Is(err, routing.ErrFull))
}

// checkWait fails unless the policy's last choice was a full worker, or it abstained and all were full.
// It also fails unless the error shows whether any worker was open.
func (m *machine) checkWait(rt *rapid.T, err error) {
	open := slices.ContainsFunc(m.policy.last, func(v routing.View) bool { return !v.Full })
	if i := m.policy.chose; i >= 0 && !m.policy.last[i].Full || i < 0 && open ||
		open != errors.Is(err, routing.ErrBestWorkerFull) {
		rt.Fatalf("a request waits (%v) although the policy chose %d of %+v", err, i, m.policy.last)
	}
}

// round offers some requests in one round.
func (m *machine) round(rt *rapid.T) {
	before := m.snapshot()
	tried, members := m.drawTried(rt)
	round := m.pool.BeginRound(m.now)
	var made []*bookedLease
	for range rapid.IntRange(0, 6).Draw(rt, "offers") {
		r := drawRequest(rt, m.now.Add(-time.Minute)) // the round's time counts
		r.Wait = rapid.IntRange(0, 3).Draw(rt, "waits") > 0
		m.drawOnly(rt, &r)
		may, want := m.expected(&r, members, false)
		open := round.Open()
		lease, err := round.Offer(&r, tried)
		if h := m.checkPlaced(rt, &r, &lease, err, may, want, before); h != nil {
			made = append(made, h)
		}
		if err == nil && !open {
			rt.Fatalf("a round returned a lease although Open was false")
		}
		if rapid.IntRange(0, 3).Draw(rt, "reserves") == 0 {
			m.reserve(rt, round, &r, tried, members)
		}
		if policyWaits(err, want) {
			if m.policy.chose < 0 {
				break // only the pool knows for which of equally loaded workers it waits
			}
			m.recordWait(&r)
		}
	}
	m.checkOpen(rt, round)
	round.End()
	for _, w := range m.members {
		w.backlog, w.reserved = backlog{}, false
	}
	for _, h := range made {
		m.admit(rt, h)
	}
}

// reserve reserves a worker for the request: the one with the fewest tokens among the workers of its group
// that have too many, unless another one has room.
func (m *machine) reserve(rt *rapid.T, round *routing.DispatchRound, r *routing.Request, tried []*routing.Worker,
	members []*member) {
	prompt, output := tokensOf(r)
	group, _ := m.usable(r, members, false)
	var free bool
	var least *member
	for _, w := range group {
		free = free || !w.status.Saturated && !w.full(prompt+output)
		if !w.status.Saturated && !w.reserved && w.crowded(prompt+output) && (least == nil || w.tokens < least.tokens) {
			least = w
		}
	}
	want := least != nil && !free
	if got := round.Reserve(r, tried); got != want {
		rt.Fatalf("whether a worker is reserved: %v, not %v", got, want)
	}
	if want {
		least.reserved = true
	}
}

// recordWait records that the request waits for the policy's last choice.
func (m *machine) recordWait(r *routing.Request) {
	v := m.policy.last[m.policy.chose]
	waits := &m.members[v.Index].backlog
	prompt, output := tokensOf(r)
	waits.requests++
	waits.output += output
	if prompt > 0 {
		waits.prefill += max(1, prompt-v.Overlap)
	}
}

func (m *machine) checkOpen(rt *rapid.T, round *routing.DispatchRound) {
	open := slices.ContainsFunc(m.members, func(w *member) bool {
		return w.status.Up && w.Weight > 0 && !w.status.Saturated && !w.full(0) && !m.now.Before(w.pausedUntil())
	})
	if round.Open() != open {
		rt.Fatalf("Open returned %v", !open)
	}
}

// admit admits a round's lease, or releases it without that.
func (m *machine) admit(rt *rapid.T, h *bookedLease) {
	if rapid.IntRange(0, 4).Draw(rt, "given back") == 0 {
		h.lease.Release(routing.Result{At: m.now, Err: routing.ErrExcluded})
		h.reported = true
		h.unbook()
		return
	}
	err := h.lease.Admit()
	if g := h.on.gate(); (err != nil) != (g != nil && g.shut) {
		rt.Fatalf("a lease was admitted with %v", err)
	}
	if err == nil {
		if h.lease.Admit() != nil {
			rt.Fatalf("a lease that was admitted is so no more")
		}
		return
	}
	h.reported = true
	h.unbook()
}
