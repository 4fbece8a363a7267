package workers

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoadIsReportedAfterEveryGoodCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := new(scriptedHealth)
		engine.set(pathHealth, 200, "")
		engine.set(pathModels, 200, `{"data":[{"id":"qwen","owned_by":"vllm"}]}`)
		engine.set(pathMetrics, 200,
			"vllm:num_requests_waiting 4\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5\n")
		w, fake, reported, _ := checkWorker(t, Health{Interval: time.Second}, engine)
		if s := w.Status(); s.Waiting != 4 || s.Running != 2 || s.KVUsage != 0.5 || s.LoadAt != time.Now() ||
			s.Engine != "vllm" || !slices.Equal(s.Models, []string{"qwen"}) {
			t.Errorf("%+v", s)
		}
		if n := len(reported.ups()); n != 2 {
			t.Errorf("%d reports of the first round; want one of up and one of the load", n)
		}
		advanceTime(time.Second) // an unchanged load is reported too: its time has changed
		if n := len(reported.ups()); n != 3 || reported.last().LoadAt != time.Now() {
			t.Errorf("%d reports after an unchanged load", n)
		}
		if fake.count(pathModels) != 1 {
			t.Errorf("/v1/models was requested %d times; want once", fake.count(pathModels))
		}
		engine.set(pathMetrics, 500, "")
		engine.set(pathHealth, 500, "")
		advanceTime(time.Second)
		if n := fake.count(pathMetrics); n != 2 {
			t.Errorf("/metrics was requested %d times; want no request after a failed check", n)
		}
		if s := w.Status(); s.Waiting != 4 || s.LoadAt != time.Now().Add(-time.Second) {
			t.Errorf("a failed check changed the load: %+v", s)
		}
	})
}

func TestMissingMetricsAreReadOncePerMinute(t *testing.T) {
	for _, c := range []struct {
		status   int
		body     string
		requests int
	}{
		{404, "", 3}, {501, "", 3}, {401, "", 3}, {200, "<html>", 3}, {503, "", 13}, {200, "vllm:x 1", 13},
	} {
		synctest.Test(t, func(t *testing.T) {
			engine := new(scriptedHealth)
			engine.set(pathHealth, 200, "")
			engine.set(pathMetrics, c.status, c.body)
			w, fake, _, _ := checkWorker(t, Health{Interval: 10 * time.Second}, engine)
			advanceTime(2*time.Minute + time.Second)
			if n := fake.count(pathMetrics); n != c.requests {
				t.Errorf("status %d %q: /metrics was requested %d times in two minutes; want %d", c.status, c.body, n, c.requests)
			}
			if s := w.Status(); !s.LoadAt.IsZero() || !s.Up {
				t.Errorf("%+v", s)
			}
		})
	}
}
