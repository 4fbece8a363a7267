package proxy

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"tierway/engines"
	"tierway/memnet"
)

// TestFallbackSpendsTheRetryBudget: a failed target sends its requests to the next one only while the
// budget lasts, so that failures do not double the load.
func TestFallbackSpendsTheRetryBudget(t *testing.T) {
	fails := http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	network := memnet.New()
	next := network.NewServer(engines.New(engines.Config{Name: "next", AnyModel: true, Seed: 1}))
	t.Cleanup(next.Close)
	r := newProxyRigOn(t, network, fmt.Sprintf(`
auth: { required: false }
breaker: { consecutive_failures: 1000, min_requests: 1000 }
retry: { attempts: 1 }
tiers:
  - { name: small, model: fake-7b, fallback: [next], workers: [ %%s ] }
  - { name: next, model: fake-7b-n, workers: [ { name: n0, url: %q } ] }
`, next.URL), fails)
	r.budget.tokens.Store(2 * retryParts)
	r.budget.at = time.Now().Add(time.Hour) // so that the trickle adds nothing meanwhile
	r.budget.configure(0)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusBadGateway} {
		resp, text := r.chat()
		if resp.StatusCode != want {
			t.Errorf("request %d: %d, want %d: %s", i, resp.StatusCode, want, text)
		}
		if tier := resp.Header.Get("X-Model-Tier"); want == http.StatusOK && tier != "next" {
			t.Errorf("request %d is answered by %s", i, tier)
		}
		if v := resp.Header.Get("X-Should-Retry"); want != http.StatusOK && v != "false" {
			t.Errorf("x-should-retry is %q", v)
		}
	}
	if d := r.lastRecord(); d.Tier != "small" || d.Rule != "model" || len(d.Attempts) != 1 ||
		len(d.Passed) != 1 {
		t.Errorf("it is recorded as %+v", d)
	}
}
