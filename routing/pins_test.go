package routing

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// session is a request of a session.
func session(now time.Time, id uint64) Request {
	return Request{Now: now, Rand: Mix(id + uint64(now.UnixNano())), Key: Mix(id + 1), KeyOf: KeySession, PromptTokens: 10,
		Stream: true}
}

// TestSessionStaysWhereItWentWhileItsHomeWasDown, in each gateway, after its home has come back. Sessions of other
// homes stay too.
func TestSessionStaysWhereItWentWhileItsHomeWasDown(t *testing.T) {
	for _, name := range []string{"consistent_hash", "rendezvous_hash"} {
		g := newGatewayPools(t, 3, 4, Config{Name: name})
		home := map[uint64]string{}
		for id := range uint64(100) {
			home[id] = g.serve(t, int(id%3), session(start, id))
		}
		down := func(up bool) {
			for _, p := range g.pools {
				p.Observe("w2", nil, Status{Up: up})
			}
		}
		down(false)
		now := start.Add(time.Minute)
		moved := map[uint64]string{}
		for id := range uint64(100) {
			moved[id] = g.serve(t, int(id+1)%3, session(now, id))
			if home[id] != "w2" && moved[id] != home[id] || moved[id] == "w2" {
				t.Fatalf("%s: session %d goes from %s to %s while w2 is down", name, id, home[id], moved[id])
			}
		}
		g.exchangeAll(t, now)
		down(true)
		now = now.Add(time.Minute)
		for id := range uint64(100) {
			for i := range g.pools {
				r := session(now, id)
				r.Record = &Choice{}
				if got := g.serve(t, i, r); got != moved[id] || r.Record.Pinned != got {
					t.Fatalf("%s: session %d is on %s, and gateway %d sends it to %s (pinned %q)", name, id, moved[id], i, got,
						r.Record.Pinned)
				}
			}
		}
		now = now.Add(pinIdle + time.Second)
		for id := range uint64(100) {
			if got := g.serve(t, 0, session(now, id)); got != home[id] {
				t.Fatalf("%s: session %d goes to %s after %v without a request, and its home is %s", name, id, got, pinIdle,
					home[id])
			}
		}
	}
}

// TestSessionReturnsAfterADrain, also if an outage of another worker has pinned it before: at the worker that is
// drained, or away from its home.
func TestSessionReturnsAfterADrain(t *testing.T) {
	for _, name := range []string{"consistent_hash", "rendezvous_hash"} {
		g := newGatewayPools(t, 2, 4, Config{Name: name})
		configure := func(weight int) {
			for _, p := range g.pools {
				var members []Member
				for i := range 4 {
					members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
				}
				members[1].Weight = weight
				p.Configure(p.policy, members)
			}
		}
		now := start
		serve := func() map[uint64]string {
			at := map[uint64]string{}
			for id := range uint64(100) {
				at[id] = g.serve(t, int(id%2), session(now, id))
			}
			now = now.Add(time.Minute)
			g.exchangeAll(t, now)
			return at
		}
		serve()
		for _, up := range []bool{false, true} { // the outage
			for _, p := range g.pools {
				p.Observe("w2", nil, Status{Up: up})
			}
			serve()
		}
		before := serve()
		configure(0)
		for range 40 { // longer than pinIdle
			for id, at := range serve() {
				if at == "w1" || before[id] != "w1" && at != before[id] {
					t.Fatalf("%s: session %d of %s is on %s while w1 is drained", name, id, before[id], at)
				}
			}
		}
		configure(1)
		for id, at := range serve() {
			if at != before[id] {
				t.Errorf("%s: session %d of %s is on %s after the drain", name, id, before[id], at)
			}
		}
	}
}

// TestGatewaysAgreeOnPins in any order of requests, failures and exchanges, once each has exchanged twice.
func TestGatewaysAgreeOnPins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGatewayPools(t, 3, 3, Config{Name: "rendezvous_hash"})
		now := start
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Second)
			switch step := rapid.IntRange(0, 9).Draw(t, "step"); step {
			case 0:
				down := rapid.IntRange(-1, 2).Draw(t, "down")
				for _, p := range g.pools {
					for i := range 3 {
						p.Observe(fmt.Sprint("w", i), nil, Status{Up: i != down})
					}
				}
			case 1, 2:
				g.exchange(t, rapid.IntRange(0, 2).Draw(t, "sender"), now)
			default:
				id := rapid.Uint64Range(0, 3).Draw(t, "session")
				r := session(now, id)
				l, err := g.pools[step%3].Acquire(&r)
				if err != nil {
					t.Fatal(err)
				}
				l.Release(Result{At: now, Err: ErrExcluded})
			}
		}
		g.exchangeAll(t, now)
		for id := range uint64(4) {
			for i, p := range g.pools[1:] {
				a, b := g.pools[0].pins.findPin(Mix(id+1), now), p.pins.findPin(Mix(id+1), now)
				if (a == nil) != (b == nil) || a != nil && a.worker != b.worker {
					t.Fatalf("session %d: gateway 0 has %+v, gateway %d %+v", id, a, i+1, b)
				}
			}
		}
	})
}

// TestPinsAreBounded: the least recently used ones go first.
func TestPinsAreBounded(t *testing.T) {
	var s pins
	for key := range uint64(maxPins + 10) {
		s.touchPin(key+1, start).worker = key
		s.touchPin(1, start).worker = 77 // always in use
	}
	if len(s.byKey) != maxPins || len(s.slots) != maxPins+1 {
		t.Errorf("%d pins in %d slots", len(s.byKey), len(s.slots))
	}
	if p := s.findPin(1, start); p == nil || p.worker != 77 {
		t.Errorf("the pin in use is %+v", p)
	}
	if s.findPin(2, start) != nil || s.findPin(maxPins+10, start) == nil {
		t.Error("the oldest pin is kept, or the newest one is not")
	}
}
