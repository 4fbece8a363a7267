package routing_test

import (
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// epoch is the start of every history; any fixed time would do.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// healthFactor is the factor of healthWeight.
const healthFactor = 0.5

// healthWeight is the rule of every history for workers that fail requests.
func healthWeight() routing.HealthWeight {
	return routing.HealthWeight{Healthy: 0.9, Degraded: 0.7, Factor: healthFactor}
}

// machine applies the same history to a pool and to its model.
type machine struct {
	policy  *witness
	pool    *routing.Pool
	now     time.Time
	members []*member
	refs    [4][2]*int // what members of one ID are told apart by
	gates   [4]*gate
	leases  []*bookedLease // released ones too, which may be released again
}

// history runs one arbitrary history of a pool, checked after each step.
func history(rt *rapid.T, newPolicy func() routing.Policy) {
	m := &machine{policy: newWitness(rt, newPolicy), now: epoch()}
	m.policy.shown = func(r *routing.Request, ws []routing.View) { m.checkOverlaps(r, ws); m.checkLoads(r, ws) }
	for i := range m.refs {
		m.refs[i] = [2]*int{new(int), new(int)}
		m.gates[i] = &gate{t: rt, open: map[uint64]bool{}}
	}
	m.pool = routing.NewPool(m.policy, nil)
	m.pool.SetHealthWeight(healthWeight())
	m.configure(rt)
	rt.Repeat(map[string]func(*rapid.T){
		"":          m.checkBookings,
		"acquire":   m.acquire,
		"acquire ":  m.acquire, // twice as often, so that bounds are reached
		"round":     m.round,
		"answered":  m.answered,
		"release":   m.release,
		"observe":   m.observe,
		"all up":    m.allUp,
		"restart":   m.restart,
		"configure": m.configure,
		"backoff":   m.setBackoff,
		"open":      m.setOpen,
		"restore":   m.restore,
		"unbook":    m.unbook,
		"gate":      func(rt *rapid.T) { g := m.gates[m.drawName(rt)]; g.shut = !g.shut },
		"time": func(rt *rapid.T) {
			m.now = m.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(rt, "s")) * time.Second)
		},
		"long time": func(rt *rapid.T) {
			m.now = m.now.Add(time.Duration(rapid.IntRange(60, 400).Draw(rt, "s")) * time.Second)
		},
	})
	for _, h := range m.leases {
		h.lease.Release(routing.Result{})
	}
	for _, v := range m.pool.Snapshot(m.now) {
		if v.Inflight != 0 || v.PendingTokens != 0 || v.OutputTokens != 0 || v.TokensInflight != 0 {
			rt.Fatalf("after the last release the books show %+v", v)
		}
	}
	for i, g := range m.gates {
		if len(g.open) != 0 {
			rt.Fatalf("%d tickets of gate %d never got an outcome", len(g.open), i)
		}
	}
}

func (m *machine) drawName(rt *rapid.T) int { return rapid.IntRange(0, len(m.refs)-1).Draw(rt, "name") }

func (m *machine) drawLease(rt *rapid.T) *bookedLease {
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
			Weight:            rapid.IntRange(-1, 3).Draw(rt, "weight"),
			Group:             rapid.IntRange(-1, 1).Draw(rt, "group"),
			MaxInflight:       rapid.IntRange(0, 3).Draw(rt, "max in flight"),
			MaxTokensInflight: rapid.SampledFrom([]int64{0, 0, 20_000}).Draw(rt, "max tokens in flight"),
			Models:            rapid.SampledFrom([][]uint64{nil, nil, {1}, {1, 2}}).Draw(rt, "models"),
			Region:            rapid.Uint64Range(0, 3).Draw(rt, "region"),
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
			w.observe(s)
		}
	}
}

func (m *machine) allUp(*rapid.T) {
	for _, w := range m.members {
		w.observe(routing.Status{Up: true})
		m.pool.Observe(w.ID, w.Ref, w.status)
	}
}

// restart observes the worker of a lease down and then up, as after a restart.
func (m *machine) restart(rt *rapid.T) {
	w := m.drawLease(rt).on
	for _, s := range []routing.Status{{}, {Up: true}} {
		m.pool.Observe(w.ID, w.Ref, s)
		if now := m.find(w.ID, w.Ref); now != nil { // w, or the worker that replaced it
			now.observe(s)
		}
	}
}

func (m *machine) setBackoff(rt *rapid.T) {
	h := m.drawLease(rt)
	until := m.now.Add(time.Duration(rapid.IntRange(-5, 30).Draw(rt, "s")) * time.Second)
	m.pool.SetBackoff(h.lease.Worker(), until)
	if until.After(h.on.backoffUntil) {
		h.on.backoffUntil = until
	}
}

func (m *machine) setOpen(rt *rapid.T) {
	name := m.drawName(rt)
	id, about := string(rune('a'+name)), m.refs[name][rapid.IntRange(0, 1).Draw(rt, "ref")]
	var until time.Time
	if s := rapid.IntRange(-5, 30).Draw(rt, "s"); s != 0 {
		until = m.now.Add(time.Duration(s) * time.Second)
	}
	m.pool.SetOpen(id, about, until)
	if w := m.find(id, about); w != nil {
		w.openUntil = until
	}
}

func (m *machine) restore(rt *rapid.T) {
	name := m.drawName(rt)
	id, about := string(rune('a'+name)), m.refs[name][rapid.IntRange(0, 1).Draw(rt, "ref")]
	from := m.now.Add(time.Duration(rapid.IntRange(-12, 3).Draw(rt, "s")) * time.Second)
	m.pool.Restore(id, about, from)
	if w := m.find(id, about); w != nil {
		w.slowStartFrom = from
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

// pending returns the prefill that is booked on the worker now.
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

// drawResult returns one of the possible results of an answer.
func drawResult(rt *rapid.T) error {
	return rapid.SampledFrom([]error{nil, errShut, routing.ErrExcluded}).Draw(rt, "result")
}

// drawTime returns now, or sometimes the zero time.
func (m *machine) drawTime(rt *rapid.T) time.Time {
	if rapid.IntRange(0, 9).Draw(rt, "timeless") == 0 {
		return time.Time{}
	}
	return m.now
}

func (m *machine) answered(rt *rapid.T) {
	h := m.drawLease(rt)
	at, err := m.drawTime(rt), drawResult(rt)
	if h.lease.Answered(at, err); !h.reported && err == nil && h.stream {
		h.remember()
	}
	if h.prefill = 0; !h.reported {
		h.reported, h.outcome = true, err
	}
}

func (m *machine) unbook(rt *rapid.T) {
	h := m.drawLease(rt)
	h.lease.Unbook()
	h.unbook()
}

func (m *machine) release(rt *rapid.T) {
	h := m.drawLease(rt)
	at, err := m.drawTime(rt), drawResult(rt)
	h.lease.Release(routing.Result{
		At: at, Err: err, Text: rapid.Bool().Draw(rt, "text"),
		PromptTokens: rapid.Int64().Draw(rt, "prompt"), CachedTokens: rapid.Int64().Draw(rt, "cached"),
		OutputTokens: rapid.Int64().Draw(rt, "output"),
	})
	if err == nil && (!h.reported || !h.stream && h.outcome == nil) {
		h.remember()
	}
	h.reported = true
	h.unbook()
}
