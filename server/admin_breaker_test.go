package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestWorkersShowTheirBreakerAndLearnedState: the failing worker shows state and cause, its peer shows
// what was learned.
func TestWorkersShowTheirBreakerAndLearnedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		yaml := strings.NewReplacer("health:",
			"policy: { name: round_robin }\nretry: { attempts: 2, budget: 1 }\nhealth:").Replace(adminYAML(""))
		r := adminRigOf(newRig(t, yaml, sick, fakeEngine()))
		for range 12 {
			got := r.post("/v1/chat/completions", chatBody("fake-7b", strings.Repeat("some words that an engine counts ", 20),
				""),
				"Authorization", "Bearer filed")
			if got.status != http.StatusOK {
				t.Fatalf("the status is %d: %s", got.status, got.body)
			}
		}
		got := decode[workersShown](t, r.callAdmin("eyes", http.MethodGet, "/admin/workers", ""))
		if len(got.Workers) != 2 {
			t.Fatalf("%+v", got)
		}
		if w := got.Workers[0]; w.State != "open" || w.Breaker.Cause != "consecutive_failures" || w.Breaker.Until == "" ||
			w.Totals.Requests.Error == 0 {
			t.Errorf("the sick worker is shown as %+v", w)
		}
		if w := got.Workers[1]; w.State != "up" || w.Breaker.State != "closed" || w.Breaker.Requests == 0 ||
			w.Learned.ID != "w1" {
			t.Errorf("its peer is shown as %+v", w)
		}
		if p := got.Pools["small"]; p.Policy != "round_robin" || p.Scale.Count == 0 || p.Output.Count == 0 {
			t.Errorf("the pool is shown as %+v", p)
		}
	})
}
