package server

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/engines"
	"tierway/server/admin"
)

// sums returns the number of events that the rates of the last five minutes add up to, by series and labels.
func (r *adminRig) sums() map[string]float64 {
	r.t.Helper()
	v := decode[admin.MetricsView](r.t, r.ops(http.StatusOK, http.MethodGet, "/admin/metrics", ""))
	out := map[string]float64{}
	for _, s := range v.Series {
		key := strings.TrimSpace(s.Name + " " + s.Labels["tier"] + s.Labels["hook"] + " " + s.Labels["result"])
		for _, x := range s.Values {
			out[key] += float64(x) * float64(v.Step) // a gap is 0
		}
	}
	return out
}

// TestOverviewAndHistoryShowTheConfiguredParts: caches, hooks and LMCache.
func TestOverviewAndHistoryShowTheConfiguredParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := engines.NewLMCache(engines.LMCacheConfig{})
		guard, probe := newHookService(t, says(sayAllow)), newHookService(t, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(100 * time.Millisecond)
			w.WriteHeader(http.StatusInternalServerError)
		})
		yaml := fmt.Sprintf("admin: { keys: [ { name: ops, sha256: %s }, { name: eyes, sha256: %s, role: viewer } ] }\n",
			digestHex("ops"), digestHex("eyes"))
		yaml += fmt.Sprintf("hooks: [ %s, %s ]\n", guard.line("guard", ""), probe.line("probe", ", shadow: true"))
		yaml += strings.Replace(lmcacheConfig(t, l, lookupOptions), "model: fake-7b",
			"model: fake-7b\n    response_cache: { exact: {} }", 1)
		r := adminRigOf(newRig(t, yaml, lmcacheFleet(t, l)...))
		r.runControl()
		r.startSampler()
		if v := r.overview(); len(v.Hooks) != 2 || v.Hooks[0].Name != "guard" || v.Hooks[1].Breaker != "closed" ||
			v.Answers == nil || v.Answers.Store != "memory" || v.Answers.Entries != 0 || v.Answers.MaxBytes != 64<<20 {
			t.Errorf("before the first request: %+v, %+v", v.Hooks, v.Answers)
		}
		// The steps of the history are whole from here on. A sample is taken at each full second: the first calls of both
		// hooks are in the same one.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(10*time.Second + 200*time.Millisecond)))
		text := strings.Repeat("the same long words ", 300)
		for range 3 {
			r.post("/v1/chat/completions", chatBody("fake-7b", text, `,"temperature":0`))
		}
		for range 15 {
			r.post("/v1/chat/completions", chatBody("fake-7b", text, `,"temperature":1`))
		}
		time.Sleep(10 * time.Second)
		v := r.overview()
		if v.Hooks[0].Breaker != "closed" || v.Hooks[1].Breaker != "open" || v.Answers.Entries != 1 || v.Answers.Bytes == 0 {
			t.Errorf("after the requests: %+v, %+v", v.Hooks, v.Answers)
		}
		got := r.sums()
		for key, want := range map[string]float64{
			"response_cache  exact_hit": 2, "response_cache  semantic_hit": 0, "response_cache  miss": 1,
			"response_cache  bypass":      15,
			"lmcache_lookups small match": 15, "lmcache_lookups small miss": 1, "lmcache_lookups small failed": 0,
			"lmcache_lookups small suspended": 0,
		} {
			if n, ok := got[key]; !ok || math.Abs(n-want) > 0.01 {
				t.Errorf("%s is %g (%v), want %g", key, n, ok, want)
			}
		}
		// The series of a result begins with its first call, within a step.
		unit := got["hook_calls guard allowed"] / 18
		if errors, open := got["hook_calls probe error"], got["hook_calls probe open"]; unit <= 0 ||
			math.Abs(errors-5*unit) > 0.01 || math.Abs(open-13*unit) > 0.01 {
			t.Errorf("18 calls of guard are %g; 5 failed ones of probe are %g, and 13 that were not made %g", 18*unit,
				errors, open)
		}
		// Calls that were not made have no time.
		if p50, p95 := got["hook_p50 probe"]/5, got["hook_p95 probe"]/5; p50 <= 50 || p95 < p50 || p95 > 200 {
			t.Errorf("calls of 100 ms took %g ms, and %g ms in the 95th percentile", p50, p95)
		}
	})
}

// TestPartsThatAreNotConfiguredAreNotShown: without them, a gateway has no further state and series.
func TestPartsThatAreNotConfiguredAreNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.startSampler()
		time.Sleep(10 * time.Second)
		r.post("/v1/chat/completions", chatAbout(1), "Authorization", "Bearer filed")
		time.Sleep(10 * time.Second)
		body := r.callAdmin("eyes", http.MethodGet, "/admin/overview", "").body
		if !strings.Contains(body, `"hooks":[]`) || strings.Contains(body, "response_cache") ||
			strings.Contains(body, "lmcache") {
			t.Errorf("the overview is %s", body)
		}
		for key := range r.sums() {
			if strings.HasPrefix(key, "response_cache") || strings.HasPrefix(key, "hook") || strings.HasPrefix(key, "lmcache") {
				t.Errorf("the history has %s", key)
			}
		}
	})
}
