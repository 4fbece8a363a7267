package server

import (
	"testing"
	"time"

	"tierway/workers"
)

// rigMembers makes members of one pool whose workers were never checked.
func rigMembers(t *testing.T, n int) []*member {
	t.Helper()
	fleet := workers.NewFleet(workers.Options{})
	members := make([]*member, n)
	var specs []workers.Spec
	for i := range members {
		name := string(rune('a' + i))
		specs = append(specs, workers.Spec{Config: workers.Config{Name: name, URL: "http://127.0.0.1:" + string(rune('1'+i))}, Pool: "p"})
		members[i] = &member{name: name}
	}
	fleet.Sync(specs)
	for _, m := range members {
		m.worker = fleet.Get(m.name)
	}
	return members
}

// TestHungWorkerIsFoundByItsSilence states who counts as hung: a worker with several
// requests that are overdue without a byte, while its peers answer later ones.
func TestHungWorkerIsFoundByItsSilence(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	// begin gives n requests to a, all at the start.
	begin := func(m *member, n int, expected time.Duration) (all []*attempt) {
		for range n {
			a := &attempt{started: start}
			m.live.begin(a, expected)
			all = append(all, a)
		}
		return all
	}
	for name, c := range map[string]struct {
		do   func(a, b *member)
		at   float64 // seconds after the start
		hung bool
	}{
		"overdue, and a peer answers": {func(a, b *member) {
			begin(a, 3, 0)
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 3.1, true},
		"not overdue yet": {func(a, b *member) {
			begin(a, 3, 0)
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 2.9, false},
		"a long prediction": {func(a, b *member) {
			begin(a, 3, 10*time.Second)
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 39, false},
		"one slow request": {func(a, b *member) {
			begin(a, 1, 0)
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 60, false},
		"the peers are silent too": {func(a, b *member) {
			begin(a, 3, 0)
			begin(b, 3, 0)
		}, 60, false},
		"the peers answered earlier requests": {func(a, b *member) {
			begin(a, 3, 0)
			for i := range 3 {
				b.live.answer(at(-1 - float64(i)))
			}
		}, 60, false},
		"a byte of any answer": {func(a, b *member) {
			begin(a, 3, 0)
			a.live.received()
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 60, false},
		"clients that gave up after the patience": {func(a, b *member) {
			for _, try := range begin(a, 3, 0) {
				a.live.end(try, at(6))
			}
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 7, true},
		"clients that gave up before it": {func(a, b *member) {
			for _, try := range begin(a, 3, 0) {
				a.live.end(try, at(2))
			}
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 60, false},
		"a byte after clients gave up": {func(a, b *member) {
			for _, try := range begin(a, 3, 0) {
				a.live.end(try, at(6))
			}
			begin(a, 1, 0)
			a.live.received()
			for i := range 3 {
				b.live.answer(at(1 + float64(i)))
			}
		}, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			members := rigMembers(t, 2)
			c.do(members[0], members[1])
			if got := members[0].hung(members, at(c.at)); got != c.hung {
				t.Errorf("hung: %v, want %v", got, c.hung)
			}
			if members[1].hung(members, at(c.at)) {
				t.Error("the peer counts as hung")
			}
		})
	}
}

// TestLivenessEndsAtZero ends every request that was begun, in each way.
func TestLivenessEndsAtZero(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var l liveness
	var all []*attempt
	for range 6 {
		a := &attempt{started: start}
		l.begin(a, 0)
		all = append(all, a)
	}
	for i, a := range all[:4] {
		l.end(a, start.Add(time.Duration(i)*2*time.Second)) // two in time, two overdue
	}
	if n, _ := l.overdueAt(start.Add(time.Minute)); n != 4 || l.silent.Load() != 4 {
		t.Errorf("%d are overdue and %d silent, want 4", n, l.silent.Load())
	}
	l.received()
	for _, a := range all {
		l.end(a, start.Add(time.Minute))
	}
	if l.silent.Load() != 0 || l.overdue != 0 || len(l.waiting) != 0 {
		t.Errorf("left: %d silent, %d overdue, %d waiting", l.silent.Load(), l.overdue, len(l.waiting))
	}
}
