package routing

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// usualSlowness is the default configuration.
var usualSlowness = Slowness{Factor: 3, MinSamples: 20}

// stream sends one good request whose first token takes ratio times the predicted second. It reports
// whether the request was admitted.
func (g *gatedPool) stream(i int, ratio float64) bool {
	l, err := g.Acquire(&Request{Now: time.Now(), Only: i})
	if err != nil {
		return false
	}
	observed := time.Duration(ratio * float64(time.Second))
	time.Sleep(observed)
	l.Release(Result{Err: g.paced(i, observed, time.Second)})
	return true
}

// paced records a stream's time to first token and returns the outcome.
func (g *gatedPool) paced(i int, observed, predicted time.Duration) error {
	now := time.Now()
	s := sample{began: now.Add(-observed), at: now, observed: observed}
	if predicted > 0 {
		s.ratio = float64(observed) / float64(predicted)
	}
	g.Pool.mu.Lock()
	defer g.Pool.mu.Unlock()
	if g.slowLocked(g.workers[i], s) {
		return ErrSlow
	}
	return nil
}

// rounds sends n streams to each of the first workers in turn, with these ratios; 0 sends none.
func (g *gatedPool) rounds(n int, ratios ...float64) {
	for s := range n {
		for i, ratio := range ratios {
			if ratio > 0 {
				g.stream(i, ratio*jitter(s))
			}
		}
	}
}

// jitter is a repeating noise of a third, typical for times to first token.
func jitter(i int) float64 { return 0.8 + 0.05*float64((i*7)%9) }

func TestSlowWorkerIsFound(t *testing.T) {
	for _, n := range []int{2, 3, 8} {
		for _, before := range []int{0, 100} {
			t.Run(fmt.Sprintf("of %d after %d good streams", n, before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGatedPool(t, n, usualSlowness)
					for s := range before {
						for i := range n {
							g.stream(i, jitter(s))
						}
					}
					at := 0
					for s := 1; s <= 60 && at == 0; s++ {
						for i := range n {
							ratio := jitter(s)
							if i == 1 {
								ratio *= 5
							}
							g.stream(i, ratio)
						}
						if g.state(1) == "out" {
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
					if got := g.causes; !slices.Equal(got, []string{"b slow"}) {
						t.Errorf("reported %q", got)
					}
				})
			})
		}
	}
}

func TestSlowPoolEjectsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 4, usualSlowness)
		for s := range 200 {
			for i := range 4 {
				g.stream(i, 8*jitter(s+i))
			}
		}
		g.is("in", "in", "in", "in")
		if len(g.causes) > 0 {
			t.Errorf("reported %q", g.causes)
		}
	})
}

// TestWorkerWithoutSamplesDoesNotCount: it is not slow, and it does not affect the comparison of its
// peers.
func TestWorkerWithoutSamplesDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 4, usualSlowness)
		g.rounds(2, 0, 0, 0, 50)
		g.rounds(20, 1, 1, 0, 0)
		g.is("in", "in", "in", "in")
		g.rounds(30, 1, 1, 5, 0)
		g.is("in", "in", "out", "in")
	})
}

// TestOldSamplesDoNotCount: samples older than five minutes are dropped, for the worker and its peers.
func TestOldSamplesDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, usualSlowness)
		g.rounds(19, 1, 5)
		time.Sleep(paceWindow)
		if v := g.Snapshot(time.Now())[0]; v.Samples != 0 || v.SlowRatio != 0 {
			t.Errorf("it remembers %+v", v)
		}
		g.rounds(5, 1, 5)
		g.is("in", "in")
	})
}

// TestASlowWorkerRecoversByProbe, not by a health check, and not by a probe that is slow too.
func TestASlowWorkerRecoversByProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 3, usualSlowness)
		g.rounds(30, 5, 1, 1)
		g.is("out")
		if v := g.Snapshot(time.Now())[0]; v.Samples != 0 {
			t.Errorf("%d samples are left", v.Samples)
		}
		time.Sleep(time.Second)
		g.bs[0].Healthy(time.Now())
		g.is("out")
		g.pass(60 * time.Second)
		g.is("tried")
		g.stream(0, 5)
		g.is("out")
		time.Sleep(time.Second)
		g.bs[0].Healthy(time.Now())
		g.is("out")
		g.pass(60 * time.Second)
		g.stream(0, 1)
		g.is("in")
		g.rounds(19, 5, 1, 1)
		g.is("in")
		g.rounds(10, 5, 1, 1)
		g.is("out")
		want := []string{"a slow", "a slow", "a slow"}
		if got := g.causes; !slices.Equal(got, want) {
			t.Errorf("reported %q\nnot  %q", got, want)
		}
	})
}

// TestEjectedWorkerIsNotAPeer: the second slow worker is compared with the good one only.
func TestEjectedWorkerIsNotAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 4, usualSlowness)
		g.rounds(30, 5, 0, 1)
		g.is("out", "in", "in", "in")
		g.rounds(30, 0, 5, 1)
		g.is("out", "out", "in", "in")
	})
}

// TestSlownessEndsWithAGoodProbe: after that, a health check can end the next opening early.
func TestSlownessEndsWithAGoodProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, usualSlowness)
		g.rounds(30, 5, 1)
		g.is("out")
		g.pass(60 * time.Second)
		g.stream(0, 1)
		g.is("in")
		g.fail(0, 5, errFive)
		g.is("out")
		time.Sleep(time.Second)
		g.bs[0].Healthy(time.Now())
		g.pass(time.Second)
		g.is("tried")
	})
}

// TestSlowProbeAfterFailuresCloses: one sample shows little, and slowness was not the reason of the
// ejection.
func TestSlowProbeAfterFailuresCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, usualSlowness)
		g.rounds(20, 0, 1)
		g.fail(0, 5, errFive)
		g.pass(60 * time.Second)
		g.stream(0, 5)
		g.is("in")
	})
}

// TestStreamsFromBeforeAnEjectionAreNoSamples: they show the time before it.
func TestStreamsFromBeforeAnEjectionAreNoSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, usualSlowness)
		start := time.Now()
		g.fail(0, 5, errFive)
		g.pass(60 * time.Second)
		g.request(0, nil)
		g.is("in")
		time.Sleep(time.Second)
		g.paced(0, time.Since(start), time.Second)
		if v := g.Snapshot(time.Now())[0]; v.Samples != 0 {
			t.Error("a stream of before was taken")
		}
		g.paced(0, time.Second, time.Second)
		if v := g.Snapshot(time.Now())[0]; v.Samples != 1 {
			t.Error("a stream of now was not taken")
		}
	})
}

// TestEjectionCapKeepsASlowWorker until another worker returns.
func TestEjectionCapKeepsASlowWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 3, usualSlowness)
		g.fail(2, 5, errFive)
		for s := range 30 {
			g.stream(1, jitter(s))
			g.stream(0, 5*jitter(s))
		}
		g.is("kept", "in", "out")
		g.pass(60 * time.Second)
		g.request(2, nil)
		g.stream(0, 5)
		g.is("out", "in", "in")
	})
}

// TestOnlyStreamsOfTheSameMomentAreCompared: a delay of all workers at one time does not make one worker
// slow.
func TestOnlyStreamsOfTheSameMomentAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, usualSlowness)
		g.rounds(20, 0, 1)
		g.rounds(40, 8, 0)
		g.is("in", "in")
		g.rounds(40, 8, 8)
		g.is("in", "in")
	})
}

// TestStreamsOfOneBurstCountOnce: they are all booked before the first of them ends, and are one
// comparison.
func TestStreamsOfOneBurstCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, usualSlowness)
		for range 5 {
			start := time.Now()
			for range 100 { // b has the shorter line
				time.Sleep(100 * time.Millisecond)
				g.paced(0, time.Since(start), 25*time.Millisecond)
				g.paced(1, time.Since(start)/10, 25*time.Millisecond)
			}
		}
		if v := g.Snapshot(time.Now())[0]; v.SlowRatio != 0 || v.Samples != maxSamples {
			t.Errorf("%+v: five comparisons are too few", v)
		}
		g.is("in", "in")
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
				g := newGatedPool(t, 2, Slowness{MinSamples: 40, P95Above: 2 * time.Second})
				for s := range 64 {
					ratio := 1.0
					if tt.late > 0 && s%tt.late == tt.late-1 {
						ratio = 3
					}
					time.Sleep(time.Second)
					g.request(0, g.paced(0, time.Duration(ratio)*time.Second, 0)) // without a prediction
				}
				if got := g.state(0) == "out"; got != tt.opens {
					t.Errorf("open is %t", got)
				}
			})
		})
	}
}

func TestSlownessCanBeTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, Slowness{MinSamples: 20})
		for s := range 70 {
			g.stream(0, 1)
			g.stream(1, 10*jitter(s))
		}
		g.is("in", "in")
		g.SetSlowness(usualSlowness) // the streams of before count
		g.stream(1, 10)
		g.is("in", "out")
	})
}
