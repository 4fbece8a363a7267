package routing_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"tierway/routing"
)

// poolPair is two pools with the same history. Requests to the first one are previewed and recorded,
// requests to the second one are not: both must stay equal. Each record is decided again by a policy
// that has no other memory.
type poolPair struct {
	newPolicy func() routing.Policy
	judge     routing.Policy // decides all records again
	other     routing.Policy // another policy; it plans if this one does not
	pools     [2]*routing.Pool
	policies  [2]routing.Policy
	asked     [2]int // calls of gates
	now       time.Time
	members   []routing.Member
	limit     routing.Saturation
	health    routing.HealthWeight
	leases    [2][]*routing.Lease // also those released
	waiting   [2][]*routing.Request
}

// counting is a gate that admits every request and counts its calls.
type counting struct{ asked *int }

func (g counting) Allow(time.Duration) (uint64, error) { *g.asked++; return 0, nil }
func (g counting) Report(uint64, error)                {}
func (g counting) ReportCut(time.Time, error)          {}

// recorded runs one arbitrary history of a pair.
func recorded(rt *rapid.T, newPolicy func() routing.Policy) {
	m := &poolPair{
		newPolicy: newPolicy,
		judge:     newPolicy(),
		now:       epoch(),
		limit:     routing.Saturation{Waiting: 8, StaleAfter: 10 * time.Second},
		health:    healthWeight(),
	}
	other := routing.Config{Name: "chwbl"}
	if p, ok := m.judge.(routing.Planner); ok && p.Plans(&routing.Request{}) {
		other.Name = "least_load"
	}
	var err error
	if m.other, err = routing.New(other); err != nil {
		rt.Fatalf("making a policy: %v", err)
	}
	for side := range m.pools {
		m.policies[side] = newPolicy()
		m.pools[side] = routing.NewPool(m.policies[side], nil)
		m.pools[side].SetSaturation(m.limit)
		m.pools[side].SetHealthWeight(m.health)
	}
	m.configure(m.drawMembers(rt))
	m.allUp(rt)
	rt.Repeat(map[string]func(*rapid.T){
		"":         m.check,
		"acquire":  m.acquire,
		"acquire ": m.acquire,
		"round":    m.round,
		"draft":    m.draft,
		"answered": m.answered,
		"release":  m.release,
		"observe":  m.observe,
		"all up":   m.allUp,
		"rest":     m.pause,
		"time": func(rt *rapid.T) {
			m.now = m.now.Add(time.Duration(rapid.IntRange(1, 60_000).Draw(rt, "ms")) * time.Millisecond)
		},
	})
}

// both calls f for each of the pools.
func (m *poolPair) both(f func(p *routing.Pool, side int)) {
	for side, p := range m.pools {
		f(p, side)
	}
}

func (m *poolPair) drawMembers(rt *rapid.T) (members []routing.Member) {
	for _, name := range rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(rt,
		"names")[:rapid.IntRange(1, 6).Draw(rt, "members")] {
		members = append(members, routing.Member{
			ID: string(rune('a' + name)), Ref: name,
			Weight:            rapid.SampledFrom([]int{1, 1, 2, 3, 10, 0}).Draw(rt, "weight"),
			Group:             rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "group"),
			MaxInflight:       rapid.IntRange(0, 4).Draw(rt, "max in flight"),
			MaxTokensInflight: rapid.SampledFrom([]int64{0, 0, 40_000}).Draw(rt, "max tokens in flight"),
			Models:            rapid.SampledFrom([][]uint64{nil, nil, nil, {1}}).Draw(rt, "models"),
			Region:            rapid.Uint64Range(0, 3).Draw(rt, "region"),
		})
	}
	return members
}

func (m *poolPair) configure(members []routing.Member) {
	m.members = members
	m.both(func(p *routing.Pool, side int) {
		own := append([]routing.Member(nil), members...)
		for i := range own {
			own[i].Gate = counting{&m.asked[side]}
		}
		p.Configure(m.policies[side], own)
	})
}

func (m *poolPair) allUp(*rapid.T) {
	m.both(func(p *routing.Pool, _ int) {
		for _, w := range m.members {
			p.Observe(w.ID, w.Ref, routing.Status{Up: true})
		}
	})
}

func (m *poolPair) drawRef(rt *rapid.T) (id string, ref int) {
	ref = rapid.IntRange(0, 5).Draw(rt, "name")
	return string(rune('a' + ref)), ref
}

func (m *poolPair) observe(rt *rapid.T) {
	id, ref := m.drawRef(rt)
	s := routing.Status{
		Up: rapid.IntRange(0, 3).Draw(rt, "up") > 0, Saturated: rapid.IntRange(0, 3).Draw(rt, "saturated") == 0,
		Waiting: rapid.IntRange(0, 9).Draw(rt, "waiting"), KVUsage: rapid.Float64Range(0, 1).Draw(rt, "kv usage"),
	}
	if rapid.Bool().Draw(rt, "said its load") {
		s.LoadAt = m.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(rt, "s")) * time.Second)
	}
	m.both(func(p *routing.Pool, _ int) { p.Observe(id, ref, s) })
}

// pause sets a backoff, ejects a worker, restores it, or marks its server as unreachable.
func (m *poolPair) pause(rt *rapid.T) {
	id, ref := m.drawRef(rt)
	at := m.now.Add(time.Duration(rapid.IntRange(-8, 20).Draw(rt, "s")) * time.Second)
	kind, lease := rapid.IntRange(0, 4).Draw(rt, "kind"), rapid.IntRange(0, 1<<20).Draw(rt, "lease")
	m.both(func(p *routing.Pool, side int) {
		switch n := len(m.leases[side]); {
		case kind == 0:
			p.SetOpen(id, ref, at)
		case kind == 1:
			p.Restore(id, ref, at)
		case kind <= 3: // 3: there is no server
			p.Eject(id, ref, routing.Ejection{At: m.now, Until: at, Unreachable: kind == 3})
		case n > 0:
			p.SetBackoff(m.leases[side][lease%n].Worker(), at)
		}
	})
}

func (m *poolPair) answered(rt *rapid.T) {
	i := rapid.IntRange(0, 1<<20).Draw(rt, "lease")
	m.both(func(_ *routing.Pool, side int) {
		if n := len(m.leases[side]); n > 0 {
			m.leases[side][i%n].Answered(m.now, nil)
		}
	})
}

func (m *poolPair) release(rt *rapid.T) {
	i, output := rapid.IntRange(0, 1<<20).Draw(rt, "lease"), rapid.Int64Range(0, 4000).Draw(rt, "output")
	m.both(func(_ *routing.Pool, side int) {
		if n := len(m.leases[side]); n > 0 {
			m.leases[side][i%n].Release(routing.Result{At: m.now, PromptTokens: 3 * output, OutputTokens: output, Text: true})
		}
	})
}

// check compares the visible state of both pools.
func (m *poolPair) check(rt *rapid.T) {
	one, two := m.pools[0], m.pools[1]
	if a, b := one.Snapshot(m.now), two.Snapshot(m.now); !reflect.DeepEqual(a, b) {
		rt.Fatalf("the previewed and recorded pool shows\n%+v, and the other\n%+v", a, b)
	}
	if a, b := one.Estimates(), two.Estimates(); !reflect.DeepEqual(a, b) || one.StaleSeconds() != two.StaleSeconds() ||
		m.asked[0] != m.asked[1] {
		rt.Fatalf("the previewed and recorded pool has learned %+v, %d stale, %d calls of gates; the other %+v, %d, %d",
			a, one.StaleSeconds(), m.asked[0], b, two.StaleSeconds(), m.asked[1])
	}
}

// redecide decides a record again, as it is and after a round trip through JSON.
func (m *poolPair) redecide(rt *rapid.T, r *routing.Request, record *routing.Choice, worker string,
	reason routing.Reason) {
	text, err := json.Marshal(record)
	if err != nil {
		rt.Fatalf("a record is no JSON: %v", err)
	}
	var read routing.Choice
	if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(&read, record) {
		rt.Fatalf("a record came back from JSON (%v) as\n%+v, not\n%+v", err, &read, record)
	}
	if waited := time.Duration(math.Round(record.WaitedMs * 1e6)); waited != r.Waited {
		rt.Fatalf("a record of a wait of %s has %s", r.Waited, waited)
	}
	chain := routing.AppendChain(nil, r.Blocks)
	for _, policy := range []routing.Policy{m.newPolicy(), m.judge} {
		i, why, decided, err := routing.Redecide(policy, &read, routing.Hash(r.Model), routing.Hash(r.Prefix), chain, r.Now)
		if err != nil {
			rt.Fatalf("deciding again: %v", err)
		}
		if got := read.Candidates[i].Worker; got != worker || why != reason || !reflect.DeepEqual(decided, record) {
			rt.Fatalf("%s was chosen (%s), and again %s (%s), of\n%+v, and again of\n%+v", worker, reason, got, why, record,
				decided)
		}
	}
	if c := record; c.CandidateOf(worker) == nil || c.Seen != len(c.Candidates) || c.RunnerUp == worker ||
		(c.RunnerUp == "") != (c.Seen == 1) || c.Seen > 1 && c.CandidateOf(c.RunnerUp) == nil {
		rt.Fatalf("%s was chosen, and %q is the runner-up, of %d: %s", worker, c.RunnerUp, c.Seen, text)
	}
}

// sameError reports whether two errors have the same type and text.
func sameError(a, b error) bool { return fmt.Sprintf("%T %v", a, a) == fmt.Sprintf("%T %v", b, b) }
