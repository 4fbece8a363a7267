package breaker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/fixedseed"
)

// TestAnySequenceKeepsTheInvariants: after arbitrary calls no probe is left in progress, every
// transition was notified once, and successes close the breaker.
func TestAnySequenceKeepsTheInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// rapid ends a case with a panic, which must stay within the bubble.
		var ended any
		synctest.Test(t, func(*testing.T) {
			defer func() { ended = recover() }()
			sequence(rt)
		})
		if ended != nil {
			panic(ended)
		}
	})
}

func sequence(t *rapid.T) {
	c := Config{
		ConsecutiveFailures: rapid.IntRange(1, 4).Draw(t, "row"),
		Probes:              rapid.IntRange(1, 3).Draw(t, "probes"),
		OpenFor:             20 * time.Second, ProbeTimeout: 5 * time.Second,
		MinRequests: 3, Window: 30 * time.Second,
	}
	var state atomic.Int64 // State, as notified
	b := New(c, Options{
		Outcome: outcomes,
		Rand:    fixedseed.Float64(),
		OnChange: func(c Change) {
			if was := State(state.Swap(int64(c.To))); was == c.To {
				t.Errorf("it was %s before it became so", was)
			}
			if (c.To == Open) == c.Until.IsZero() {
				t.Errorf("it is %s until %s", c.To, c.Until)
			}
		},
	})
	r := &rig{bs: []*Breaker{b}}
	var suspected time.Time // the last suspicion with an effect
	var pending []func(error)
	ends := rapid.SampledFrom([]error{nil, nil, errFive, errFive, errFive, errRefused, errClient, errSlow})
	t.Repeat(map[string]func(*rapid.T){
		"allow": func(*rapid.T) {
			if report, err := r.allow(0); err == nil {
				pending = append(pending, report)
			}
		},
		"report": func(t *rapid.T) {
			if len(pending) == 0 {
				t.Skip("nothing is in progress")
			}
			i := rapid.IntRange(0, len(pending)-1).Draw(t, "request")
			pending[i](ends.Draw(t, "end"))
			pending = append(pending[:i], pending[i+1:]...)
		},
		"fail": func(t *rapid.T) { r.try(0, ends.Draw(t, "end")) },
		"cut": func(t *rapid.T) {
			b.ReportCut(time.Now().Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "ago"))*time.Second), ends.Draw(t, "end"))
		},
		"suspect": func(t *rapid.T) {
			before := b.View()
			opened := b.Suspect()
			v := b.View()
			if !opened {
				if v != before {
					t.Fatalf("a suspicion without effect changed %+v to %+v", before, v)
				}
				return
			}
			if before.State != Closed || v.State != Open || v.Cause != CauseOtherGateway {
				t.Fatalf("a suspicion changed %+v to %+v", before, v)
			}
			if !suspected.IsZero() && time.Since(suspected) < c.OpenFor {
				t.Fatalf("a second suspicion after %v", time.Since(suspected))
			}
			suspected = time.Now()
		},
		"hung": func(t *rapid.T) {
			found := time.Time{}
			if rapid.Bool().Draw(t, "hung") {
				found = time.Now()
			}
			b.SetHung(found)
		},
		"configure": func(t *rapid.T) {
			c.Probes = rapid.IntRange(c.Probes, 3).Draw(t, "probes")
			b.Configure(c)
		},
		"pass": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 25).Draw(t, "seconds")) * time.Second)
			synctest.Wait()
		},
		"healthy": func(t *rapid.T) {
			b.Healthy(time.Now().Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "ago")) * time.Second))
		},
		"poll": func(*rapid.T) { b.Poll() },
		"": func(t *rapid.T) {
			v := b.View()
			if n := probesOf(b); n > c.Probes || n > 0 && v.State != HalfOpen {
				t.Fatalf("%d probes in progress while %s", n, v.State)
			}
			if notified := State(state.Load()); v.State != notified {
				t.Fatalf("it is %s and notified %s", v.State, notified)
			}
		},
	})
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if n := probesOf(b); n != 0 {
		t.Fatalf("%d probes are in progress after their timeout", n)
	}
	time.Sleep(25 * time.Second)
	b.Poll()
	r.fails(0, c.Probes, nil)
	if b.View().State != Closed {
		t.Fatalf("successes leave it %s", b.View().State)
	}
}
