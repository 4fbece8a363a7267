package breaker

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

// TestProbeWithoutAReportFails: gobreaker alone would stay half-open for good.
func TestProbeWithoutAReportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{ProbeTimeout: 10 * time.Second})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		done, err := r.allow(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.allow(0); !errors.Is(err, gobreaker.ErrTooManyRequests) {
			t.Fatalf("a second probe: %v", err)
		}
		time.Sleep(10*time.Second - 1)
		r.is(HalfOpen)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		r.is(Open)
		if last := r.last(); last.Cause != CauseProbeTimeout || !last.Until.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("notified of %+v", last)
		}
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		done(nil) // of the probe before
		r.is(HalfOpen)
		if n := probesOf(r.bs[0]); n != 0 {
			t.Errorf("%d probes are in progress", n)
		}
		r.try(0, nil)
		r.is(Closed)
	})
}

// TestHalfOpenAdmitsExactlyTheProbes if all requests arrive at once.
func TestHalfOpenAdmitsExactlyTheProbes(t *testing.T) {
	for _, probes := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 2, Config{Probes: probes})
			r.fails(0, 5, errFive)
			time.Sleep(60*time.Second + tick) // no poll: the first arrival finds that it is time
			var passed, refused atomic.Int64
			var wg sync.WaitGroup
			release := make(chan struct{})
			for range 500 {
				wg.Go(func() {
					done, err := r.allow(0)
					if err != nil {
						refused.Add(1)
						return
					}
					passed.Add(1)
					<-release
					done(nil)
				})
			}
			synctest.Wait()
			if passed.Load() != int64(probes) || refused.Load() != int64(500-probes) {
				t.Errorf("%d passed, %d were refused", passed.Load(), refused.Load())
			}
			close(release)
			wg.Wait()
			r.is(Closed)
		})
	}
}

func TestExcludedProbeFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		for range 100 {
			if !r.try(0, errClient) {
				t.Fatal("its place was not given back")
			}
			r.is(HalfOpen)
		}
		done, err := r.allow(0)
		if err != nil || r.try(0, nil) {
			t.Fatal("more or fewer than one place are free", err)
		}
		done(nil)
		r.is(Closed)
	})
}

func TestAllProbesMustSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{Probes: 3})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		var dones []func(error)
		for range 3 {
			done, err := r.allow(0)
			if err != nil {
				t.Fatal(err)
			}
			dones = append(dones, done)
		}
		dones[0](nil)
		var timers []*time.Timer
		for _, p := range r.bs[0].probes {
			timers = append(timers, p.timer)
		}
		dones[1](errFive)
		r.is(Open)
		for _, timer := range timers {
			if timer.Stop() {
				t.Error("the timer of a probe is still running after the opening")
			}
		}
		dones[2](nil)
		r.is(Open)
		r.pass(60 * time.Second)
		for range 3 {
			r.is(HalfOpen)
			r.try(0, nil)
		}
		r.is(Closed)
	})
}

// TestProbeDeadlineFollowsTheExpectedTime: an answer that is not streamed has no outcome
// before its end.
func TestProbeDeadlineFollowsTheExpectedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{ProbeTimeout: 10 * time.Second})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		done, err := r.allowFor(0, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		r.is(HalfOpen)
		done(nil)
		r.is(Closed)
	})
}

// TestFailedProbesDelayTheEffectOfHealthChecks, each for longer: an engine with a broken
// model may return good health checks all the time.
func TestFailedProbesDelayTheEffectOfHealthChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{OpenFor: 10 * time.Minute})
		r.fails(0, 5, errFive)
		for _, wait := range []time.Duration{0, 5 * time.Second, 10 * time.Second, 20 * time.Second} {
			time.Sleep(wait)
			r.healthy(0, time.Now())
			r.is(Open) // it did not begin after that
			time.Sleep(time.Millisecond)
			r.healthy(0, time.Now())
			r.is(HalfOpen)
			r.try(0, errFive)
			r.is(Open)
		}
		time.Sleep(time.Minute)
		r.healthy(0, time.Now())
		r.try(0, nil)
		r.is(Closed)
		r.fails(0, 5, errFive)
		time.Sleep(time.Millisecond)
		r.healthy(0, time.Now())
		r.is(HalfOpen) // nothing is held against it any more
		ticket, err := r.bs[0].Allow(time.Hour)
		if patience, probing := r.bs[0].Probing(ticket, time.Hour); err != nil || !probing || patience != 3*time.Hour {
			t.Errorf("a probe may take %s (%t)", patience, probing)
		}
	})
}
