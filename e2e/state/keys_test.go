package state

import (
	"context"
	"net/http"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestARevokedKeyIsRefusedEverywhere revokes a key through one gateway. The other gateway rejects it
// within 2 s if both share a Redis, and within 30 s if they only share the database. A stream in
// progress finishes.
//
// AU-07.
func TestARevokedKeyIsRefusedEverywhere(t *testing.T) {
	t.Setenv("TIERWAY_ADMIN_KEY", rig.AdminKey)
	for _, c := range []struct {
		name  string
		redis bool
		most  time.Duration
	}{{"with Redis", true, 2 * time.Second}, {"without Redis", false, 30 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, engines.Config{PerToken: 50 * time.Millisecond})
			sql, url := backends.Database(t), ""
			if c.redis {
				url = backends.Redis(t).URL
			}
			key := newKey(t, sql, "fox")
			own := rig.Settings{"store": stores(sql, url)}
			one, other := r.serve(own), r.serve(own)
			ask := func(p *gateway.Process) int {
				t.Helper()
				got, err := r.post(context.Background(), p.BaseURL, chatPath, key, chatBody)
				if err != nil {
					t.Fatal(err)
				}
				return got.Status
			}
			if a, b := ask(one), ask(other); a != http.StatusOK || b != http.StatusOK {
				t.Fatalf("a new key gets %d and %d", a, b)
			}
			l := r.newLoad(key, other.BaseURL)
			l.work.Go(l.readStream)
			waitForMetric(t, other, "tierway_inflight", 1, rig.Patience)

			id := queryValue[string](t, sql, "SELECT id FROM keys WHERE tenant = 'fox'")
			gateway.RunCommand(t, "keys", "revoke", id, "--api", one.AdminURL, "--yes")
			at := time.Now()
			if status := ask(one); status != http.StatusUnauthorized {
				t.Errorf("on the gateway that revoked it, the key gets %d", status)
			}
			rig.Within(t, rig.Patience, func() error {
				if status := ask(other); status != http.StatusUnauthorized {
					return errorf("on the other gateway, a revoked key gets %d", status)
				}
				return nil
			})
			took := time.Since(at)
			if took > c.most {
				t.Errorf("the other gateway accepted the key for another %v", took)
			}
			l.end()
			if l.streams != 1 {
				t.Error("the stream in progress did not finish")
			}
			t.Logf("%s: the other gateway rejected the key after %v", c.name, took.Round(time.Millisecond))
		})
	}
}
