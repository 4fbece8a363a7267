package breaker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestHungWorkerIsEjectedUntilItWorks opens at the first sight of a hang, ignores the
// first health checks, and tries the worker as soon as it hangs no more.
func TestHungWorkerIsEjectedUntilItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		for range 5 {
			r.bs[1].Hang(true)
			time.Sleep(time.Second)
			r.bs[1].Healthy(time.Now())
			r.Poll()
		}
		if r.try(1, nil) {
			t.Error("a request passed to a worker that hangs")
		}
		r.bs[1].Hang(false)
		if !r.try(1, nil) {
			t.Error("no probe passed to a worker that hangs no more")
		}
		want := []string{"b open hung", "b half_open healthy", "b closed probe_succeeded"}
		if got := r.causes(); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// TestHungWorkerIsProbedAfterOpenFor covers a hang of which nothing more is seen,
// because the worker gets no requests.
func TestHungWorkerIsProbedAfterOpenFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{OpenFor: 10 * time.Second})
		for range 11 {
			r.bs[1].Hang(true)
			r.Poll()
			time.Sleep(time.Second)
		}
		if r.bs[1].State() != HalfOpen {
			t.Errorf("the breaker is %s after open_for", r.bs[1].State())
		}
	})
}

// TestHungWorkerIsProbedSoonWhileItsHealthIsGood: a worker without requests shows no
// byte, so that a probe has to find out. Each hang found since doubles the wait.
func TestHungWorkerIsProbedSoonWhileItsHealthIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		for _, want := range []time.Duration{6 * time.Second, 11 * time.Second, 21 * time.Second} {
			r.bs[1].Hang(true)
			if r.last().Cause != CauseHung {
				t.Fatalf("told %+v", r.last())
			}
			opened := time.Now()
			for r.bs[1].State() == Open {
				time.Sleep(time.Second)
				r.bs[1].Hang(true)
				r.bs[1].Healthy(time.Now())
				r.Poll()
			}
			if got := time.Since(opened); got != want {
				t.Errorf("half-open after %v, want %v", got, want)
			}
		}
		r.try(1, nil)
		r.bs[1].Hang(true)
		time.Sleep(6 * time.Second)
		r.bs[1].Healthy(time.Now())
		if r.bs[1].State() != HalfOpen {
			t.Errorf("the breaker is %s: a good probe did not reset the wait", r.bs[1].State())
		}
	})
}

// TestHungProbesOpenAHalfOpenBreaker covers probes whose clients leave before
// probe_timeout, which are no verdict.
func TestHungProbesOpenAHalfOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{OpenFor: 10 * time.Second})
		r.bs[1].Hang(true)
		r.pass(10 * time.Second)
		r.fails(1, 3, errClient)
		r.is(Closed, HalfOpen)
		r.bs[1].Hang(true)
		r.is(Closed, Open)
		if r.last().Cause != CauseHung {
			t.Errorf("told %+v", r.last())
		}
	})
}

// TestHangsKeepTheEjectionCap never ejects more than half of a pool, nor its last
// usable worker, and reports the workers that stay.
func TestHangsKeepTheEjectionCap(t *testing.T) {
	var kept []string
	r := newRig(t, 4, Config{}, func(o *Options) { o.OnKept = func(id string, _ any) { kept = append(kept, id) } })
	for _, b := range r.bs {
		b.Hang(true)
	}
	if got, want := r.causes(), []string{"a open hung", "b open hung"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if want := []string{"c", "d"}; !slices.Equal(kept, want) {
		t.Errorf("kept %q, want %q", kept, want)
	}
	r = newRig(t, 2, Config{})
	r.down["a"] = true
	r.bs[1].Hang(true)
	if r.bs[1].State() != Closed {
		t.Error("the last usable worker was ejected")
	}
}

// TestHangSaysNothingOfOtherOutages leaves a breaker alone that failures opened.
func TestHangSaysNothingOfOtherOutages(t *testing.T) {
	r := newRig(t, 2, Config{})
	r.fails(1, 5, errFive)
	r.bs[1].Hang(false)
	if r.bs[1].State() != Open {
		t.Errorf("the breaker is %s", r.bs[1].State())
	}
	var none *Breaker
	none.Hang(true)
}
