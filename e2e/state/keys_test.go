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

// TestSmokeARevokedKeyIsRefusedEverywhere revokes a key through one gateway. The other gateway, with the same Redis,
// rejects it too. A stream in progress finishes.
//
// AU-07.
func TestSmokeARevokedKeyIsRefusedEverywhere(t *testing.T) {
	revokeKey(t, backends.Redis(t).URL)
}

// TestARevokedKeyIsRefusedEverywhereWithoutRedis: the other gateway only shares the database.
//
// AU-07.
func TestARevokedKeyIsRefusedEverywhereWithoutRedis(t *testing.T) {
	revokeKey(t, "")
}

// revokeKey checks the revocation of a key with two gateways, which share a database and a Redis, if there is one.
// Redis publishes the change; without it, a gateway reads the database once per control.PollInterval.
func revokeKey(t *testing.T, redis string) {
	t.Helper()
	r := newRig(t, 1, engines.Config{})
	sql := backends.Database(t)
	key := newKey(t, sql, "fox")
	own := rig.Settings{"store": stores(sql, redis)}
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
	stream := r.Open(r.RequestTo(t.Context(), http.MethodPost, other.BaseURL+chatPath,
		rig.Chat("sim", rig.PauseMark, `"stream":true`), "Authorization", "Bearer "+key))
	stream.ReadUntil(`"content":`)

	id := queryValue[string](t, sql, "SELECT id FROM keys WHERE tenant = 'fox'")
	if status, answer := one.Admin("POST", "/admin/keys/"+id+"/revoke", "{}", rig.AdminKey); status != http.StatusOK {
		t.Fatalf("revoking the key: %d %s", status, answer)
	}
	if status := ask(one); status != http.StatusUnauthorized {
		t.Errorf("on the gateway that revoked it, the key gets %d", status)
	}
	took := rig.Within(t, rig.Patience, func() error {
		if status := ask(other); status != http.StatusUnauthorized {
			return errorf("on the other gateway, a revoked key gets %d", status)
		}
		return nil
	})
	r.ResumePaused()
	rest, err := stream.ReadRest()
	if text, ended := parseStream(rest); err != nil || text != streamText || !ended {
		t.Errorf("the stream in progress ended with %v: %s", err, rest)
	}
	t.Logf("the other gateway rejected the key after %v", took.Round(time.Millisecond))
}
