package server

import (
	"testing"
	"testing/synctest"

	"tierway/routing"
)

// TestARequestTakesItsPoolsLockThreeTimes at most: for the pick, the first event and the release. This
// includes limits, contexts, the classifier and tiers without workers. A pool that a request only
// leaves is not locked.
func TestARequestTakesItsPoolsLockThreeTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := limitedRig(t, "limits: { rpm: 1000, tpm: 1000000, concurrent: 8 }", fakeEngine(), bigEngine())
		small, large := r.control.Snapshot().ByName["small"], r.control.Snapshot().ByName["large"]
		check := func(body, tier, rule string) {
			t.Helper()
			atSmall, atLarge := small.Routing.LockCount(), large.Routing.LockCount()
			a := r.post("/v1/chat/completions", body, "Authorization", "Bearer key")
			if is, by := tierOf(a); a.status != 200 || is != tier || by != rule {
				t.Fatalf("%s: %d, sent to %s by %s, want %s by %s: %s", body, a.status, is, by, tier, rule, a.body)
			}
			waitUntil(t, "the release, which follows the answer", func() bool { return r.Inflight() == 0 })
			most := map[string]int64{tier: 3}
			n, m := small.Routing.LockCount()-atSmall, large.Routing.LockCount()-atLarge
			if n > most["small"] || m > most["large"] {
				t.Errorf("%s locked small %d times and large %d times", body, n, m)
			}
		}
		check(`{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "small", "alias")
		check(`{"model":"cheap","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, "small", "alias")
		check(`{"model":"auto","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "small", "default")
		check(`{"model":"cheap","max_tokens":10000,"messages":[{"role":"user","content":"hi"}]}`, "large", "context")
		check(`{"model":"auto","max_tokens":10000,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, "large",
			"context")
		down := small.Members["w0"]
		small.Routing.Observe(down.Name, down, routing.Status{})
		check(`{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "large", "unavailable")
		check(`{"model":"auto","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, "large",
			"unavailable")
	})
}
