package server

import (
	"runtime"
	"testing"

	"tierway/routing"
)

// TestARequestTakesItsPoolsLockThreeTimes: to pick, at the first event and at release,
// with limits, and with contexts, a classifier and tiers without a worker that ask for what
// the pools have learned. The lock of a pool that a request is moved away from is not taken.
func TestARequestTakesItsPoolsLockThreeTimes(t *testing.T) {
	r := limitedRig(t, "limits: { rpm: 1000, tpm: 1000000, concurrent: 8 }", fakeEngine(), bigEngine())
	small, large := r.control.Snapshot().ByName["small"], r.control.Snapshot().ByName["large"]
	asks := func(body, tier, rule string) {
		t.Helper()
		atSmall, atLarge := small.Routing.LockCount(), large.Routing.LockCount()
		a := r.post("/v1/chat/completions", body, "Authorization", "Bearer key")
		if is, by := tierOf(a); a.status != 200 || is != tier || by != rule {
			t.Fatalf("%s: %d, sent to %s by %s, want %s by %s: %s", body, a.status, is, by, tier, rule, a.body)
		}
		for r.Inflight() > 0 {
			runtime.Gosched() // its release follows its answer
		}
		most := map[string]int64{tier: 3}
		n, m := small.Routing.LockCount()-atSmall, large.Routing.LockCount()-atLarge
		if n > most["small"] || m > most["large"] {
			t.Errorf("%s took the lock of small %d times, that of large %d times", body, n, m)
		}
	}
	asks(`{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "small", "alias")
	asks(`{"model":"cheap","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, "small", "alias")
	asks(`{"model":"auto","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "small", "default")
	asks(`{"model":"cheap","max_tokens":10000,"messages":[{"role":"user","content":"hi"}]}`, "large", "context")
	asks(`{"model":"auto","max_tokens":10000,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, "large",
		"context")
	down := small.Members["w0"]
	small.Routing.Observe(down.Name, down, routing.Status{})
	asks(`{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, "large", "unavailable")
	asks(`{"model":"auto","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, "large",
		"unavailable")
}
