package routing

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/breaker"
	_ "tierway/fixedseed"
)

var (
	errFive    = errors.New("the worker answered 500")
	errRefused = errors.New("connection refused")
)

// gatedPool is a pool of workers a, b, c and so on, with breakers that are connected as in the
// server.
type gatedPool struct {
	*Pool
	t  testing.TB
	bs []*breaker.Breaker

	opening func() // called before an opening reaches the pool

	mu     sync.Mutex
	causes []string // of the openings, as in "a slow"
}

func newGatedPool(t testing.TB, n int, s Slowness) *gatedPool {
	g := &gatedPool{t: t}
	var members []Member
	for i := range n {
		id := string(rune('a' + i))
		b := breaker.New(breaker.Config{}, breaker.Options{
			Rand: func() float64 { return 0.5 },
			Outcome: func(err error) breaker.Outcome {
				switch {
				case err == nil:
					return breaker.Success
				case errors.Is(err, ErrExcluded):
					return breaker.Excluded
				case errors.Is(err, ErrSlow):
					return breaker.TooSlow
				case errors.Is(err, errRefused):
					return breaker.Unreachable
				}
				return breaker.Failure
			},
			OnChange: func(c breaker.Change) {
				if c.To == breaker.Closed {
					g.Restore(id, i, time.Now())
					return
				}
				if g.opening != nil && c.To == breaker.Open {
					g.opening()
				}
				g.Eject(id, i, Ejection{At: time.Now(), Until: c.Until, Unreachable: c.Unreachable, Slow: c.Slow})
				if c.To == breaker.Open {
					g.mu.Lock()
					g.causes = append(g.causes, id+" "+c.Cause)
					g.mu.Unlock()
				}
			},
		})
		g.bs = append(g.bs, b)
		members = append(members, Member{ID: id, Weight: 1, Ref: i, Gate: b})
	}
	g.Pool = poolOf(members...)
	g.SetSlowness(s)
	return g
}

// request sends one request that only that worker may take; sent is false if the pool returns an
// error.
func (g *gatedPool) request(i int, end error) (sent bool) {
	l, err := g.Acquire(&Request{Now: time.Now(), Only: i})
	if err == nil {
		l.Release(Result{Err: end})
	}
	return err == nil
}

func (g *gatedPool) fail(i, n int, end error) {
	for range n {
		g.request(i, end)
	}
}

// down sets whether a worker is down.
func (g *gatedPool) down(i int, down bool) { g.Observe(g.workers[i].id, i, Status{Up: !down}) }

// pass advances the time as the running gateway does: with one poll per second.
func (g *gatedPool) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second) + 2)
		for _, b := range g.bs {
			b.Poll()
		}
	}
}

// state returns a worker's state in the pool: in rotation, kept by the cap, probed, or out.
func (g *gatedPool) state(i int) string {
	v := g.Snapshot(time.Now())[i]
	switch {
	case v.EjectionDenied:
		return "kept"
	case g.bs[i].View().State == breaker.Open:
		return "out"
	case g.bs[i].View().State == breaker.HalfOpen:
		return "tried"
	}
	return "in"
}

// is checks the states of the workers.
func (g *gatedPool) is(want ...string) {
	g.t.Helper()
	for i, s := range want {
		if got := g.state(i); got != s {
			g.t.Fatalf("%s is %s, not %s", g.workers[i].id, got, s)
		}
	}
}

// out counts the ejected workers to which the cap applies.
func (g *gatedPool) out() (n int) {
	for _, w := range g.workers {
		if w.cappedLocked() && !w.ejectionDenied {
			n++
		}
	}
	return n
}

func TestFailuresEjectAtMostHalfAndNeverTheLast(t *testing.T) {
	for n, most := range []int{0, 0, 1, 1, 2, 2, 3} {
		g := newGatedPool(t, n, Slowness{})
		for range 10 {
			for i := range n {
				g.fail(i, 30, errFive)
			}
		}
		if got := g.out(); got != most {
			t.Errorf("of %d workers %d are out, not %d", n, got, most)
		}
	}
}

func TestWorkersWithoutConnectionsAreAllEjected(t *testing.T) {
	g := newGatedPool(t, 3, Slowness{})
	for i := range 3 {
		g.fail(i, 5, errRefused)
	}
	g.is("out", "out", "out")
	var open *OpenError
	if _, err := g.Acquire(&Request{Now: time.Now()}); !errors.As(err, &open) {
		t.Errorf("Acquire returned %v", err)
	}
}

// TestHangsKeepTheEjectionCap: the cap applies to hangs as to failures.
func TestHangsKeepTheEjectionCap(t *testing.T) {
	g := newGatedPool(t, 4, Slowness{})
	for _, b := range g.bs {
		b.SetHung(time.Now())
	}
	g.is("out", "out", "kept", "kept")
	g = newGatedPool(t, 2, Slowness{})
	g.down(0, true)
	g.bs[1].SetHung(time.Now())
	g.is("in", "kept")
}

// TestDeniedEjectionHappensWhenAnotherWorkerReturns; a probe of its own then restores the worker.
func TestDeniedEjectionHappensWhenAnotherWorkerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 2, Slowness{})
		g.fail(0, 5, errFive)
		g.pass(30 * time.Second)
		g.fail(1, 50, errFive)
		g.is("out", "kept")
		g.pass(30 * time.Second)
		g.is("tried", "kept")
		g.request(0, nil)
		g.is("in", "out")
		g.pass(30 * time.Second)
		g.is("in", "tried")
		g.request(1, nil)
		g.is("in", "in")
	})
}

// TestWorkerWithDeniedEjectionGetsATenth of its share in spite of its open breaker, until a probe
// succeeds.
func TestWorkerWithDeniedEjectionGetsATenth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 3, Slowness{})
		g.fail(0, 5, errFive)
		g.fail(1, 5, errFive)
		g.is("out", "kept", "in")
		if v := g.Snapshot(time.Now())[1]; v.Share != slowStartShare || g.bs[1].View().State != breaker.Open {
			t.Errorf("a kept worker with a breaker that is %s has a share of %g", g.bs[1].View().State, v.Share)
		}
		if !g.request(1, nil) || g.bs[1].View().State != breaker.Open {
			t.Error("a kept worker got no request, or its outcome counted")
		}
		g.pass(60 * time.Second)
		g.is("tried", "kept")
		g.request(1, nil)
		g.is("tried", "in")
		if v := g.Snapshot(time.Now())[1]; v.Share != slowStartShare {
			t.Errorf("a restored worker begins with a share of %g", v.Share)
		}
	})
}

// TestProbesDoNotLimitAWorkerWithDeniedEjection: it is the last one in rotation.
func TestProbesDoNotLimitAWorkerWithDeniedEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 1, Slowness{})
		g.fail(0, 5, errFive)
		g.pass(60 * time.Second)
		if g.bs[0].View().State != breaker.HalfOpen {
			t.Fatal("its breaker is not half-open")
		}
		for range 3 {
			if _, err := g.Acquire(&Request{Now: time.Now()}); err != nil {
				t.Fatalf("a request was refused: %v", err)
			}
		}
	})
}

func TestLastUsableWorkerStaysInRotation(t *testing.T) {
	g := newGatedPool(t, 4, Slowness{})
	g.down(1, true)
	g.down(2, true)
	g.fail(0, 5, errFive)
	g.fail(3, 50, errFive)
	g.is("out", "in", "in", "kept")
}

// TestLastUsableWorkerReturnsToRotation if the other workers go down after its ejection.
func TestLastUsableWorkerReturnsToRotation(t *testing.T) {
	g := newGatedPool(t, 2, Slowness{})
	g.fail(0, 5, errFive)
	g.fail(1, 5, errRefused)
	g.is("kept", "out")

	g = newGatedPool(t, 3, Slowness{})
	g.fail(0, 5, errFive)
	g.down(1, true)
	g.down(2, true)
	g.is("kept", "in", "in")
	g.down(0, true)
	g.is("out", "in", "in")
	g.down(2, false)
	g.is("out", "in", "in")
}

// TestUnreachablePoolGetsProbesOnly, also once it returns failures.
func TestUnreachablePoolGetsProbesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 1, Slowness{})
		g.fail(0, 5, errRefused)
		g.is("out")
		g.pass(60 * time.Second)
		g.is("tried")
		l, err := g.Acquire(&Request{Now: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Acquire(&Request{Now: time.Now()}); err == nil {
			t.Error("two at once")
		}
		l.Release(Result{Err: errFive})
		g.is("kept") // it is there again
	})
}

// TestSmallerPoolRestoresWorkersOverTheCap: fewer members mean a smaller cap.
func TestSmallerPoolRestoresWorkersOverTheCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedPool(t, 4, Slowness{})
		g.fail(0, 5, errFive)
		time.Sleep(time.Second)
		g.fail(1, 5, errFive)
		g.is("out", "out", "in", "in")
		var three []Member
		for i := range 3 {
			three = append(three, Member{ID: g.workers[i].id, Weight: 1, Ref: i, Gate: g.bs[i]})
		}
		g.Configure(leastLoad{}, three)
		g.is("out", "kept", "in")
	})
}

// TestConcurrentEjectionsKeepTheCap: a check before the ejection would let too many pass.
func TestConcurrentEjectionsKeepTheCap(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			for range 200 {
				g := newGatedPool(t, n, Slowness{})
				for i := range n {
					g.fail(i, 4, errFive)
				}
				start := make(chan struct{})
				var wg sync.WaitGroup
				for i := range n {
					wg.Go(func() {
						<-start
						g.request(i, errFive)
					})
				}
				close(start)
				wg.Wait()
				if out := g.out(); out != n/2 {
					t.Fatalf("%d of %d are out", out, n)
				}
			}
		})
	}
}

// TestLastWorkerTakesRequestsWhileItsBreakerOpens, before the pool has received the transition.
func TestLastWorkerTakesRequestsWhileItsBreakerOpens(t *testing.T) {
	g, opened := newGatedPool(t, 1, Slowness{}), 0
	g.opening = func() {
		if opened++; !g.request(0, nil) {
			t.Error("a request found no worker")
		}
	}
	g.fail(0, 5, errFive)
	if g.is("kept"); opened != 1 {
		t.Errorf("the breaker opened %d times", opened)
	}
}

func TestEjectionCapHoldsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		var members []Member
		for i := range n {
			members = append(members, Member{ID: string(rune('a' + i)), Weight: 1, Ref: i})
		}
		p, now := poolOf(members...), start
		worker := rapid.IntRange(0, n-1)
		t.Repeat(map[string]func(*rapid.T){
			"eject": func(t *rapid.T) {
				i, e := worker.Draw(t, "worker"), Ejection{At: now, Unreachable: rapid.Bool().Draw(t, "unreachable")}
				if rapid.Bool().Draw(t, "open") {
					e.Until = now.Add(time.Minute)
				}
				p.Eject(members[i].ID, i, e)
			},
			"restore": func(t *rapid.T) {
				i := worker.Draw(t, "worker")
				p.Restore(members[i].ID, i, now)
			},
			"observe": func(t *rapid.T) {
				i := worker.Draw(t, "worker")
				p.Observe(members[i].ID, i, Status{Up: rapid.Bool().Draw(t, "up")})
			},
			"configure": func(t *rapid.T) {
				i := worker.Draw(t, "worker")
				members[i].Weight = rapid.IntRange(0, 1).Draw(t, "weight")
				p.Configure(leastLoad{}, slices.Clone(members))
			},
			"pass": func(*rapid.T) { now = now.Add(time.Second) },
			"": func(t *rapid.T) {
				out, inRotation, usable := 0, 0, 0
				for _, w := range p.workers {
					capped := w.ejected && !w.ejection.Unreachable
					if capped && !w.ejectionDenied {
						out++
					}
					if w.ejectionDenied && !capped {
						t.Fatalf("%s is kept, and not ejected for failures", w.id)
					}
					if w.status.Up && w.weight > 0 {
						if !w.ejected || w.ejectionDenied {
							inRotation++
						}
						if capped {
							usable++
						}
					}
				}
				if out > n/2 {
					t.Fatalf("%d of %d are out", out, n)
				}
				if inRotation == 0 && usable > 0 {
					t.Fatalf("the last usable worker is out")
				}
			},
		})
	})
}

// TestRestoredWorkerHasNoAverageLatency: the average would show its probes' wait for the end of a hang. That of a
// slow worker stays, because it is why the worker was ejected.
func TestRestoredWorkerHasNoAverageLatency(t *testing.T) {
	for _, slow := range []bool{false, true} {
		p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
		w := p.workers[0]
		w.latency.learn(10*time.Second, start)
		p.Eject("a", nil, Ejection{At: start, Slow: slow})
		p.Restore("a", nil, start.Add(time.Minute))
		if kept := w.latency.samples > 0; kept != slow {
			t.Errorf("slow: %v: the average is kept: %v", slow, kept)
		}
	}
}
