package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/server/admin"
)

// TestFailingWorkerLosesWeight: the worker's success ratio and effective weight show in the admin API, in the
// metrics and in an explanation. Its peer keeps its weight.
func TestFailingWorkerLosesWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(adminYAML(""), "tiers:", `policy: { name: weighted_round_robin }
retry: { attempts: 2, budget: 1 }
breaker: { consecutive_failures: 1000, min_requests: 1000 }
health_weight: { enabled: true }
tiers:`, 1)
		r := adminRigOf(newRig(t, yaml, poisoned(1, status(500), "poison")[0], fakeEngine()))
		for i := range 80 {
			text := "Hi"
			if i%4 < 2 {
				text = "poison"
			}
			if a := r.post("/v1/chat/completions", chatBody("small", fmt.Sprint(text, i), ""), "Authorization",
				"Bearer filed"); a.
				status != http.StatusOK {
				t.Fatalf("request %d: %d %s", i, a.status, a.body)
			}
		}
		type shown struct {
			Weight       int
			Effective    float64 `json:"effective_weight"`
			Ratio        float64 `json:"success_ratio"`
			Distribution struct{ Expected float64 }
		}
		w0 := decode[shown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers/w0", ""))
		w1 := decode[shown](t, r.ops(http.StatusOK, http.MethodGet, "/admin/workers/w1", ""))
		if w0.Weight != 1 || w0.Ratio > 0.8 || w0.Ratio < 0.2 || w0.Effective > 0.75 || w0.Effective < 0.25 {
			t.Errorf("the failing worker shows %+v", w0)
		}
		if w1.Weight != 1 || w1.Ratio != 1 || w1.Effective != 1 || w0.Distribution.Expected >= w1.Distribution.Expected {
			t.Errorf("its peer shows %+v, beside %+v", w1, w0)
		}
		metrics := r.ops(http.StatusOK, http.MethodGet, "/metrics", "").body
		for _, name := range []string{`tierway_worker_effective_weight{tier="small",worker="w0"} 0.`,
			`tierway_worker_success_ratio{tier="small",worker="w0"} 0.`, `tierway_worker_success_ratio{tier="small",worker="w1"} 1`} {
			if !strings.Contains(metrics, name) {
				t.Errorf("the metrics lack %s", name)
			}
		}
		e := decode[admin.RouteExplanation](t, r.ops(http.StatusOK, http.MethodPost, "/admin/route/explain",
			`{"request":{"model":"small","messages":[{"role":"user","content":"hi"}]}}`))
		if notes := strings.Join(e.Notes, "\n"); !strings.Contains(notes, "w0 counts with 0.") || !strings.Contains(notes,
			"of its recent requests succeeded (health_weight)") || strings.Contains(notes, "w1") {
			t.Errorf("the notes are %q", notes)
		}
		if c := e.Candidates; len(c) != 2 || c[0].Effective == 0 || c[1].Effective != 0 {
			t.Errorf("the candidates are %+v", c)
		}
	})
}
