package breaker

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/fixedseed"
)

// TestClientErrorsDoNotOpenTheBreaker covers excluded outcomes: 400, 429 and clients that
// disconnect.
func TestClientErrorsDoNotOpenTheBreaker(t *testing.T) {
	r := newRig(t, 2, Config{})
	r.fails(0, 4, errFive)
	r.fails(0, 1000, fmt.Errorf("the worker returned 429: %w", errClient))
	r.is(Closed, Closed)
	if v := r.bs[0].View(); v.Requests != 4 || v.Failures != 4 || v.ConsecutiveFailures != 4 {
		t.Errorf("excluded outcomes were counted: %+v", v)
	}
}

// TestExcludedOutcomesKeepTheRunOfFailures: if they counted as successes, a run of failures
// with one excluded outcome in between would never open the breaker.
func TestExcludedOutcomesKeepTheRunOfFailures(t *testing.T) {
	r := newRig(t, 2, Config{ConsecutiveFailures: 5})
	for i := range 3 {
		r.fails(0, 2, errFive)
		r.try(0, errClient)
		if want := 2 * (i + 1); want < 5 && r.bs[0].View().ConsecutiveFailures != want {
			t.Fatalf("%d in a row, not %d", r.bs[0].View().ConsecutiveFailures, want)
		}
	}
	r.is(Open, Closed)
}

func TestFailureRatioOpensWithoutConsecutiveFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cycle  []error
		opens  int // index of the outcome that opens; 0 is never
		failed int
	}{
		{"two of three fail", []error{errFive, errFive, nil}, 20, 14},
		{"half fail", []error{errFive, nil}, 21, 11},
		{"a third fails", []error{errFive, nil, nil}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, 2, Config{})
			at := 0
			for i := range 300 {
				r.try(0, tt.cycle[i%len(tt.cycle)])
				if at == 0 && r.bs[0].View().State == Open {
					at = i + 1
				}
			}
			if at != tt.opens {
				t.Fatalf("opened at outcome %d, not %d", at, tt.opens)
			}
			if at > 0 && r.last().Cause != CauseFailureRatio {
				t.Errorf("cause %q", r.last().Cause)
			}
		})
	}
}

func TestFailuresOutsideTheWindowDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{Window: 30 * time.Second, ConsecutiveFailures: 1000})
		r.fails(0, 19, errFive)
		time.Sleep(34 * time.Second)
		if v := r.bs[0].View(); v.Requests != 0 || v.ConsecutiveFailures != 19 {
			t.Fatalf("after the window: %+v", v)
		}
		r.fails(0, 19, errFive)
		r.is(Closed)
		r.try(0, errFive)
		r.is(Open)
	})
}

// TestTimeoutsLongerThanTheWindowOpen: gobreaker alone ignores the result of a request that
// began before the window.
func TestTimeoutsLongerThanTheWindowOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		for range 5 {
			r.is(Closed)
			done, err := r.allow(0)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			done(errFive)
		}
		r.is(Open)
	})
}

func TestOnlyTheFirstReportOfAProbeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{Probes: 3})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		report, _ := r.allow(0)
		for range 3 {
			report(nil)
		}
		r.is(HalfOpen)
	})
}

// TestOnChangeMayCallTheBreaker: under gobreaker's lock each of these calls would deadlock.
func TestOnChangeMayCallTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r *rig
		var notified []string
		inside := 0
		r = newRig(t, 2, Config{}, func(o *Options) {
			o.OnChange = func(c Change) {
				if inside++; inside > 1 {
					t.Error("two at a time")
				}
				notified = append(notified, c.To.String())
				b := r.bs[0]
				b.View()
				b.Healthy(time.Now())
				r.Poll()
				r.try(0, nil) // closes what became half-open, while that is notified
				b.Configure(Config{})
				inside--
			}
		})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.is(Closed)
		if want := []string{"open", "half_open", "closed"}; !slices.Equal(notified, want) {
			t.Errorf("notified of %v, not %v", notified, want)
		}
	})
}

// TestOpenBreakerRefusesOnceOnChangeReturned: until then the pool has not decided whether
// the ejection cap keeps the worker in rotation.
func TestOpenBreakerRefusesOnceOnChangeReturned(t *testing.T) {
	var b *Breaker
	b = New(Config{}, Options{Outcome: outcomes, Rand: fixedseed.Float64(), OnChange: func(c Change) {
		if ticket, err := b.Allow(0); err != nil {
			t.Errorf("refused while %s is being notified: %v", c.To, err)
		} else {
			b.Report(ticket, nil)
		}
	}})
	r := &rig{t: t, bs: []*Breaker{b}}
	r.fails(0, 5, errFive)
	r.is(Open)
	if r.try(0, nil) {
		t.Error("an open breaker admits a request")
	}
}

// TestPanicInOnChangeLosesNoTransition: the next transition is delivered after a panic.
func TestPanicInOnChangeLosesNoTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notified := 0
		r := newRig(t, 2, Config{}, func(o *Options) {
			o.OnChange = func(Change) {
				if notified++; notified == 1 {
					panic("at the first")
				}
			}
		})
		func() {
			defer func() { recover() }()
			r.fails(0, 5, errFive)
		}()
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		if notified != 2 {
			t.Errorf("notified %d times", notified)
		}
	})
}

// TestIdleBreakerChangesState without traffic; a health check that began after the opening
// makes it half-open early.
func TestIdleBreakerChangesState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errFive)
		r.pass(59 * time.Second)
		r.is(Open)
		r.pass(time.Second)
		r.is(HalfOpen)
		r.pass(4 * time.Minute)
		r.is(HalfOpen)

		r.try(0, errFive)
		opened := time.Now()
		time.Sleep(time.Second)
		r.healthy(0, opened.Add(-time.Second))
		r.healthy(0, opened)
		r.is(Open)
		r.healthy(0, opened.Add(healthWait+time.Millisecond)) // a probe has failed before
		r.is(HalfOpen)
		r.try(0, nil)
		r.is(Closed)
		want := []string{"a open consecutive_failures", "a half_open timeout", "a open probe_failed",
			"a half_open healthy", "a closed probe_succeeded"}
		if got := r.causes(); !slices.Equal(got, want) {
			t.Errorf("notified of %q\nnot  %q", got, want)
		}
	})
}

func TestOpenTimesAreSpread(t *testing.T) {
	openFor := map[float64]time.Duration{0: 54 * time.Second, 0.5: 60 * time.Second, 0.999999: 66 * time.Second}
	for unit, want := range openFor {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{}, func(o *Options) { o.Rand = func() float64 { return unit } })
			r.fails(0, 5, errFive)
			if got := time.Until(r.bs[0].View().Until).Round(time.Millisecond); got != want {
				t.Errorf("at %g it opens for %s, not %s", unit, got, want)
			}
		})
	}
}

// TestOutcomesFromBeforeATransitionDoNotCount: a long stream shows nothing about the worker
// after an opening.
func TestOutcomesFromBeforeATransitionDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		var old []func(error)
		for range 20 {
			done, _ := r.allow(0)
			old = append(old, done)
		}
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		old[0](errFive)
		old[1](nil)
		r.is(HalfOpen)
		r.try(0, nil)
		for _, done := range old {
			done(errFive)
		}
		r.is(Closed)
		if v := r.bs[0].View(); v.Requests != 0 || v.ConsecutiveFailures != 0 {
			t.Errorf("they were counted: %+v", v)
		}
	})
}

// cut sends a stream that begins well and then breaks off.
func (r *rig) cut(i int) {
	r.t.Helper()
	began := time.Now()
	if !r.try(i, nil) {
		r.t.Fatal("the stream was refused")
	}
	r.bs[i].ReportCut(began, errFive)
}

// TestCutStreamsCountAsFailures: five in a row, or half of all within the window, open the
// breaker although each stream began with a success.
func TestCutStreamsCountAsFailures(t *testing.T) {
	t.Run("in a row", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{})
			for range 4 {
				r.cut(0)
			}
			r.is(Closed)
			r.cut(0)
			r.is(Open)
		})
	})
	t.Run("a whole one between them", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{FailureRatio: 0.9})
			for range 20 {
				for range 4 {
					r.cut(0)
				}
				r.try(0, nil)
				r.try(0, nil)
			}
			r.is(Closed)
		})
	})
	t.Run("side by side", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{})
			began := time.Now()
			for range 5 {
				r.try(0, nil)
			}
			for range 5 {
				r.bs[0].ReportCut(began, errFive)
			}
			r.is(Open)
		})
	})
	t.Run("by their share", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{ConsecutiveFailures: 1000, FailureRatio: 0.5, MinRequests: 20})
			for r.bs[0].View().State == Closed && r.bs[0].View().Requests < 200 {
				r.cut(0)
				r.try(0, nil)
			}
			r.is(Open)
		})
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{ConsecutiveFailures: 1000, FailureRatio: 0.5, MinRequests: 20})
			for range 100 {
				r.try(0, nil)
				r.cut(0)
				r.try(0, nil)
			}
			r.is(Closed)
		})
	})
}

func TestCutCountsOnlyInTheStateOfItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		began := time.Now()
		r.try(0, nil)
		time.Sleep(time.Second)
		r.fails(0, 5, errFive)
		r.is(Open)
		r.bs[0].ReportCut(began, errFive)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		r.bs[0].ReportCut(began, errFive)
		r.is(HalfOpen)
		if n := probesOf(r.bs[0]); n != 0 {
			t.Error("a probe is in progress")
		}
		r.try(0, nil)
		r.is(Closed)
		r.bs[0].ReportCut(began, errFive)
		r.bs[0].ReportCut(time.Now(), errClient) // excluded
		r.is(Closed)
		if v := r.bs[0].View(); v.ConsecutiveFailures != 0 || v.Failures != 0 {
			t.Errorf("it was counted: %+v", v)
		}
	})
}

// TestAHealthCheckEndsNoSlowness: it does not measure that. It ends the open state after other failures.
func TestAHealthCheckEndsNoSlowness(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want State
	}{"slow": {errSlow, Open}, "failed": {errFive, HalfOpen}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2, Config{})
				r.fails(0, 5, c.err)
				r.is(Open)
				time.Sleep(10 * time.Second)
				r.healthy(0, time.Now())
				r.is(c.want)
			})
		})
	}
}

// TestSuccessesCloseAfterAnyOutcomes sends 100,000 mixed outcomes from 64 goroutines.
func TestSuccessesCloseAfterAnyOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{Probes: 2, OpenFor: 10 * time.Millisecond, ProbeTimeout: time.Second}
		r := newRig(t, 4, c, func(o *Options) {
			o.Rand = fixedseed.Float64()
		})
		ends := []error{nil, errFive, errRefused, errClient, errSlow, nil}
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				for i := range 100_000 / 64 {
					b := r.bs[(g+i)%4]
					done, err := r.allow((g + i) % 4)
					if i%64 == 0 {
						time.Sleep(time.Millisecond)
						r.Poll()
						b.Healthy(time.Now())
						b.View()
						b.Configure(c)
					}
					if err == nil && (g*i)%97 != 1 { // some never come back
						done(ends[(g*7+i*13)%len(ends)])
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(2 * time.Second)
		r.Poll()
		last := map[string]State{}
		for _, c := range r.transitions() {
			if last[c.worker] == c.To {
				t.Fatalf("%s was %s and is notified to be so again", c.worker, c.To)
			}
			last[c.worker] = c.To
		}
		if len(last) < 2 {
			t.Fatal("hardly any breaker opened")
		}
		for i, b := range r.bs {
			if n := probesOf(b); n != 0 {
				t.Errorf("%d probes are in progress", n)
			}
			time.Sleep(time.Second)
			r.Poll()
			r.fails(i, 2, nil)
			if b.View().State != Closed {
				t.Errorf("%s is %s", name(i), b.View().State)
			}
		}
	})
}

// TestCutProbeOpensAgain: a worker that cuts every stream costs one stream per probe.
func TestCutProbeOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		began := time.Now()
		time.Sleep(time.Second)
		r.try(0, nil)
		r.is(Closed)
		time.Sleep(time.Second)
		r.bs[0].ReportCut(began, errFive)
		r.is(Open)
		if last := r.last(); last.Cause != CauseProbeFailed {
			t.Errorf("notified of %+v", last)
		}
	})
}
