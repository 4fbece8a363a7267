package routingtest

import (
	"errors"
	"slices"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// epoch is when every history begins; any fixed time would do.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// maxBooked is the most that one request books on an account.
const maxBooked = 1 << 40

// member is the model of one worker: what the pool should know of it.
type member struct {
	routing.Member
	status          routing.Status
	cool            time.Time
	inflight        int
	pending, output int64
}

// gate is a gate under the model's control, which checks that each verdict is
// given once.
type gate struct {
	t        failer
	shut     bool
	open     int // permits without a verdict
	good     int // verdicts
	bad      int
	excluded int
}

// Allow grants a permit unless the gate is shut.
func (g *gate) Allow() (func(error), error) {
	if g.shut {
		return nil, errShut
	}
	g.open++
	given := false
	return func(err error) {
		if given {
			g.t.Fatalf("a gate got two verdicts on one permit")
		}
		given = true
		g.open--
		switch {
		case err == nil:
			g.good++
		case errors.Is(err, routing.ErrExcluded):
			g.excluded++
		default:
			g.bad++
		}
	}, nil
}

// held is a lease under way with the model's account of it.
type held struct {
	lease          *routing.Lease
	on             *member
	prompt, output int64
	answered       bool
	released       bool
}

// machine drives a pool and its model through the same history.
type machine struct {
	policy  routing.Policy
	pool    *routing.Pool
	now     time.Time
	members []*member
	refs    [4][2]*int // what members of one ID are told apart by
	gates   [4]*gate
	leases  []*held // including those released, which may be released again
}

// history is one arbitrary history of a pool, checked after each step.
func history(rt *rapid.T, newPolicy func() routing.Policy) {
	m := &machine{policy: newWitness(rt, newPolicy), now: epoch()}
	for i := range m.refs {
		m.refs[i] = [2]*int{new(int), new(int)}
		m.gates[i] = &gate{t: rt}
	}
	m.pool = routing.NewPool(m.policy, nil)
	m.configure(rt)
	rt.Repeat(map[string]func(*rapid.T){
		"":          m.check,
		"acquire":   m.acquire,
		"acquire ":  m.acquire, // twice as often, so that bounds are reached
		"answered":  m.answered,
		"release":   m.release,
		"observe":   m.observe,
		"all up":    m.allUp,
		"configure": m.configure,
		"cool":      m.coolOne,
		"gate":      func(rt *rapid.T) { g := m.gates[m.drawName(rt)]; g.shut = !g.shut },
		"time":      func(rt *rapid.T) { m.now = m.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(rt, "s")) * time.Second) },
	})
	for _, h := range m.leases {
		h.lease.Release(routing.Result{})
	}
	for _, v := range m.pool.Snapshot(m.now) {
		if v.Inflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 {
			rt.Fatalf("after the last release the books show %+v", v)
		}
	}
	for i, g := range m.gates {
		if g.open != 0 {
			rt.Fatalf("%d permits of gate %d never got a verdict", g.open, i)
		}
	}
}

func (m *machine) drawName(rt *rapid.T) int { return rapid.IntRange(0, len(m.refs)-1).Draw(rt, "name") }

func (m *machine) drawLease(rt *rapid.T) *held {
	if len(m.leases) == 0 {
		rt.Skip("no lease")
	}
	return rapid.SampledFrom(m.leases).Draw(rt, "lease")
}

func (m *machine) configure(rt *rapid.T) {
	names := rapid.Permutation([]int{0, 1, 2, 3}).Draw(rt, "names")[:rapid.IntRange(0, 4).Draw(rt, "members")]
	next := make([]*member, len(names))
	members := make([]routing.Member, len(names))
	for i, name := range names {
		id := string(rune('a' + name))
		mine := m.refs[name][rapid.IntRange(0, 1).Draw(rt, "ref")]
		next[i] = &member{}
		for _, old := range m.members {
			if old.ID == id && old.Ref == any(mine) {
				next[i] = old
			}
		}
		members[i] = routing.Member{
			ID: id, Ref: mine,
			Weight:      rapid.IntRange(-1, 3).Draw(rt, "weight"),
			Group:       rapid.IntRange(-1, 1).Draw(rt, "group"),
			MaxInflight: rapid.IntRange(0, 3).Draw(rt, "max in flight"),
		}
		if rapid.Bool().Draw(rt, "gated") {
			members[i].Gate = m.gates[name]
		}
		next[i].Member = members[i]
	}
	m.members = next
	m.pool.Configure(m.policy, members)
}

func (m *machine) observe(rt *rapid.T) {
	name := m.drawName(rt)
	id, about := string(rune('a'+name)), m.refs[name][rapid.IntRange(0, 1).Draw(rt, "ref")]
	s := routing.Status{
		Up: rapid.Bool().Draw(rt, "up"), Saturated: rapid.Bool().Draw(rt, "saturated"),
		Waiting: rapid.IntRange(0, 9).Draw(rt, "waiting"), KVUsage: rapid.Float64Range(0, 1).Draw(rt, "kv usage"),
	}
	m.pool.Observe(id, about, s)
	for _, w := range m.members {
		if w.ID == id && w.Ref == any(about) {
			w.status = s
		}
	}
}

func (m *machine) allUp(*rapid.T) {
	for _, w := range m.members {
		w.status = routing.Status{Up: true}
		m.pool.Observe(w.ID, w.Ref, w.status)
	}
}

func (m *machine) coolOne(rt *rapid.T) {
	h := m.drawLease(rt)
	until := m.now.Add(time.Duration(rapid.IntRange(-5, 30).Draw(rt, "s")) * time.Second)
	m.pool.Cool(h.lease.Worker(), until)
	if until.After(h.on.cool) {
		h.on.cool = until
	}
}

// expect says who may get a request, and with which error it fails when nobody
// may, from the rules as they are written and not as the pool computes them.
func (m *machine) expect(tried []*member) (may []*member, err error) {
	var usable, cooling []*member
	for _, w := range m.members {
		g, gated := w.Gate.(*gate)
		switch {
		case !w.status.Up, w.Weight <= 0, slices.Contains(tried, w), gated && g.shut && !w.full() && !w.status.Saturated && !m.now.Before(w.cool):
		case m.now.Before(w.cool):
			cooling = append(cooling, w)
		default:
			usable = append(usable, w)
		}
	}
	if len(usable) == 0 {
		if len(cooling) == 0 {
			return nil, routing.ErrNoWorker
		}
		first := slices.MinFunc(cooling, func(a, b *member) int { return a.cool.Compare(b.cool) })
		return nil, &routing.CooledError{Until: first.cool}
	}
	lowest := slices.MinFunc(usable, func(a, b *member) int { return a.Group - b.Group }).Group
	for _, w := range usable {
		if w.Group == lowest && !w.status.Saturated && !w.full() {
			may = append(may, w)
		}
	}
	if len(may) == 0 {
		return nil, routing.ErrFull
	}
	return may, nil
}

func (w *member) full() bool { return w.MaxInflight > 0 && w.inflight >= w.MaxInflight }

func (m *machine) acquire(rt *rapid.T) {
	var tried []*routing.Worker
	var triedMembers []*member
	for _, h := range m.leases {
		if len(tried) < 2 && rapid.IntRange(0, 7).Draw(rt, "tried") == 0 {
			tried, triedMembers = append(tried, h.lease.Worker()), append(triedMembers, h.on)
		}
	}
	r := drawRequest(rt, m.now)
	may, want := m.expect(triedMembers)
	lease, err := m.pool.Acquire(&r, tried...)
	var cooled, wantCooled *routing.CooledError
	if errors.As(want, &wantCooled) {
		if !errors.As(err, &cooled) || !cooled.Until.Equal(wantCooled.Until) {
			rt.Fatalf("Acquire failed with %v, not with %v", err, want)
		}
	} else if !errors.Is(err, want) {
		rt.Fatalf("Acquire failed with %v, not with %v; %d workers may take the request", err, want, len(may))
	}
	if err != nil {
		return
	}
	at := slices.IndexFunc(may, func(w *member) bool { return w.Ref == lease.Ref() })
	if at < 0 {
		rt.Fatalf("%s was chosen and may not take the request", lease.Worker().ID())
	}
	if !slices.ContainsFunc(lease.Candidates(), func(c routing.Candidate) bool { return c.Worker == may[at].ID }) {
		rt.Fatalf("the chosen worker %s is not among the candidates %v", may[at].ID, lease.Candidates())
	}
	h := &held{
		lease: &lease, on: may[at],
		prompt: min(max(0, r.PromptTokens), maxBooked), output: min(max(0, r.OutputTokens), maxBooked),
	}
	h.on.inflight++
	h.on.pending += h.prompt
	h.on.output += h.output
	m.leases = append(m.leases, h)
}

// drawResult returns one of the ways in which an answer goes.
func drawResult(rt *rapid.T) error {
	return rapid.SampledFrom([]error{nil, errShut, routing.ErrExcluded}).Draw(rt, "result")
}

func (m *machine) answered(rt *rapid.T) {
	h := m.drawLease(rt)
	h.lease.Answered(drawResult(rt))
	if !h.answered {
		h.answered = true
		h.on.pending -= h.prompt
	}
}

func (m *machine) release(rt *rapid.T) {
	h := m.drawLease(rt)
	h.lease.Release(routing.Result{Err: drawResult(rt)})
	if h.released {
		return
	}
	if !h.answered {
		h.on.pending -= h.prompt
	}
	h.answered, h.released = true, true
	h.on.inflight--
	h.on.output -= h.output
}

// check compares the pool's books with the model's.
func (m *machine) check(rt *rapid.T) {
	got := m.pool.Snapshot(m.now)
	if len(got) != len(m.members) {
		rt.Fatalf("the pool has %d members, not %d", len(got), len(m.members))
	}
	for i, w := range m.members {
		want := routing.WorkerView{
			ID: w.ID, Weight: w.Weight, Group: w.Group, Up: w.status.Up, Saturated: w.status.Saturated,
			Inflight: w.inflight, MaxInflight: w.MaxInflight, PendingTokens: w.pending, OutputTokens: w.output,
			Waiting: w.status.Waiting, KVUsage: w.status.KVUsage, Cooling: max(0, w.cool.Sub(m.now)),
		}
		if got[i] != want {
			rt.Fatalf("the books show\n%+v, not\n%+v", got[i], want)
		}
	}
}
