package workers

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lastReports keeps the last report of each worker.
type lastReports struct {
	mu sync.Mutex
	of map[string]Status
}

func (r *lastReports) add(w *Worker, s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[w.Name()] = s
}

func (r *lastReports) last(name string) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[name]
}

// runFleet runs a fleet until the test ends, and returns once its first checks are done.
func runFleet(t *testing.T, fleet *Fleet) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fleet.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	synctest.Wait()
}

// sharedFleet runs a fleet of workers at one server, one in each pool.
func sharedFleet(t *testing.T, engine *scriptedHealth, specs ...Spec) (*Fleet, *fakeSender, *lastReports) {
	t.Helper()
	fake, told := &fakeSender{answer: engine.answer}, &lastReports{of: map[string]Status{}}
	fleet := NewFleet(Options{OnStatus: told.add, Rand: middle, send: func(Spec) Sender { return fake }})
	fleet.Sync(specs)
	runFleet(t, fleet)
	return fleet, fake, told
}

// atServer is a worker of a pool at the server http://h:1.
func atServer(name, pool string, change ...func(*Spec)) Spec {
	s := Spec{Config: Config{Name: name, URL: "http://h:1", Health: &Health{Interval: time.Second, Timeout: time.Second}},
		Pool: pool, StaleAfter: 10 * time.Second}
	for _, f := range change {
		f(&s)
	}
	return s
}

// TestServerOfSeveralWorkersIsCheckedOnce counts the checks of one server that
// stands in three tiers, spelled in two ways. Each worker has the status.
func TestServerOfSeveralWorkersIsCheckedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set(pathMetrics, 200, "vllm:num_requests_waiting 4\nvllm:num_requests_running 2\n")
		fleet, fake, told := sharedFleet(t, engine, atServer("s", "small"), atServer("m", "medium"),
			atServer("l", "large", func(s *Spec) { s.URL = "http://H:1/v1" }))
		pass(10*time.Second + 500*time.Millisecond)
		if n := fake.count(pathHealth); n != 11 {
			t.Errorf("the server was checked %d times in ten seconds, want 11", n)
		}
		for _, name := range []string{"s", "m", "l"} {
			if s := fleet.Get(name).Status(); !s.Up || s.Waiting != 4 || s.Running != 2 || s.Passed != 11 {
				t.Errorf("%s: %+v", name, s)
			}
			if last := told.last(name); last.Waiting != 4 {
				t.Errorf("%s was reported with %+v", name, last)
			}
		}
		engine.set(pathHealth, 500, "")
		fleet.Get("l").Suspect() // the failed request was another tier's
		pass(time.Second)
		if s := fleet.Get("s").Status(); s.ConsecutiveFailures == 0 {
			t.Errorf("no check followed a suspicion of another worker: %+v", s)
		}
		pass(5 * time.Second)
		for _, name := range []string{"s", "m", "l"} {
			if fleet.Get(name).Status().Up {
				t.Errorf("%s is up at a server that is down", name)
			}
		}
	})
}

// TestWorkersWithOtherChecksAreCheckedAlone keeps apart what another key or another
// path may show.
func TestWorkersWithOtherChecksAreCheckedAlone(t *testing.T) {
	for what, change := range map[string]func(*Spec){
		"key":  func(s *Spec) { s.Key = "second" },
		"path": func(s *Spec) { s.Health.Path = "/ready" },
		"url":  func(s *Spec) { s.URL = "http://h:2" },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				engine.set("/ready", 200, "")
				_, fake, _ := sharedFleet(t, engine, atServer("s", "small"), atServer("m", "medium", change))
				if n := fake.count(pathHealth) + fake.count("/ready"); n != 2 {
					t.Errorf("%d checks of two workers, want 2", n)
				}
			})
		})
	}
}

// TestServerStaysKnownWhenItsWorkersChange removes the worker by which the server is
// asked, and adds another one.
func TestServerStaysKnownWhenItsWorkersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, http.StatusServiceUnavailable, "")
		fleet, fake, _ := sharedFleet(t, engine, atServer("s", "small"), atServer("m", "medium"))
		pass(1500 * time.Millisecond)
		since := fleet.Get("m").Status().Since
		fleet.Sync([]Spec{atServer("m", "medium"), atServer("new", "large")})
		synctest.Wait()
		for _, name := range []string{"m", "new"} {
			if s := fleet.Get(name).Status(); s.Up || s.Since != since {
				t.Errorf("%s: up %v since %v, want down since %v", name, s.Up, s.Since, since)
			}
		}
		before := fake.count(pathHealth)
		pass(3 * time.Second)
		if n := fake.count(pathHealth) - before; n != 3 {
			t.Errorf("%d checks in three seconds, want 3", n)
		}
		fleet.Sync([]Spec{atServer("m", "medium")})
		engine.set(pathHealth, 200, "")
		pass(3 * time.Second)
		if !fleet.Get("m").Status().Up {
			t.Error("the remaining worker is not found up")
		}
	})
}
