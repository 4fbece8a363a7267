package control

import (
	"math/rand/v2"
	"testing"
	"time"

	"tierway/breaker"
	"tierway/workers"
)

// rigMembers returns members of one pool without any health check.
func rigMembers(t *testing.T, n int) []*Member {
	t.Helper()
	fleet := workers.NewFleet(workers.Options{})
	members := make([]*Member, n)
	var specs []workers.Spec
	for i := range members {
		name := string(rune('a' + i))
		specs = append(specs, workers.Spec{Config: workers.Config{Name: name, URL: "http://127.0.0.1:" + string(rune('1'+i))},
			Pool: "p"})
		members[i] = &Member{Name: name, Gate: breaker.New(breaker.Config{}, breaker.Options{Rand: rand.Float64})}
	}
	fleet.Sync(specs)
	for _, m := range members {
		m.Worker = fleet.Get(m.Name)
	}
	return members
}

// liveRig feeds the liveness of two workers, a and b; times are in seconds.
type liveRig struct {
	start time.Time
	a, b  *Member
	tried []any // on a
}

func (r *liveRig) at(s float64) time.Time {
	return r.start.Add(time.Duration(s * float64(time.Second)))
}

// send sends a stream to a.
func (r *liveRig) send(tenant string, prompt uint64, began float64, expected time.Duration) {
	a := new(int)
	r.tried = append(r.tried, a)
	r.a.Live.BeginStream(a, SentStream{tenant, prompt, r.at(began)}, expected)
}

// sendThree sends three streams of one tenant to a, which answers none.
func (r *liveRig) sendThree() {
	for i := range 3 {
		r.send("t", uint64(i), 0, 0)
	}
}

// endAll ends all streams of a.
func (r *liveRig) endAll(at float64, cut bool) {
	for _, a := range r.tried {
		r.a.Live.EndStream(a, r.at(at), cut)
	}
}

// answer makes b answer streams that began at the given times.
func (r *liveRig) answer(tenant string, prompt uint64, began ...float64) {
	for _, s := range began {
		r.b.Live.AnswerStream(SentStream{tenant, prompt, r.at(s)})
	}
}

// TestSilentWorkerIsHungIfPeersAnswerLaterStreams: several of its streams must be overdue without a
// byte.
func TestSilentWorkerIsHungIfPeersAnswerLaterStreams(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*liveRig)
		at   float64
		hung bool
	}{
		"overdue, and a peer answers":        {func(r *liveRig) { r.sendThree(); r.answer("t", 9, 1, 2, 3) }, 3.1, true},
		"not overdue yet":                    {func(r *liveRig) { r.sendThree(); r.answer("t", 9, 1, 2, 3) }, 2.9, false},
		"the peers are silent too":           {func(r *liveRig) { r.sendThree() }, 60, false},
		"the peers answered earlier streams": {func(r *liveRig) { r.sendThree(); r.answer("t", 9, -1, -2, -3) }, 60, false},
		"too few of the peers' answers":      {func(r *liveRig) { r.sendThree(); r.answer("t", 9, 1, 2) }, 60, false},
		"one slow stream": {func(r *liveRig) { r.send("t", 1, 0, 0); r.answer("t", 9, 1, 2, 3) }, 60,
			false},
		"older than the window": {func(r *liveRig) { r.sendThree(); r.answer("t", 9, 1, 2, 3) }, 301, false},
		"a long prediction": {func(r *liveRig) {
			for i := range 3 {
				r.send("t", uint64(i), 0, 10*time.Second)
			}
			r.answer("t", 9, 1, 2, 3)
		}, 39, false},
		"a byte of any answer": {func(r *liveRig) {
			r.sendThree()
			r.a.Live.Received(r.at(1))
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},

		"clients that disconnect after the deadline": {func(r *liveRig) {
			r.sendThree()
			r.endAll(6, true)
			r.answer("t", 9, 1, 2, 3)
		}, 7, true},
		"clients that disconnect before the deadline": {func(r *liveRig) {
			r.sendThree()
			r.endAll(2, true)
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},
		"a late answer with an error": {func(r *liveRig) {
			r.sendThree()
			r.endAll(6, false)
			r.answer("t", 9, 1, 2, 3)
		}, 7, false},
		"a byte after clients disconnected": {func(r *liveRig) {
			r.sendThree()
			r.endAll(6, true)
			r.a.Live.Received(r.at(7))
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},

		"one prompt, repeated": {func(r *liveRig) {
			for range 3 {
				r.send("t", 1, 0, 0)
			}
			r.answer("t", 9, 1, 2, 3)
		}, 60, false},
		"one prompt that a peer answers": {func(r *liveRig) {
			for range 3 {
				r.send("t", 1, 0, 0)
			}
			r.answer("t", 1, 1, 2, 3)
		}, 60, true},

		"one tenant beside others":               {func(r *liveRig) { r.sendThree(); r.answer("u", 9, 1, 2, 3) }, 59, false},
		"one tenant beside others, for a minute": {func(r *liveRig) { r.sendThree(); r.answer("u", 9, 1, 2, 3) }, 60, true},
		"one tenant's many, beside others, for a minute": {func(r *liveRig) {
			for i := range 200 {
				r.send("t", uint64(i), .3*float64(i), 0)
				r.a.Live.EndStream(r.tried[i], r.at(.3*float64(i)+5), true)
			}
			r.answer("u", 9, 55, 56, 57)
		}, 65, true},
		"one tenant beside others, hidden by its own answers": {func(r *liveRig) {
			r.sendThree()
			r.answer("u", 9, 1)
			r.answer("t", 9, 1, 2, 3, 4, 5)
		}, 59, false},
		"one tenant after others": {func(r *liveRig) {
			r.answer("u", 9, -1, -2, -3)
			r.sendThree()
			r.answer("t", 9, 1, 2, 3)
		}, 60, true},
		"two tenants beside others": {func(r *liveRig) {
			r.sendThree()
			r.send("v", 7, 0, 0)
			r.answer("u", 9, 1, 2, 3)
		}, 60, true},
		"a second tenant among many of the first": {func(r *liveRig) {
			r.send("v", 7, 0, 0)
			for i := range 20 {
				r.send("t", uint64(i), .1*float64(i), 0)
			}
			r.endAll(6, true)
			r.answer("u", 9, 1, 2, 3)
		}, 60, true},
	} {
		t.Run(name, func(t *testing.T) {
			members := rigMembers(t, 2)
			r := &liveRig{start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), a: members[0], b: members[1]}
			c.do(r)
			if got := r.a.hung(members, r.at(c.at)); got != c.hung {
				t.Errorf("hung: %v, want %v", got, c.hung)
			}
			if r.b.hung(members, r.at(c.at)) {
				t.Error("the peer counts as hung")
			}
		})
	}
}

// TestHungWorkerStaysHungUntilItSends, whatever its peers and its clients do.
func TestHungWorkerStaysHungUntilItSends(t *testing.T) {
	for name, ends := range map[string]func(*liveness, time.Time){
		"a byte":  func(l *liveness, at time.Time) { l.Received(at) },
		"a trial": func(l *liveness, _ time.Time) { l.clearSilent() },
	} {
		t.Run(name, func(t *testing.T) {
			members := rigMembers(t, 2)
			r := &liveRig{start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), a: members[0], b: members[1]}
			r.sendThree()
			r.answer("t", 9, 1, 2, 3)
			if !r.a.hung(members, r.at(4)) {
				t.Fatal("the worker does not count as hung")
			}
			r.endAll(6, true)
			r.answer("u", 9, 7, 8, 9)
			if !r.a.hung(members, r.at(1000)) {
				t.Error("the worker no longer counts as hung although it has sent nothing")
			}
			ends(&r.a.Live, r.at(1001))
			if r.a.hung(members, r.at(1002)) {
				t.Error("the worker still counts as hung")
			}
		})
	}
}

// TestStoppedCountersAreAHangOnlyWithoutAnswers: an engine that sends parts of answers has stale
// counters.
func TestStoppedCountersAreAHangOnlyWithoutAnswers(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		read, sent time.Duration // after they stopped; 0: nothing is sent
		stalled    bool
	}{
		"nothing is sent":             {10 * time.Second, 0, true},
		"not for long enough":         {9 * time.Second, 0, false},
		"sent before":                 {10 * time.Second, -time.Minute, true},
		"the bytes of the last step":  {10 * time.Second, 500 * time.Millisecond, true},
		"sent while they stand still": {10 * time.Second, 9 * time.Second, false},
		"sent once while they stand":  {time.Hour, 2 * time.Second, false},
		"sent until the end":          {time.Hour, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			var l liveness
			if c.sent != 0 {
				l.Received(since.Add(c.sent))
			}
			if got := l.stalled(workers.Status{StalledSince: since, LoadAt: since.Add(c.read)}); got != c.stalled {
				t.Errorf("stalled: %v, want %v", got, c.stalled)
			}
		})
	}
	var l liveness
	if l.stalled(workers.Status{LoadAt: since.Add(time.Hour)}) {
		t.Error("moving counters are a hang")
	}
}

// TestLivenessEndsAtZero after all its streams have ended.
func TestLivenessEndsAtZero(t *testing.T) {
	members := rigMembers(t, 2)
	r := &liveRig{start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), a: members[0], b: members[1]}
	for i := range 2 * endedKept {
		r.send("t", uint64(i), 0, 0)
	}
	l := &r.a.Live
	for i, a := range r.tried[:4] {
		l.EndStream(a, r.at(float64(i)*2), true) // two in time, two overdue
	}
	if n, _ := l.overdue(r.at(60)); len(n) != 2*endedKept-2 || l.silent.Load() != 2*endedKept-2 {
		t.Errorf("%d are overdue and %d silent, want %d", len(n), l.silent.Load(), 2*endedKept-2)
	}
	r.endAll(60, true)
	if len(l.waiting) != 0 || len(l.ended) != endedKept || l.silent.Load() != endedKept {
		t.Errorf("left: %d silent, %d ended, %d waiting", l.silent.Load(), len(l.ended), len(l.waiting))
	}
	l.Received(r.at(61))
	if l.silent.Load() != 0 || len(l.ended) != 0 || len(l.waiting) != 0 {
		t.Errorf("left: %d silent, %d ended, %d waiting", l.silent.Load(), len(l.ended), len(l.waiting))
	}
}
