package workers

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stepMetrics returns metrics of a vLLM engine at work.
func stepMetrics(running, generated int, usage float64) string {
	return fmt.Sprintf("vllm:num_requests_running %d\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc %v\n"+
		"vllm:prompt_tokens_total 900\nvllm:generation_tokens_total %d\nvllm:iteration_tokens_total_count 70\n", running,
		usage, generated)
}

// sleepMetrics returns metrics of a vLLM engine in one of its sleep states.
func sleepMetrics(awake, offloaded, discarded int) string {
	return stepMetrics(0, 500, 0) + fmt.Sprintf("vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d\n"+
		"vllm:engine_sleep_state{engine=\"0\",sleep_state=\"weights_offloaded\"} %d\n"+
		"vllm:engine_sleep_state{engine=\"0\",sleep_state=\"discard_all\"} %d\n", awake, offloaded, discarded)
}

// The metrics are read every second. A stall begins with the first of several equal readings while
// requests run.
func TestFrozenStepCountersWithRunningRequestsAreAStall(t *testing.T) {
	for name, c := range map[string]struct {
		metrics []string // one for each reading; the last stays
		stalled int      // the reading with which the stall begins; -1: there is none
	}{
		"counters move":     {[]string{stepMetrics(3, 1, .5), stepMetrics(3, 2, .5), stepMetrics(3, 3, .5)}, 2},
		"frozen from start": {[]string{stepMetrics(3, 1, .5)}, 0},
		"nothing runs":      {[]string{stepMetrics(0, 1, .5)}, -1},
		"long prefill": {[]string{stepMetrics(1, 1, .1), stepMetrics(1, 1, .2), stepMetrics(1, 1, .3),
			stepMetrics(1, 2, .3)}, 3},
		"no step counters": {[]string{"vllm:num_requests_running 3\nvllm:num_requests_waiting 0\n"}, -1},
		"another engine":   {[]string{strings.ReplaceAll(stepMetrics(3, 1, .5), "vllm:", "sglang:")}, -1},
		"counters move again": {[]string{stepMetrics(3, 1, .5), stepMetrics(3, 1, .5), stepMetrics(3, 2, .5),
			stepMetrics(0, 3, 0)}, -1},
		"restarted engine": {[]string{stepMetrics(3, 9, .5), stepMetrics(3, 9, .5), stepMetrics(3, 1, .5)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				engine.set(pathMetrics, 200, c.metrics[0])
				start := time.Now()
				w, _, _, _ := checkWorker(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
				for _, m := range c.metrics[1:] {
					engine.set(pathMetrics, 200, m)
					advanceTime(time.Second)
				}
				advanceTime(5 * time.Second)
				var want time.Time
				if c.stalled >= 0 {
					want = start.Add(time.Duration(c.stalled) * time.Second)
				}
				if got := w.Status().StalledSince; got.Sub(want).Abs() > 500*time.Millisecond {
					t.Errorf("stalled since %v, want %v (start %v)", got, want, start)
				}
			})
		})
	}
}

// The engine passes its health checks in every state.
func TestSleepingAndPausedEnginesAreSuspended(t *testing.T) {
	for name, c := range map[string]struct {
		metrics string
		paused  int // status of GET /is_paused
		body    string
		want    Suspension
	}{
		"awake":                {sleepMetrics(1, 0, 0), 200, `{"is_paused":false}`, ""},
		"weights offloaded":    {sleepMetrics(0, 1, 0), 404, "", Asleep},
		"weights discarded":    {sleepMetrics(0, 0, 1), 404, "", Asleep},
		"paused":               {sleepMetrics(1, 0, 0), 200, `{"is_paused":true}`, Paused},
		"paused and asleep":    {sleepMetrics(0, 1, 0), 200, `{"is_paused":true}`, Asleep},
		"no sleep state":       {stepMetrics(0, 1, 0), 404, "", ""},
		"invalid pause answer": {stepMetrics(0, 1, 0), 200, `true`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engine := new(scriptedHealth)
				engine.set(pathHealth, 200, "")
				engine.set(pathMetrics, 200, c.metrics)
				engine.set(pathPaused, c.paused, c.body)
				w, fake, reported, _ := checkWorker(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
				advanceTime(10 * time.Second)
				if s := w.Status(); !s.Up || s.Suspended != c.want {
					t.Errorf("up %v, suspended %q, want %q", s.Up, s.Suspended, c.want)
				}
				if reported.last().Suspended != c.want {
					t.Errorf("the last report says %q, want %q", reported.last().Suspended, c.want)
				}
				if n := fake.count(pathPaused); c.paused == 404 && n != 1 {
					t.Errorf("an engine without /is_paused received %d requests for it in ten seconds, want one", n)
				}
				engine.set(pathMetrics, 200, sleepMetrics(1, 0, 0))
				engine.set(pathPaused, 200, `{"is_paused":false}`)
				advanceTime(3 * time.Second)
				if s := w.Status().Suspended; s != "" {
					t.Errorf("suspended %q after the engine runs again", s)
				}
			})
		})
	}
}

func TestOnlyVLLMReceivesPauseRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set(pathMetrics, 200, "sglang:num_running_reqs 1\n")
		_, fake, _, _ := checkWorker(t, Health{Interval: time.Second, Timeout: time.Second}, engine)
		advanceTime(3 * time.Second)
		if n := fake.count(pathPaused); n != 0 {
			t.Errorf("%d requests for /is_paused", n)
		}
	})
}
