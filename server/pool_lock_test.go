package server

import (
	"runtime"
	"testing"
)

// TestARequestTakesItsPoolsLockThreeTimes: to pick, at the first event and at release,
// with limits, a context size and a classifier that ask for what the pool has learned.
func TestARequestTakesItsPoolsLockThreeTimes(t *testing.T) {
	r := limitedRig(t, "limits: { rpm: 1000, tpm: 1000000, concurrent: 8 }", fakeEngine(), bigEngine())
	pool := r.control.Snapshot().ByName["small"].Routing
	for _, body := range []string{
		`{"model":"cheap","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"cheap","max_tokens":5,"stream":true,"messages":[{"role":"user","content":"hi"}]}`,
		`{"model":"auto","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`,
	} {
		before := pool.Locked()
		if a := r.post("/v1/chat/completions", body, "Authorization", "Bearer key"); a.status != 200 {
			t.Fatalf("%s: %d %s", body, a.status, a.body)
		}
		for r.Inflight() > 0 {
			runtime.Gosched() // its release follows its answer
		}
		if n := pool.Locked() - before; n > 3 {
			t.Errorf("%s took the lock %d times", body, n)
		}
	}
}
