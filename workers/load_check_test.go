package workers

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tierway/http1"
)

// loadEngine is an engine in memory that records the requests for its metrics and answers them after a
// delay.
type loadEngine struct {
	scriptedHealth
	mu        sync.Mutex
	delay     time.Duration
	active    int // requests for metrics in flight
	maxActive int
	times     []time.Time
}

func (l *loadEngine) answer(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	if r.Path != pathMetrics {
		return l.scriptedHealth.answer(ctx, r)
	}
	l.mu.Lock()
	l.times = append(l.times, time.Now())
	l.active++
	l.maxActive = max(l.maxActive, l.active)
	takes := l.delay
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.active--
		l.mu.Unlock()
	}()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, &http1.SendError{Phase: http1.PhaseAwait, Err: ctx.Err()}
	}
	return l.scriptedHealth.answer(ctx, r)
}

// metricsRequests returns the number of requests for metrics since the last call, and the longest time
// between two of them.
func (l *loadEngine) metricsRequests() (n int, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 1; i < len(l.times); i++ {
		longest = max(longest, l.times[i].Sub(l.times[i-1]))
	}
	n, l.times = len(l.times), nil
	return n, longest
}

// runLoadChecks runs the checks of one worker with a stale_after within a synctest bubble.
func runLoadChecks(t *testing.T, staleAfter time.Duration, health Health, engine *loadEngine) (*Worker, *Fleet, Spec) {
	t.Helper()
	engine.set(pathHealth, 200, "")
	if engine.body[pathMetrics] == "" {
		engine.set(pathMetrics, 200, "vllm:num_requests_running 0\n")
	}
	fleet := NewFleet(Options{Rand: noJitter, send: func(Spec) Sender { return &fakeSender{answer: engine.answer} }})
	spec := Spec{Config: Config{Name: "w", URL: "http://h:1", Health: &health}, Pool: "p", StaleAfter: staleAfter}
	fleet.Sync([]Spec{spec})
	runFleet(t, fleet)
	return fleet.Get("w"), fleet, spec
}

// sendRequests sends requests to the worker for d, one per interval.
func sendRequests(t *testing.T, w *Worker, interval, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); advanceTime(interval) {
		r, err := w.Send(t.Context(), &http1.Request{Method: "POST", Path: "/v1/chat/completions"})
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
}

func TestBusyWorkersLoadIsNeverStale(t *testing.T) {
	for staleAfter, want := range map[time.Duration]int{ // load checks per minute
		5 * time.Second: 60, time.Minute: 60, 1500 * time.Millisecond: 120, time.Millisecond: 600,
	} {
		for name, running := range map[string]string{"requests sent": "0", "work reported": "7"} {
			synctest.Test(t, func(t *testing.T) {
				engine := &loadEngine{}
				engine.set(pathMetrics, 200, "vllm:num_requests_running "+running+"\n")
				w, _, _ := runLoadChecks(t, staleAfter, Health{Interval: 7 * time.Second}, engine)
				engine.metricsRequests()
				if name == "requests sent" {
					sendRequests(t, w, 10*time.Millisecond, time.Minute)
				} else {
					advanceTime(time.Minute)
				}
				n, longest := engine.metricsRequests()
				if n < want-10 || n > want+10 || longest > max(minLoadCheckInterval, staleAfter/2) {
					t.Errorf("stale after %v, %s: %d load checks, up to %v apart; want %d", staleAfter, name, n, longest, want)
				}
			})
		}
	}
}

func TestIdleWorkersLoadIsReadBeforeItIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loadEngine{}
		w, _, _ := runLoadChecks(t, 5*time.Second, Health{Interval: 10 * time.Second}, engine)
		engine.metricsRequests()
		advanceTime(time.Minute)
		if n, longest := engine.metricsRequests(); n > 24 || longest >= 5*time.Second {
			t.Errorf("%d load checks, up to %v apart", n, longest)
		}
		sendRequests(t, w, 10*time.Millisecond, 10*time.Millisecond)
		sent := time.Now()
		advanceTime(2 * time.Second)
		if at := w.Status().LoadAt; at.Sub(sent) <= 0 || at.Sub(sent) > loadCheckInterval {
			t.Errorf("the load was read %v after a request", at.Sub(sent))
		}
	})
}

func TestLoadChecksOfAWorkerDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loadEngine{delay: 1700 * time.Millisecond}
		w, _, _ := runLoadChecks(t, 5*time.Second, Health{Interval: 5 * time.Second}, engine)
		sendRequests(t, w, 10*time.Millisecond, 5*time.Minute)
		for range 100 {
			w.Suspect()
			advanceTime(300 * time.Millisecond)
		}
		n, longest := engine.metricsRequests()
		if engine.maxActive != 1 || n < 100 || longest > 5*time.Second {
			t.Errorf("%d load checks, up to %v apart, %d at once", n, longest, engine.maxActive)
		}
	})
}

// Health checks keep their interval although GET /metrics never returns.
func TestLoadCheckDelaysNoHealthCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loadEngine{delay: time.Hour}
		w, _, _ := runLoadChecks(t, 3*time.Second, Health{Interval: 10 * time.Second, Timeout: 4 * time.Second}, engine)
		sendRequests(t, w, 10*time.Millisecond, 95*time.Second)
		checks := engine.checks()
		for i := 1; i < len(checks); i++ {
			if apart := checks[i].Sub(checks[i-1]); apart != 10*time.Second {
				t.Errorf("check %d began %v after the previous one", i, apart)
			}
		}
		if len(checks) != 10 {
			t.Errorf("%d checks", len(checks))
		}
	})
}

func TestEnginesWithoutMetricsHaveNoLoadChecks(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*loadEngine)
		limit int // load checks per minute
	}{
		"down":            {func(l *loadEngine) { l.set(pathHealth, 500, "") }, 0},
		"without metrics": {func(l *loadEngine) { l.set(pathMetrics, 404, "") }, 2},
		"no stale_after":  {func(*loadEngine) {}, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			staleAfter, engine := time.Second, &loadEngine{}
			if name == "no stale_after" {
				staleAfter = 0
			}
			w, _, _ := runLoadChecks(t, staleAfter, Health{Interval: 10 * time.Second}, engine)
			c.set(engine)
			advanceTime(20 * time.Second)
			engine.metricsRequests()
			sendRequests(t, w, 10*time.Millisecond, time.Minute)
			if n, _ := engine.metricsRequests(); n > c.limit {
				t.Errorf("%s: %d load checks", name, n)
			}
		})
	}
}

func TestChangedStaleAfterApplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loadEngine{}
		w, fleet, spec := runLoadChecks(t, 0, Health{Interval: 10 * time.Second}, engine)
		spec.StaleAfter = 3 * time.Second
		if d := syncAndCompare(fleet, []Spec{spec}); len(d.Kept) != 1 || fleet.Get("w") != w {
			t.Fatalf("the worker was replaced: %+v", d)
		}
		advanceTime(10 * time.Second) // applies from the next check
		engine.metricsRequests()
		sendRequests(t, w, 10*time.Millisecond, 30*time.Second)
		if n, _ := engine.metricsRequests(); n < 25 {
			t.Errorf("%d load checks", n)
		}
	})
}

// Frequent load checks do not move the health checks.
func TestLoadAndHealthChecksKeepTheirTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		staleAfter := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "stale_after"))
		if got := loadInterval(staleAfter); got > loadCheckInterval || got < minLoadCheckInterval ||
			staleAfter >= loadChecksPerAge*minLoadCheckInterval && got > staleAfter/loadChecksPerAge {
			t.Fatalf("an interval of %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		engine := &loadEngine{}
		w, _, _ := runLoadChecks(t, 2*time.Second, Health{Interval: 10 * time.Second}, engine)
		sendRequests(t, w, 10*time.Millisecond, 45*time.Second)
		var apart []time.Duration
		checks := engine.checks()
		for i := 1; i < len(checks); i++ {
			apart = append(apart, checks[i].Sub(checks[i-1]))
		}
		if want := slices.Repeat([]time.Duration{10 * time.Second}, 4); !slices.Equal(apart, want) {
			t.Errorf("checks %v apart", apart)
		}
	})
}
