package server

import (
	"net/http"
	"testing"
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
