package breaker

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSoftFailuresLeaveHalfAndOne(t *testing.T) {
	for n, most := range []int{0, 0, 1, 1, 2, 2, 3} {
		r := newRig(t, n, Config{})
		for range 10 {
			for i := range n {
				r.fails(i, 30, errFive)
			}
		}
		if got := r.softOut(); got != most {
			t.Errorf("of %d workers %d are out, not %d", n, got, most)
		}
	}
}

func TestNobodyHoldsBackHardFailures(t *testing.T) {
	r := newRig(t, 3, Config{})
	for i := range 3 {
		r.fails(i, 5, errRefused)
	}
	r.is(Open, Open, Open)
}

// TestTheCapAsksAgain: who may not open does so at its next failure after
// another came back.
func TestTheCapAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errFive)
		r.fails(1, 50, errFive)
		r.is(Open, Closed)
		r.pass(60 * time.Second)
		r.try(1, errFive)
		r.is(HalfOpen, Closed)
		r.try(0, nil)
		r.is(Closed, Closed)
		r.try(1, errFive)
		r.is(Closed, Open)
	})
}

func TestTheLastUsableWorkerStays(t *testing.T) {
	r := newRig(t, 4, Config{})
	r.down["b"], r.down["c"] = true, true
	r.fails(0, 5, errFive)
	r.fails(3, 50, errFive)
	r.is(Open, Closed, Closed, Closed)
}

// TestTheLastUsableWorkerComesBack when the others die after it was opened.
func TestTheLastUsableWorkerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errFive)
		r.fails(1, 5, errRefused)
		r.is(Closed, Open)
		want := []string{"a open consecutive_failures", "b open consecutive_failures", "a closed last_usable"}
		if got := r.causes(); !slices.Equal(got, want) {
			t.Fatalf("told %q", got)
		}

		r = newRig(t, 3, Config{})
		r.fails(0, 5, errFive)
		r.down["b"], r.down["c"] = true, true
		r.Poll()
		r.is(Closed, Closed, Closed)

		r = newRig(t, 3, Config{})
		r.fails(0, 5, errFive)
		r.down["a"], r.down["b"], r.down["c"] = true, true, true
		r.Poll()
		r.is(Open, Closed, Closed)

		r = newRig(t, 1, Config{})
		r.fails(0, 5, errRefused)
		r.pass(time.Second)
		r.is(Open)
	})
}

// TestTheLastUsableWorkerStaysOnTrial: a failed probe does not open it for
// another minute.
func TestTheLastUsableWorkerStaysOnTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		r.down["b"] = true
		r.try(0, errFive)
		r.is(HalfOpen)
		r.Poll()
		r.is(Closed)
	})
}

// TestASmallerPoolTakesBack what a larger one could do without.
func TestASmallerPoolTakesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, Config{})
		r.fails(0, 5, errFive)
		time.Sleep(time.Second)
		r.fails(1, 5, errFive)
		r.Configure(Config{}, members(3))
		r.is(Open, Open, Closed)
		r.Poll()
		r.is(Closed, Open, Closed)
		if got := r.causes()[2]; got != "a closed half_pool" {
			t.Error(got)
		}
	})
}

// TestTwoAtTheSameMomentAreNotBothOut is what a check before the booking would
// let pass.
func TestTwoAtTheSameMomentAreNotBothOut(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for range 200 {
				r := newRig(t, n, Config{}, func(o *Options) { o.OnChange = nil })
				for i := range n {
					r.fails(i, 4, errFive)
				}
				start := make(chan struct{})
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						<-start
						r.try(i, errFive)
					})
				}
				close(start)
				wg.Wait()
				if out := r.softOut(); out != n/2 {
					t.Fatalf("%d of %d are out", out, n)
				}
			}
		})
	}
}

// TestAHardOutingDoesNotBecomeASoftOneOverTheCap: a worker that is there again
// and answers badly is tried on, one request at a time.
func TestAHardOutingDoesNotBecomeASoftOneOverTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.fails(0, 5, errRefused)
		r.down["b"] = true
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		for range 10 {
			if !r.try(0, errFive) {
				t.Fatal("not tried on")
			}
			r.is(HalfOpen)
		}
		if done, err := r.bs[0].Allow(); err != nil {
			t.Fatal(err)
		} else if _, err := r.bs[0].Allow(); err == nil {
			t.Fatal("two at once")
		} else {
			done(errRefused)
		}
		r.is(Open)
		r.pass(60 * time.Second)
		r.down["b"] = false
		r.try(0, errFive)
		r.is(Open)
		if r.softOut() != 1 {
			t.Error("the outing is not a soft one")
		}
	})
}
