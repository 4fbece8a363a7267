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

// loaded is an engine in memory that notes when its metrics are asked for, and
// may take its time to answer.
type loaded struct {
	scriptedHealth
	mu    sync.Mutex
	takes time.Duration
	under int // questions for metrics being answered
	most  int
	at    []time.Time
}

func (l *loaded) answer(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	if r.Path != pathMetrics {
		return l.scriptedHealth.answer(ctx, r)
	}
	l.mu.Lock()
	l.at = append(l.at, time.Now())
	l.under++
	l.most = max(l.most, l.under)
	takes := l.takes
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.under--
		l.mu.Unlock()
	}()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, &http1.SendError{Phase: http1.PhaseAwait, Err: ctx.Err()}
	}
	return l.scriptedHealth.answer(ctx, r)
}

// asked returns how often the metrics were asked for since the last call, and
// the longest time between two of those.
func (l *loaded) asked() (n int, longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 1; i < len(l.at); i++ {
		longest = max(longest, l.at[i].Sub(l.at[i-1]))
	}
	n, l.at = len(l.at), nil
	return n, longest
}

// looked runs one worker's checks within a synctest bubble, its load counting
// for so long.
func looked(t *testing.T, staleAfter time.Duration, health Health, engine *loaded) (*Worker, *Fleet, Spec) {
	t.Helper()
	engine.set(pathHealth, 200, "")
	if engine.body[pathMetrics] == "" {
		engine.set(pathMetrics, 200, "vllm:num_requests_running 0\n")
	}
	fleet := NewFleet(Options{Rand: middle, send: func(Spec) Sender { return &fakeSender{answer: engine.answer} }})
	spec := Spec{Config: Config{Name: "w", URL: "http://h:1", Health: &health}, Pool: "p", StaleAfter: staleAfter}
	fleet.Sync([]Spec{spec})
	runFleet(t, fleet)
	return fleet.Get("w"), fleet, spec
}

// use sends the worker a request at each of its times, and lets so long go by.
func use(t *testing.T, w *Worker, apart, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); pass(apart) {
		r, err := w.Send(t.Context(), &http1.Request{Method: "POST", Path: "/v1/chat/completions"})
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
}

func TestBusyWorkersLoadIsNeverStale(t *testing.T) {
	for staleAfter, want := range map[time.Duration]int{ // looks in a minute
		5 * time.Second: 60, time.Minute: 60, 1500 * time.Millisecond: 120, time.Millisecond: 600,
	} {
		for name, running := range map[string]string{"sent to": "0", "said so": "7"} {
			synctest.Test(t, func(t *testing.T) {
				engine := &loaded{}
				engine.set(pathMetrics, 200, "vllm:num_requests_running "+running+"\n")
				w, _, _ := looked(t, staleAfter, Health{Interval: 7 * time.Second}, engine)
				engine.asked()
				if name == "sent to" {
					use(t, w, 10*time.Millisecond, time.Minute)
				} else {
					pass(time.Minute)
				}
				n, longest := engine.asked()
				if n < want-10 || n > want+10 || longest > max(minLoadCheckInterval, staleAfter/2) {
					t.Errorf("stale after %v, %s: asked %d times, up to %v apart; want %d", staleAfter, name, n, longest, want)
				}
			})
		}
	}
}

func TestIdleWorkersLoadIsReadBeforeItIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loaded{}
		w, _, _ := looked(t, 5*time.Second, Health{Interval: 10 * time.Second}, engine)
		engine.asked()
		pass(time.Minute)
		if n, longest := engine.asked(); n > 24 || longest >= 5*time.Second {
			t.Errorf("asked %d times, up to %v apart", n, longest)
		}
		use(t, w, 10*time.Millisecond, 10*time.Millisecond)
		sent := time.Now()
		pass(2 * time.Second)
		if at := w.Status().LoadAt; at.Sub(sent) <= 0 || at.Sub(sent) > loadCheckInterval {
			t.Errorf("the load was told %v after a request", at.Sub(sent))
		}
	})
}

func TestLoadChecksOfAWorkerDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loaded{takes: 1700 * time.Millisecond}
		w, _, _ := looked(t, 5*time.Second, Health{Interval: 5 * time.Second}, engine)
		use(t, w, 10*time.Millisecond, 5*time.Minute)
		for range 100 {
			w.Suspect()
			pass(300 * time.Millisecond)
		}
		n, longest := engine.asked()
		if engine.most != 1 || n < 100 || longest > 5*time.Second {
			t.Errorf("asked %d times, up to %v apart, %d at once", n, longest, engine.most)
		}
	})
}

// Metrics that never come take nothing from the checks, and a suspicion waits
// for no more than the next check.
func TestLoadCheckDelaysNoHealthCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loaded{takes: time.Hour}
		w, _, _ := looked(t, 3*time.Second, Health{Interval: 10 * time.Second, Timeout: 4 * time.Second}, engine)
		use(t, w, 10*time.Millisecond, 95*time.Second)
		checks := engine.checks()
		for i := 1; i < len(checks); i++ {
			if apart := checks[i].Sub(checks[i-1]); apart != 10*time.Second {
				t.Errorf("check %d came %v after the last one", i, apart)
			}
		}
		if len(checks) != 10 {
			t.Errorf("%d checks", len(checks))
		}
	})
}

func TestEnginesWithoutMetricsHaveNoLoadChecks(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*loaded)
		most int // in a minute
	}{
		"down":               {func(l *loaded) { l.set(pathHealth, 500, "") }, 0},
		"without metrics":    {func(l *loaded) { l.set(pathMetrics, 404, "") }, 2},
		"not asked for that": {func(*loaded) {}, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			staleAfter, engine := time.Second, &loaded{}
			if name == "not asked for that" {
				staleAfter = 0
			}
			w, _, _ := looked(t, staleAfter, Health{Interval: 10 * time.Second}, engine)
			c.set(engine)
			pass(20 * time.Second)
			engine.asked()
			use(t, w, 10*time.Millisecond, time.Minute)
			if n, _ := engine.asked(); n > c.most {
				t.Errorf("%s: asked %d times", name, n)
			}
		})
	}
}

func TestStaleAfterMayChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := &loaded{}
		w, fleet, spec := looked(t, 0, Health{Interval: 10 * time.Second}, engine)
		spec.StaleAfter = 3 * time.Second
		if d := syncTo(fleet, []Spec{spec}); len(d.Kept) != 1 || fleet.Get("w") != w {
			t.Fatalf("the worker was replaced: %+v", d)
		}
		pass(10 * time.Second) // known from the next check on
		engine.asked()
		use(t, w, 10*time.Millisecond, 30*time.Second)
		if n, _ := engine.asked(); n < 25 {
			t.Errorf("asked %d times", n)
		}
	})
}

// The checks come at their times however often the worker is looked at.
func TestLoadAndHealthChecksKeepTheirTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		staleAfter := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "stale_after"))
		if got := loadInterval(staleAfter); got > loadCheckInterval || got < minLoadCheckInterval ||
			staleAfter >= loadChecksPerAge*minLoadCheckInterval && got > staleAfter/loadChecksPerAge {
			t.Fatalf("looked at every %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		engine := &loaded{}
		w, _, _ := looked(t, 2*time.Second, Health{Interval: 10 * time.Second}, engine)
		use(t, w, 10*time.Millisecond, 45*time.Second)
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
