package server

import (
	"net/http"
	"testing"
	"testing/synctest"
)

// slowBreakersYAML is one tier of several workers. Its breakers open too late to matter in these tests.
const slowBreakersYAML = `
auth: { required: false }
health: { path: "off" }
breaker: { consecutive_failures: 1000, min_requests: 1000 }
policy: { name: round_robin }
tiers:
  - { name: small, model: fake-7b, workers: [ %s ] }
`

// TestFreshGatewayRetriesWhileHalfOfItsWorkersCutConnections sends sequential requests to a gateway
// without earlier traffic. Every second request needs a retry.
func TestFreshGatewayRetriesWhileHalfOfItsWorkersCutConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cuts := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		r := newRig(t, slowBreakersYAML, cuts, fakeEngine())
		for i := range 20 {
			if got := r.post("/v1/chat/completions", hello); got.status != http.StatusOK {
				t.Fatalf("request %d: status %d: %s", i+1, got.status, got.body)
			}
		}
	})
}
