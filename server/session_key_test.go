package server

import (
	"fmt"
	"testing"
	"testing/synctest"

	"tierway/routing"
)

// TestSessionKeysOfTenantsDiffer: the same session of two tenants has two keys, the same one of a tenant has one.
// The header comes before the body.
func TestSessionKeysOfTenantsDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fmt.Sprintf(`
auth: { keys: [ { name: acme, sha256: %s }, { name: beta, sha256: %s } ] }
health: { path: "off" }
policy: { name: rendezvous_hash }
tiers:
  - { name: small, model: fake-7b, workers: [ %%s ] }
`, digestHex("acme"), digestHex("beta")), fakeEngine(), fakeEngine())
		keyOf := func(tenant, more string, headers ...string) routing.Hash {
			t.Helper()
			headers = append(headers, "Authorization", "Bearer "+tenant)
			got := r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"hi"}]`+more+`}`, headers...)
			kept, known := r.recorded().Get(got.header.Get("X-Request-Id"))
			if !known || kept.Decision.Attempts[0].Choice.KeyOf != routing.KeySession {
				t.Fatalf("%d %s: %+v", got.status, got.body, kept.Decision)
			}
			return kept.Decision.Attempts[0].Choice.Key
		}
		acme := keyOf("acme", "", "X-Session-ID", "s1")
		if keyOf("acme", "", "X-Session-ID", "s1") != acme || keyOf("acme", `,"user":"u"`, "X-Session-ID", "s1") != acme {
			t.Error("one session has several keys")
		}
		if keyOf("beta", "", "X-Session-ID", "s1") == acme || keyOf("acme", "", "X-Session-ID", "s2") == acme {
			t.Error("other tenants or sessions have the same key")
		}
		both := keyOf("acme", `,"session_id":"s1","session_params":{"session_id":"s3"}`)
		if both == acme || both != keyOf("acme", `,"session_params":{"session_id":"s3"}`) {
			t.Error("session_params does not come before session_id")
		}
	})
}
