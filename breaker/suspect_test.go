package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/fixedseed"
)

// TestSuspicionOpensUntilAGoodCheck: the check begins after it. The way back is that of any opening.
func TestSuspicionOpensUntilAGoodCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 4, errFive)
		checked := time.Now()
		if !r.bs[0].Suspect() {
			t.Fatal("a closed breaker did not open")
		}
		r.is(Open, Closed)
		if last := r.last(); last.Unreachable || last.Slow || !last.Until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("notified of %+v", last)
		}
		if v := r.bs[0].View(); v.Cause != CauseOtherGateway {
			t.Errorf("the view is %+v", v)
		}
		time.Sleep(time.Second)
		r.healthy(0, checked)
		if r.try(0, nil) {
			t.Error("a request passed before a good check")
		}
		r.healthy(0, time.Now())
		r.is(HalfOpen)
		probe, err := r.allow(0)
		if err != nil || r.try(0, nil) {
			t.Fatal("more or fewer than one probe pass", err)
		}
		probe(nil)
		r.is(Closed)
		want := []string{"a open other_gateway", "a half_open healthy", "a closed probe_succeeded"}
		if got := r.causes(); !slices.Equal(got, want) {
			t.Errorf("notified of %q, want %q", got, want)
		}
	})
}

func TestSuspicionEndsWithOpenFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Config{})
		r.bs[0].Suspect()
		r.pass(60 * time.Second)
		r.is(HalfOpen)
	})
}

// TestSuspicionChangesOnlyAClosedBreaker: time and cause of the opening stay those of this gateway.
func TestSuspicionChangesOnlyAClosedBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Config{})
		r.fails(0, 5, errFive)
		time.Sleep(time.Second)
		before := r.bs[0].View()
		if r.bs[0].Suspect() || r.bs[0].View() != before {
			t.Errorf("an open breaker changed from %+v to %+v", before, r.bs[0].View())
		}
		r.pass(60 * time.Second)
		if r.bs[0].Suspect() {
			t.Error("a half-open breaker opened")
		}
		r.try(0, nil)
		time.Sleep(time.Second)
		if !r.bs[0].Suspect() {
			t.Error("suspicions without effect count for the limit of one per open_for")
		}
	})
}

// TestFailedProbeAfterASuspicionIsOwnEvidence: from then on the cause is that of this gateway.
func TestFailedProbeAfterASuspicionIsOwnEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, Config{})
		r.bs[0].Suspect()
		time.Sleep(time.Second)
		r.healthy(0, time.Now())
		r.try(0, errFive)
		if v := r.bs[0].View(); v.State != Open || v.Cause != CauseProbeFailed {
			t.Errorf("the view is %+v", v)
		}
	})
}

// TestNoSuspicionsKeepAHealthyWorkerAway: whatever other gateways report, a worker with good checks and
// good probes is away for one check and one probe per open_for.
func TestNoSuspicionsKeepAHealthyWorkerAway(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		minutes := rapid.IntRange(1, 5).Draw(rt, "minutes")
		reports := rapid.SliceOfN(rapid.Bool(), 1, 20).Draw(rt, "reports") // one for each second
		synctest.Test(t, func(t *testing.T) {
			openings := 0
			b := New(Config{}, Options{Outcome: outcomes, Rand: fixedseed.Float64(), OnChange: func(c Change) {
				if c.To == Open {
					openings++
				}
			}})
			r := &rig{t: t, bs: []*Breaker{b}}
			away := 0
			for second := range minutes * 60 {
				if reports[second%len(reports)] {
					b.Suspect()
				}
				time.Sleep(time.Second)
				r.healthy(0, time.Now().Add(-time.Millisecond))
				if !r.try(0, nil) {
					away++
				}
			}
			if openings > minutes || away > 0 || b.View().State != Closed {
				t.Errorf("it opened %d times in %d minutes and refused %d requests after good checks; it is %s",
					openings, minutes, away, b.View().State)
			}
		})
	})
}
