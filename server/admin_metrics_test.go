package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/server/admin"
)

// startSampler samples the gateway until the test ends.
func (r *adminRig) startSampler() {
	r.t.Helper()
	done := make(chan struct{})
	ctx, stop := context.WithCancel(r.t.Context())
	go func() {
		defer close(done)
		r.plane.Run(ctx)
	}()
	r.t.Cleanup(func() { stop(); <-done })
}

// TestHistoryShowsTheTrafficOfTheGateway without Prometheus.
func TestHistoryShowsTheTrafficOfTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newAdminRig(t)
		r.startSampler()
		shown := func(name string, labels map[string]string) float64 {
			var v admin.MetricsView
			if err := json.Unmarshal([]byte(r.ops(http.StatusOK, "GET", "/admin/metrics?range=5m", "").body), &v); err != nil {
				t.Fatal(err)
			}
			if v.Step != 5 || len(v.Times) != 59 {
				t.Fatalf("%d times of %d s", len(v.Times), v.Step)
			}
			highest := -1.0
			for _, s := range v.Series {
				same := s.Name == name
				for k, value := range labels {
					same = same && s.Labels[k] == value
				}
				if same {
					for _, x := range s.Values {
						highest = max(highest, float64(x)) // null is 0
					}
				}
			}
			return highest
		}
		waitUntil(t, "first sample", func() bool { return shown("memory", nil) > 0 })
		waitUntil(t, "requests in the history", func() bool {
			r.post("/v1/chat/completions", chatAbout(1), "Authorization", "Bearer filed")
			return shown("requests", map[string]string{"tier": "small", "result": "ok"}) > 0
		})
		waitUntil(t, "tokens in the history", func() bool { return shown("tokens", map[string]string{"tier": "small"}) > 0 })
		if got := shown("breaker", map[string]string{"worker": "w0"}); got != 0 {
			t.Errorf("the closed breaker of w0 is %g", got)
		}
		if got := r.callAdmin("ops", "GET", "/admin/metrics?range=2h", ""); got.status != http.StatusUnprocessableEntity {
			t.Errorf("an unknown range is %d", got.status)
		}
		if body := r.ops(http.StatusOK, "GET", "/admin/metrics?name=memory,cpu", "").body; strings.Contains(body, `"requests"`) ||
			!strings.Contains(body, `"memory"`) {
			t.Errorf("two series by name are %s", body)
		}
		for _, period := range []string{"1h", "24h"} {
			r.ops(http.StatusOK, "GET", "/admin/metrics?range="+period, "")
		}
	})
}
