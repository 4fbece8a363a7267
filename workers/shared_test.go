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
	mu     sync.Mutex
	byName map[string]Status
}

func (r *lastReports) add(w *Worker, s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byName[w.Name()] = s
}

func (r *lastReports) last(name string) Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[name]
}

// runFleet runs a fleet until the test ends. It returns when the first checks have ended.
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

// sharedFleet runs a fleet of workers that one server backs.
func sharedFleet(t *testing.T, engine *scriptedHealth, specs ...Spec) (*Fleet, *fakeSender, *lastReports) {
	t.Helper()
	fake, reported := &fakeSender{answer: engine.answer}, &lastReports{byName: map[string]Status{}}
	fleet := NewFleet(Options{OnStatus: reported.add, Rand: noJitter, send: func(Spec) Sender { return fake }})
	fleet.Sync(specs)
	runFleet(t, fleet)
	return fleet, fake, reported
}

// atServer returns the spec of a worker at the server http://h:1.
func atServer(name, pool string, change ...func(*Spec)) Spec {
	s := Spec{Config: Config{Name: name, URL: "http://h:1", Health: &Health{Interval: time.Second, Timeout: time.Second}},
		Pool: pool, StaleAfter: 10 * time.Second}
	for _, f := range change {
		f(&s)
	}
	return s
}

// One server has entries in three tiers, with two spellings of its URL. All its workers have the same
// status.
func TestServerOfSeveralWorkersIsCheckedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set(pathMetrics, 200, "vllm:num_requests_waiting 4\nvllm:num_requests_running 2\n")
		fleet, fake, reported := sharedFleet(t, engine, atServer("s", "small"), atServer("m", "medium"),
			atServer("l", "large", func(s *Spec) { s.URL = "http://H:1/v1" }))
		advanceTime(10*time.Second + 500*time.Millisecond)
		if n := fake.count(pathHealth); n != 11 {
			t.Errorf("the server was checked %d times in ten seconds, want 11", n)
		}
		for _, name := range []string{"s", "m", "l"} {
			if s := fleet.Get(name).Status(); !s.Up || s.Waiting != 4 || s.Running != 2 || s.Passed != 11 {
				t.Errorf("%s: %+v", name, s)
			}
			if last := reported.last(name); last.Waiting != 4 {
				t.Errorf("%s was reported with %+v", name, last)
			}
		}
		engine.set(pathHealth, 500, "")
		fleet.Get("l").Suspect() // the failed request was sent to another worker of the server
		advanceTime(time.Second)
		if s := fleet.Get("s").Status(); s.ConsecutiveFailures == 0 {
			t.Errorf("no check after Suspect of another worker of the server: %+v", s)
		}
		advanceTime(5 * time.Second)
		for _, name := range []string{"s", "m", "l"} {
			if fleet.Get(name).Status().Up {
				t.Errorf("%s is up although its server is down", name)
			}
		}
	})
}

// The result may depend on the key, the path and the URL.
func TestWorkersWithDifferentChecksAreCheckedSeparately(t *testing.T) {
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

// The test removes the worker that sends the checks and adds another one.
func TestStatusOfAServerOutlivesAChangeOfItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, http.StatusServiceUnavailable, "")
		fleet, fake, _ := sharedFleet(t, engine, atServer("s", "small"), atServer("m", "medium"))
		advanceTime(1500 * time.Millisecond)
		since := fleet.Get("m").Status().Since
		fleet.Sync([]Spec{atServer("m", "medium"), atServer("new", "large")})
		synctest.Wait()
		for _, name := range []string{"m", "new"} {
			if s := fleet.Get(name).Status(); s.Up || s.Since != since {
				t.Errorf("%s: up %v since %v, want down since %v", name, s.Up, s.Since, since)
			}
		}
		before := fake.count(pathHealth)
		advanceTime(3 * time.Second)
		if n := fake.count(pathHealth) - before; n != 3 {
			t.Errorf("%d checks in three seconds, want 3", n)
		}
		fleet.Sync([]Spec{atServer("m", "medium")})
		engine.set(pathHealth, 200, "")
		advanceTime(3 * time.Second)
		if !fleet.Get("m").Status().Up {
			t.Error("the remaining worker is not up")
		}
	})
}
