package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/memnet/memredis"
)

// TestLimitsWithoutRedis: each of four gateways enforces a quarter of a limit. The requests of a tenant with
// fail_closed get 503 until Redis is back.
//
// RS-04.
func TestLimitsWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := memredis.Start(t, networkOf(t).Network)
		yaml := fmt.Sprintf(`
gateways: 4
store: { sql: "", redis: %q }
health: { path: "off" }
auth: { keys: [ { name: app, sha256: %s, limits: { rpm: 4, burst: 40 } },
  { name: strict, sha256: %s, limits: { rpm: 240 }, fail_closed: true } ] }
`, redis.URL, digestHex("an-app"), digestHex("a-strict-app"))
		r := newRig(t, yaml+"tiers: [ { name: small, model: fake-7b, workers: [ %s ] } ]\n", fakeEngine())
		ctx, stop := context.WithCancel(t.Context())
		var probes sync.WaitGroup
		probes.Go(func() { r.control.Stores.Redis.Run(ctx) })
		defer time.Sleep(time.Second) // go-redis ends its goroutines a moment later
		defer probes.Wait()
		defer stop()
		ask := func(key string) httpAnswer {
			return r.post("/v1/chat/completions", chatBody("small", "hi", ""), "Authorization", "Bearer "+key)
		}
		check := func(when string, want int) {
			t.Helper()
			got := ask("a-strict-app")
			refused := strings.Contains(got.body, "ratelimit_unavailable") && got.header.Get("Retry-After") != ""
			if got.status != want || refused != (want == http.StatusServiceUnavailable) {
				t.Errorf("%s the strict tenant gets %d: %s", when, got.status, got.body)
			}
		}
		check("with Redis", http.StatusOK)
		redis.Kill()
		for range 20 {
			check("without Redis", http.StatusServiceUnavailable)
		}
		admitted := 0
		for range 30 {
			if ask("an-app").status == http.StatusOK {
				admitted++
			}
		}
		if admitted != 10 {
			t.Errorf("without Redis one gateway of four admits %d of a burst of 40, want 10", admitted)
		}
		redis.Restart(t)
		waitUntil(t, "Redis to be used", func() bool { return r.control.Stores.Redis.Up() })
		check("with Redis again", http.StatusOK)
	})
}
