package server

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// eager is one tier of several workers whose breakers open late enough to
// stay out of these tests.
const eager = `
auth: { required: false }
health: { path: "off" }
breaker: { consecutive_failures: 1000, min_requests: 1000 }
policy: { name: round_robin }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
`

func TestRetryBudgetIsFullAtStartAndGrowsByShareAndTrickle(t *testing.T) {
	now := time.Unix(0, 0)
	b := newRetryBudget()
	b.configure(0.2)
	takes := func() (n int) {
		for b.take(now) {
			n++
		}
		return n
	}
	if n := takes(); n != retryCap {
		t.Errorf("at the start %d retries, want %d", n, retryCap)
	}
	for range 100 {
		b.request()
	}
	if n := takes(); n < 19 || n > 20 {
		t.Errorf("after 100 requests %d retries, want 20", n)
	}
	now = now.Add(2 * time.Second)
	if n := takes(); n != 2*retryTrickle {
		t.Errorf("after two quiet seconds %d retries, want %d", n, 2*retryTrickle)
	}
	now = now.Add(-time.Hour)
	if n := takes(); n != 0 {
		t.Errorf("a clock that steps back gave %d retries", n)
	}
	now = now.Add(1000 * time.Hour)
	if n := takes(); n != retryCap {
		t.Errorf("a long quiet time saved up %d retries, want %d", n, retryCap)
	}
}

// TestFreshGatewayRetriesWhileHalfOfItsWorkersCutConnections sends sequential
// requests to a gateway that has had no traffic: every second one needs a retry.
func TestFreshGatewayRetriesWhileHalfOfItsWorkersCutConnections(t *testing.T) {
	cuts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	r := newRig(t, eager, cuts, fakeEngine())
	for i := range 20 {
		if got := r.post("/v1/chat/completions", hello); got.status != http.StatusOK {
			t.Fatalf("request %d: status %d: %s", i+1, got.status, got.body)
		}
	}
}

// TestSpentRetryBudgetTellsClientsNotToRetry keeps the SDKs from multiplying
// the attempts that the budget has just bounded.
func TestSpentRetryBudgetTellsClientsNotToRetry(t *testing.T) {
	var attempts atomic.Int64
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	r := newRig(t, eager, fails, fails)
	for _, tokens := range []struct {
		left float64
		want int64
	}{{1, 2}, {-1000, 1}} {
		r.budget.mu.Lock()
		r.budget.tokens = tokens.left
		r.budget.mu.Unlock()
		attempts.Store(0)
		got := r.post("/v1/chat/completions", hello)
		if n := attempts.Load(); n != tokens.want {
			t.Errorf("with %v tokens left: %d attempts, want %d", tokens.left, n, tokens.want)
		}
		if v := got.header.Get("X-Should-Retry"); got.status != http.StatusBadGateway || v != "false" {
			t.Errorf("with %v tokens left: status %d, x-should-retry %q, want 502 and false", tokens.left, got.status, v)
		}
	}
}
