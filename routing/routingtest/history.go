package routingtest

import (
	"errors"
	"fmt"
	"math"
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
	status     routing.Status
	cool, open time.Time
	warm       time.Time
	inflight   int
	output     int64
}

// rests is when the worker is neither cooling nor open.
func (w *member) rests() time.Time {
	if w.open.After(w.cool) {
		return w.open
	}
	return w.cool
}

// share is how much of its usual load it should get.
func (w *member) share(now time.Time) float64 {
	if w.warm.IsZero() {
		return 1
	}
	return min(1, max(0.1, 0.1+0.9*float64(now.Sub(w.warm))/float64(10*time.Second)))
}

func (w *member) serves(model uint64) bool {
	return model == 0 || len(w.Models) == 0 || slices.Contains(w.Models, model)
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

// Pace finds every other stream too slow.
func (g *gate) Pace(observed, predicted time.Duration) error {
	if observed < 0 || predicted <= 0 {
		g.t.Fatalf("a stream began after %s and should have after %s", observed, predicted)
	}
	if g.good%2 == 1 {
		return errShut
	}
	return nil
}

// held is a lease under way with the model's account of it.
type held struct {
	lease           *routing.Lease
	on              *member
	blocks          []routing.Block
	prefill, output int64
	due             time.Time // when an answer that comes whole is taken for prefilled; zero of a stream
	unbooked        bool
}

// machine drives a pool and its model through the same history.
type machine struct {
	policy  *witness
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
	m.policy.shown = m.checkOverlaps
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
		"open":      m.openOne,
		"warm":      m.warmOne,
		"unbook":    m.unbook,
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
			Models:      rapid.SampledFrom([][]uint64{nil, nil, {1}, {1, 2}}).Draw(rt, "models"),
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

func (m *machine) openOne(rt *rapid.T) {
	name := m.drawName(rt)
	id, about := string(rune('a'+name)), m.refs[name][rapid.IntRange(0, 1).Draw(rt, "ref")]
	var until time.Time
	if s := rapid.IntRange(-5, 30).Draw(rt, "s"); s != 0 {
		until = m.now.Add(time.Duration(s) * time.Second)
	}
	m.pool.SetOpen(id, about, until)
	if w := m.find(id, about); w != nil {
		w.open = until
	}
}

func (m *machine) warmOne(rt *rapid.T) {
	name := m.drawName(rt)
	id, about := string(rune('a'+name)), m.refs[name][rapid.IntRange(0, 1).Draw(rt, "ref")]
	from := m.now.Add(time.Duration(rapid.IntRange(-12, 3).Draw(rt, "s")) * time.Second)
	m.pool.Warm(id, about, from)
	if w := m.find(id, about); w != nil {
		w.warm = from
	}
}

func (m *machine) find(id string, ref any) *member {
	for _, w := range m.members {
		if w.ID == id && w.Ref == ref {
			return w
		}
	}
	return nil
}

// expect says who may get a request, and with which error it fails when nobody
// may, from the rules as they are written and not as the pool computes them.
func (m *machine) expect(model uint64, tried []*member) (may []*member, err error) {
	var usable, resting []*member
	for _, w := range m.members {
		g, gated := w.Gate.(*gate)
		switch {
		case !w.status.Up, w.Weight <= 0, !w.serves(model), slices.Contains(tried, w),
			gated && g.shut && !w.full() && !w.status.Saturated && !m.now.Before(w.rests()):
		case m.now.Before(w.rests()):
			resting = append(resting, w)
		default:
			usable = append(usable, w)
		}
	}
	if len(usable) == 0 {
		if len(resting) == 0 {
			return nil, routing.ErrNoWorker
		}
		first := slices.MinFunc(resting, func(a, b *member) int { return a.rests().Compare(b.rests()) })
		if first.open.After(first.cool) {
			return nil, &routing.OpenError{Until: first.open}
		}
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
	may, want := m.expect(r.Model, triedMembers)
	before := m.pool.Snapshot(m.now)
	lease, err := m.pool.Acquire(&r, tried...)
	if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", want, want) {
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
	h := &held{lease: &lease, on: may[at], blocks: r.Blocks, output: min(max(0, r.OutputTokens), maxBooked)}
	if prompt := min(max(0, r.PromptTokens), maxBooked); prompt > 0 {
		h.prefill = max(1, prompt-m.policy.overlap(h.on.ID))
	}
	h.on.inflight++
	h.on.output += h.output
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
}

// pending is the prefill that is booked on the worker now.
func (m *machine) pending(w *member) (tokens int64) {
	for _, h := range m.leases {
		if !h.due.IsZero() && !m.now.Before(h.due) {
			h.prefill = 0
		}
		if h.on == w {
			tokens += h.prefill
		}
	}
	return tokens
}

// drawResult returns one of the ways in which an answer goes.
func drawResult(rt *rapid.T) error {
	return rapid.SampledFrom([]error{nil, errShut, routing.ErrExcluded}).Draw(rt, "result")
}

// drawTime returns now, or no time at all.
func (m *machine) drawTime(rt *rapid.T) time.Time {
	if rapid.IntRange(0, 9).Draw(rt, "timeless") == 0 {
		return time.Time{}
	}
	return m.now
}

func (m *machine) answered(rt *rapid.T) {
	h := m.drawLease(rt)
	h.lease.Answered(m.drawTime(rt), drawResult(rt))
	h.prefill = 0
}

func (m *machine) unbook(rt *rapid.T) {
	h := m.drawLease(rt)
	h.lease.Unbook()
	h.unbook()
}

func (m *machine) release(rt *rapid.T) {
	h := m.drawLease(rt)
	h.lease.Release(routing.Result{
		At: m.drawTime(rt), Err: drawResult(rt), Text: rapid.Bool().Draw(rt, "text"),
		PromptTokens: rapid.Int64().Draw(rt, "prompt"), CachedTokens: rapid.Int64().Draw(rt, "cached"),
		OutputTokens: rapid.Int64().Draw(rt, "output"),
	})
	h.unbook()
}

func (h *held) unbook() {
	if !h.unbooked {
		h.unbooked, h.prefill = true, 0
		h.on.inflight--
		h.on.output -= h.output
	}
}

// checkOverlaps compares what a policy is told of a prompt's blocks in flight
// with the prompts in flight: never more than they share, and nothing less than
// four fifths of it.
func (m *machine) checkOverlaps(r *routing.Request, ws []routing.View) {
	prompt := float64(min(max(0, r.PromptTokens), maxBooked))
	for _, v := range ws {
		shared := 0
		for _, h := range m.leases {
			if !h.unbooked && h.on == m.members[v.Index] {
				shared = max(shared, common(h.blocks, r.Blocks))
			}
		}
		most := 0.0
		if shared > 0 {
			most = prompt * float64(shared) / float64(len(r.Blocks))
		}
		if got := float64(v.Overlap); got > most*1.000001 || got < 0.8*most-1 {
			m.policy.t.Fatalf("%v of a prompt's tokens are in flight, and the policy was told %v", most, got)
		}
	}
}

// common is how many blocks two prompts begin with in common.
func common(a, b []routing.Block) int {
	n := 0
	for n < min(len(a), len(b)) && a[n].Hash == b[n].Hash {
		n++
	}
	return n
}

// check compares the pool's books with the model's.
func (m *machine) check(rt *rapid.T) {
	got := m.pool.Snapshot(m.now)
	if len(got) != len(m.members) {
		rt.Fatalf("the pool has %d members, not %d", len(got), len(m.members))
	}
	m.checkEstimates(rt)
	up := false
	for i, w := range m.members {
		up = up || w.status.Up && w.Weight > 0 && !m.now.Before(w.rests())
		want := routing.WorkerView{
			ID: w.ID, Ref: got[i].Ref, Weight: w.Weight, Group: w.Group, Up: w.status.Up, Saturated: w.status.Saturated,
			Inflight: w.inflight, MaxInflight: w.MaxInflight, PendingTokens: m.pending(w), OutputTokens: w.output,
			Waiting: w.status.Waiting, KVUsage: w.status.KVUsage,
			Cooling: max(0, w.cool.Sub(m.now)), Open: max(0, w.open.Sub(m.now)), Share: got[i].Share,
			Rate: got[i].Rate, RateCount: got[i].RateCount, TokenTime: got[i].TokenTime, TokenTimeCount: got[i].TokenTimeCount,
		}
		if got[i] != want || math.Abs(got[i].Share-w.share(m.now)) > 1e-9 {
			rt.Fatalf("the books show\n%+v, not\n%+v", got[i], want)
		}
	}
	if m.pool.Up(m.now) != up {
		rt.Fatalf("the pool says %v when asked whether it is up", !up)
	}
}

// checkEstimates looks whether all that was learned is a number in its bounds.
func (m *machine) checkEstimates(rt *rapid.T) {
	e := m.pool.Estimates()
	all := []routing.Estimate{e.OutputTokens, e.PromptScale}
	for _, w := range e.Workers {
		all = append(all, w.Rate, w.TokenTime)
	}
	for _, one := range all {
		if !(one.Floor > 0 && one.Floor <= one.Value && one.Value <= one.Ceiling && one.Floor <= one.Prior && one.Prior <= one.Ceiling) {
			rt.Fatalf("an estimate is out of its bounds: %+v", one)
		}
	}
	if !(e.Rate > 0) || m.pool.OutputTokens(0) < 1 || m.pool.OutputTokens(1) != 1 || m.pool.PromptTokens(0) != 0 || m.pool.PromptTokens(1<<62) < 1 {
		rt.Fatalf("the pool expects the impossible: %+v", e)
	}
}
