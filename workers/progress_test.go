package workers

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stepMetrics is what vLLM reports of its work.
func stepMetrics(running, generated int, usage float64) string {
	return fmt.Sprintf("vllm:num_requests_running %d\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc %v\n"+
		"vllm:prompt_tokens_total 900\nvllm:generation_tokens_total %d\nvllm:iteration_tokens_total_count 70\n", running,
		usage, generated)
}

// sleepMetrics is what vLLM reports of its sleep.
func sleepMetrics(awake, offloaded, discarded int) string {
	return stepMetrics(0, 500, 0) + fmt.Sprintf("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d\n"+
		"vllm:engine_sleep_state{engine=\"0\",sleep_state=\"weights_offloaded\"} %d\n"+
		"vllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} %d\n", awake, offloaded, discarded)
}

// TestFrozenStepCountersWithRunningRequestsAreAStall reads metrics every second. A
// stall begins with the first of equal readings while requests run.
func TestFrozenStepCountersWithRunningRequestsAreAStall(t *testing.T) {
	for name, c := range map[string]struct {
		metrics []string // one for each reading; the last stays
		stalled int      // the reading with which the stall begins; -1: there is none
	}{
		"counters move":     {[]string{stepMetrics(3, 1, .5), stepMetrics(3, 2, .5), stepMetrics(3, 3, .5)}, 2},
		"frozen from start": {[]string{stepMetrics(3, 1, .5)}, 0},
		"nothing runs":      {[]string{stepMetrics(0, 1, .5)}, -1},
		"a long prefill": {[]string{stepMetrics(1, 1, .1), stepMetrics(1, 1, .2), stepMetrics(1, 1, .3),
			stepMetrics(1, 2, .3)}, 3},
		"no step counters": {[]string{"vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"}, -1},
		"another engine":   {[]string{strings.ReplaceAll(stepMetrics(3, 1, .5), "vllm:", "sglang:")}, -1},
		"it moves again": {[]string{stepMetrics(3, 1, .5), stepMetrics(3, 1, .5), stepMetrics(3, 2, .5),
			stepMetrics(0, 3, 0)}, -1},
		"a restarted engine": {[]string{stepMetrics(3, 9, .5), stepMetrics(3, 9, .5), stepMetrics(3, 1, .5)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				engine.set(pathMetrics, 200, c.metrics[0])
				began := time.Now()
				w, _, _, _ := checked(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
				for _, m := range c.metrics[1:] {
					engine.set(pathMetrics, 200, m)
					pass(time.Second)
				}
				pass(5 * time.Second)
				var want time.Time
				if c.stalled >= 0 {
					want = began.Add(time.Duration(c.stalled) * time.Second)
				}
				if got := w.Status().StalledSince; got.Sub(want).Abs() > 500*time.Millisecond {
					t.Errorf("stalled since %v, want %v (began %v)", got, want, began)
				}
			})
		})
	}
}

// TestSleepingAndPausedEnginesAreSuspended checks an engine that answers its
// health check in every state.
func TestSleepingAndPausedEnginesAreSuspended(t *testing.T) {
	for name, c := range map[string]struct {
		metrics string
		paused  int // status of GET /is_paused
		body    string
		want    Suspension
	}{
		"awake":                  {sleepMetrics(1, 0, 0), 200, `{"is_paused":false}`, ""},
		"weights offloaded":      {sleepMetrics(0, 1, 0), 404, "", Asleep},
		"weights discarded":      {sleepMetrics(0, 0, 1), 404, "", Asleep},
		"paused":                 {sleepMetrics(1, 0, 0), 200, `{"is_paused":true}`, Paused},
		"paused and asleep":      {sleepMetrics(0, 1, 0), 200, `{"is_paused":true}`, Asleep},
		"not told":               {stepMetrics(0, 1, 0), 404, "", ""},
		"an answer that is none": {stepMetrics(0, 1, 0), 200, `true`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				engine.set(pathMetrics, 200, c.metrics)
				engine.set(pathPaused, c.paused, c.body)
				w, fake, told, _ := checked(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
				pass(10 * time.Second)
				if s := w.Status(); !s.Up || s.Suspended != c.want {
					t.Errorf("up %v, suspended %q, want %q", s.Up, s.Suspended, c.want)
				}
				if told.last().Suspended != c.want {
					t.Errorf("the last report says %q, want %q", told.last().Suspended, c.want)
				}
				if n := fake.count(pathPaused); c.paused == 404 && n != 1 {
					t.Errorf("an engine without /is_paused was asked %d times in ten seconds, want once", n)
				}
				engine.set(pathMetrics, 200, sleepMetrics(1, 0, 0))
				engine.set(pathPaused, 200, `{"is_paused":false}`)
				pass(3 * time.Second)
				if s := w.Status().Suspended; s != "" {
					t.Errorf("suspended %q after it has come back", s)
				}
			})
		})
	}
}

// TestOnlyVLLMIsAskedForItsPause keeps requests for a path of vLLM from others.
func TestOnlyVLLMIsAskedForItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set(pathMetrics, 200, "sglang:num_running_reqs 1\n")
		_, fake, _, _ := checked(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
		pass(3 * time.Second)
		if n := fake.count(pathPaused); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}
