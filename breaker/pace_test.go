package breaker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// stream sends one good request whose first token came after ratio times the
// predicted second, as the gateway does, and tells whether it passed.
func (r *rig) stream(i int, ratio float64) bool {
	done, err := r.bs[i].Allow()
	if err != nil {
		return false
	}
	observed := time.Duration(ratio * float64(time.Second))
	time.Sleep(observed)
	done(r.bs[i].Pace(observed, time.Second))
	return true
}

// rounds sends n streams to each of the first workers in turn, with these ratios; 0
// sends none.
func (r *rig) rounds(n int, ratios ...float64) {
	for s := range n {
		for i, ratio := range ratios {
			if ratio > 0 {
				r.stream(i, ratio*jitter(s))
			}
		}
	}
}

// jitter is a noise of a third, as times to first token have it, that repeats.
func jitter(i int) float64 { return 0.8 + 0.05*float64((i*7)%9) }

func TestTheSlowOneIsFound(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		for _, before := range []int{0, 100} {
			t.Run(fmt.Sprintf("of %d after %d good streams", n, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, n, Config{})
					for s := range before {
						for i := range n {
							r.stream(i, jitter(s))
						}
					}
					at := 0
					for s := 1; s <= 60 && at == 0; s++ {
						for i := range n {
							ratio := jitter(s)
							if i == 1 {
								ratio *= 5
							}
							r.stream(i, ratio)
						}
						if r.bs[1].State() == Open {
							at = s
						}
					}
					least := 20 // with good samples before it takes half of them and one
					if before > 0 {
						least = 11
					}
					if at < least || at > 40 {
						t.Errorf("found after %d streams", at)
					}
					if got := r.causes(); !slices.Equal(got, []string{"b open slow"}) {
						t.Errorf("told %q", got)
					}
				})
			})
		}
	}
}

func TestASlowPoolEjectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, Config{})
		for s := range 200 {
			for i := range 4 {
				r.stream(i, 8*jitter(s+i))
			}
		}
		r.is(Closed, Closed, Closed, Closed)
		if len(r.causes()) > 0 {
			t.Errorf("told %q", r.causes())
		}
	})
}

// TestAWorkerWithoutSamplesHasNoSay: it is not slow, and it neither makes its
// peers look slow nor hides that they are.
func TestAWorkerWithoutSamplesHasNoSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, Config{})
		r.rounds(2, 0, 0, 0, 50)
		r.rounds(20, 1, 1, 0, 0)
		r.is(Closed, Closed, Closed, Closed)
		r.rounds(30, 1, 1, 5, 0)
		r.is(Closed, Closed, Open, Closed)
	})
}

// TestOldSamplesSayNothing: what a worker was five minutes ago is forgotten,
// by itself and by its peers.
func TestOldSamplesSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.rounds(19, 1, 5)
		time.Sleep(paceWindow)
		if v := r.bs[0].View(); v.Samples != 0 || v.Median != 0 || v.SlowRatio != 0 {
			t.Errorf("it remembers %+v", v)
		}
		r.rounds(5, 1, 5)
		r.is(Closed, Closed)
	})
}

// TestASlowWorkerRecoversByProbe, not by a health check, and not by a probe
// that is as slow.
func TestASlowWorkerRecoversByProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, Config{})
		r.rounds(30, 5, 1, 1)
		r.is(Open)
		if v := r.bs[0].View(); v.Samples != 0 {
			t.Errorf("%d samples are left", v.Samples)
		}
		time.Sleep(time.Second)
		r.bs[0].Healthy(time.Now())
		r.is(Open)
		r.pass(60 * time.Second)
		r.is(HalfOpen)
		r.stream(0, 5)
		r.is(Open)
		time.Sleep(time.Second)
		r.bs[0].Healthy(time.Now())
		r.is(Open)
		r.pass(60 * time.Second)
		r.stream(0, 1)
		r.is(Closed)
		r.rounds(19, 5, 1, 1)
		r.is(Closed)
		r.rounds(10, 5, 1, 1)
		r.is(Open)
		want := []string{"a open slow", "a half_open timeout", "a open slow", "a half_open timeout", "a closed probe_succeeded", "a open slow"}
		if got := r.causes(); !slices.Equal(got, want) {
			t.Errorf("told %q\nnot  %q", got, want)
		}
	})
}

// TestWhoIsOutIsNobodysPeer: the second slow worker is measured against the
// well one alone.
func TestWhoIsOutIsNobodysPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, Config{})
		r.rounds(30, 5, 0, 1)
		r.is(Open, Closed, Closed, Closed)
		r.rounds(30, 0, 5, 1)
		r.is(Open, Open, Closed, Closed)
	})
}

// TestSlownessIsForgottenOnceProvenWrong: the next opening may end early.
func TestSlownessIsForgottenOnceProvenWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.rounds(30, 5, 1)
		r.is(Open)
		r.pass(60 * time.Second)
		r.stream(0, 1)
		r.is(Closed)
		r.fails(0, 5, errFive)
		r.is(Open)
		time.Sleep(time.Second)
		r.bs[0].Healthy(time.Now())
		r.is(HalfOpen)
	})
}

// TestASlowProbeOfAWorkerThatFailed decides by its answer: one sample says
// little, and slowness was not what took the worker out.
func TestASlowProbeOfAWorkerThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.rounds(20, 0, 1)
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		r.stream(0, 5)
		r.is(Closed)
	})
}

// TestStreamsOfBeforeAreNoSamples: they tell of the time before the opening.
func TestStreamsOfBeforeAreNoSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{OpenFor: time.Second})
		start := time.Now()
		r.fails(0, 5, errFive)
		r.pass(2 * time.Second)
		r.try(0, nil)
		r.is(Closed)
		time.Sleep(time.Second)
		r.bs[0].Pace(time.Since(start), time.Second)
		if v := r.bs[0].View(); v.Samples != 0 {
			t.Error("a stream of before was taken")
		}
		r.bs[0].Pace(time.Second, time.Second)
		if v := r.bs[0].View(); v.Samples != 1 {
			t.Error("a stream of now was not taken")
		}
	})
}

// TestACappedSlowWorkerIsNoFailure: its answers are good, and it is asked again
// at each whether it may be kept out.
func TestACappedSlowWorkerIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, Config{})
		r.fails(2, 5, errFive)
		for s := range 30 {
			r.stream(1, jitter(s))
			r.stream(0, 5*jitter(s))
		}
		r.is(Closed, Closed, Open)
		if v := r.bs[0].View(); v.Failures != 0 || v.ConsecutiveFailures != 0 || v.SlowRatio < 3 {
			t.Errorf("%+v", v)
		}
		r.pass(60 * time.Second)
		r.try(2, nil)
		r.stream(0, 5)
		r.is(Open, Closed, Closed)
	})
}

// TestStreamsOfOtherTimesAreNoComparison: what all workers' streams waited for in one
// time is not what one worker is slow by.
func TestStreamsOfOtherTimesAreNoComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		r.rounds(20, 0, 1)
		r.rounds(40, 8, 0)
		r.is(Closed, Closed)
		r.rounds(40, 8, 8)
		r.is(Closed, Closed)
	})
}

// TestStreamsThatWaitTogetherCountOnce: all streams of a burst are booked before the
// first of them ends, and are one comparison however many they are.
func TestStreamsThatWaitTogetherCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		for range 5 {
			start := time.Now()
			for range 100 { // b has the shorter line
				time.Sleep(100 * time.Millisecond)
				r.bs[0].Pace(time.Since(start), 25*time.Millisecond)
				r.bs[1].Pace(time.Since(start)/10, 25*time.Millisecond)
			}
		}
		if v := r.bs[0].View(); v.SlowRatio != 0 || v.Samples != maxSamples {
			t.Errorf("%+v: five comparisons are too few", v)
		}
		r.is(Closed, Closed)
	})
}

func TestP95Above(t *testing.T) {
	for _, tt := range []struct {
		name  string
		late  int // each of how many streams is late; 0 is none
		opens bool
	}{{"none is late", 0, false}, {"1 of 32", 32, false}, {"1 of 10", 10, true}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := Default()
				c.Slow = Slow{MinSamples: 40, P95Above: 2 * time.Second}
				r := newRig(t, 2, c)
				for s := range 64 {
					ratio := 1.0
					if tt.late > 0 && s%tt.late == tt.late-1 {
						ratio = 3
					}
					done, err := r.bs[0].Allow()
					if err != nil {
						break
					}
					time.Sleep(time.Second)
					done(r.bs[0].Pace(time.Duration(ratio)*time.Second, 0)) // without a prediction
				}
				if got := r.bs[0].State() == Open; got != tt.opens {
					t.Errorf("open is %t", got)
				}
			})
		})
	}
}

func TestSlownessCanBeTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Default()
		c.Slow.Factor = 0
		r := newRig(t, 2, c)
		for s := range 70 {
			r.stream(0, 1)
			r.stream(1, 10*jitter(s))
		}
		r.is(Closed, Closed)
	})
}
