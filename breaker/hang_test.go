package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestHangOpensUntilItEnds: a hang opens the breaker, the first health checks after it have no
// effect, and the end of the hang makes it half-open.
func TestHangOpensUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		for range 4 {
			r.bs[1].SetHung(time.Now())
			time.Sleep(time.Second)
			r.healthy(1, time.Now())
			r.Poll()
		}
		if r.try(1, nil) {
			t.Error("a request passed to a worker that hangs")
		}
		r.bs[1].SetHung(time.Time{})
		time.Sleep(tick)
		if !r.try(1, nil) {
			t.Error("no probe passed to a worker after its hang")
		}
		want := []string{"b open hung", "b half_open healthy", "b closed probe_succeeded"}
		if got := r.causes(); !slices.Equal(got, want) {
			t.Errorf("notified of %q, want %q", got, want)
		}
	})
}

// TestHungWorkerIsProbedAfterOpenFor covers a hang without an observed end: the worker gets
// no requests.
func TestHungWorkerIsProbedAfterOpenFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{OpenFor: 10 * time.Second})
		for range 12 {
			r.bs[1].SetHung(time.Now())
			r.Poll()
			time.Sleep(time.Second)
		}
		if r.bs[1].View().State != HalfOpen {
			t.Errorf("the breaker is %s after open_for", r.bs[1].View().State)
		}
	})
}

// TestHealthChecksEndAHang: a worker without requests returns no byte, so only a probe can show that the
// hang is over. The first further hang doubles the wait.
func TestHealthChecksEndAHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 10 * time.Second} {
			r.bs[1].SetHung(time.Now())
			if r.last().Cause != CauseHung {
				t.Fatalf("notified of %+v", r.last())
			}
			opened := time.Now()
			for r.bs[1].View().State == Open {
				time.Sleep(time.Second)
				r.bs[1].SetHung(time.Now())
				r.healthy(1, time.Now())
				r.Poll()
			}
			if got := time.Since(opened).Round(time.Second); got != want {
				t.Errorf("half-open after %v, want %v", got, want)
			}
		}
		r.try(1, nil)
		r.bs[1].SetHung(time.Now())
		time.Sleep(6 * time.Second)
		r.healthy(1, time.Now())
		if r.bs[1].View().State != HalfOpen {
			t.Errorf("the breaker is %s: a good probe did not reset the wait", r.bs[1].View().State)
		}
	})
}

// TestHangOpensAHalfOpenBreaker covers probes that end because the client disconnects before
// probe_timeout: their outcome is excluded.
func TestHangOpensAHalfOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{OpenFor: 10 * time.Second})
		r.bs[1].SetHung(time.Now())
		r.pass(10 * time.Second)
		r.fails(1, 3, errClient)
		r.is(Closed, HalfOpen)
		r.bs[1].SetHung(time.Now())
		r.is(Closed, Open)
		if r.last().Cause != CauseHung {
			t.Errorf("notified of %+v", r.last())
		}
	})
}

// TestEndOfAHangKeepsOtherOpenStates: a breaker that failures opened stays open.
func TestEndOfAHangKeepsOtherOpenStates(t *testing.T) {
	r := newRig(t, 2, Config{})
	r.fails(1, 5, errFive)
	r.bs[1].SetHung(time.Time{})
	if r.bs[1].View().State != Open {
		t.Errorf("the breaker is %s", r.bs[1].View().State)
	}
}

// TestHangFromBeforeTheLastTransitionHasNoEffect: the finding may be older than the health check that made the
// breaker half-open.
func TestHangFromBeforeTheLastTransitionHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		found := time.Now()
		r.bs[1].SetHung(found)
		time.Sleep(6 * time.Second)
		r.healthy(1, time.Now())
		r.bs[1].SetHung(found)
		r.is(Closed, HalfOpen)
	})
}

// TestHangOpensAHalfOpenBreakerWithAnyProbes that have succeeded, were excluded or are in progress, also if no further
// probe is admitted. Their reports have no effect afterwards.
func TestHangOpensAHalfOpenBreakerWithAnyProbes(t *testing.T) {
	for most := 1; most <= 3; most++ {
		for succeeded := range most {
			for excluded := range 3 {
				for running := 0; running <= most-succeeded; running++ {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, 1, Config{Probes: most, OpenFor: time.Second})
						r.fails(0, 10, errRefused)
						time.Sleep(time.Second + tick)
						r.Poll()
						for range succeeded {
							r.try(0, nil)
						}
						for range excluded {
							r.try(0, errClient)
						}
						var reports []func(error)
						for range running {
							report, err := r.allow(0)
							if err != nil {
								t.Fatal(err)
							}
							reports = append(reports, report)
						}
						r.is(HalfOpen)
						r.bs[0].SetHung(time.Now())
						r.is(Open)
						for _, report := range reports {
							report(nil)
						}
						r.is(Open)
						if c := r.last().Cause; c != CauseHung {
							t.Errorf("%d of %d probes succeeded, %d were excluded, %d run: it opens for %s", succeeded, most, excluded,
								running, c)
						}
					})
				}
			}
		}
	}
}
