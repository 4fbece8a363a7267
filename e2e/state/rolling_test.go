package state

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// address returns the address of a gateway's data plane.
func address(p *gateway.Process) string {
	return strings.TrimSuffix(strings.TrimPrefix(p.BaseURL, "http://"), "/v1")
}

// TestSmokeRollingRestartFailsNoRequest restarts two gateways behind a TCP balancer, one after the other, while 16
// clients send chats and read streams. A full soak restarts them 20 times.
//
// SD-02.
func TestSmokeRollingRestartFailsNoRequest(t *testing.T) {
	t.Parallel()
	const clients, limit = 8, 100 // as many clients with streams
	all := rounds(t, 1, 20)
	r := newRig(t, 3, engines.Config{PerToken: 20 * time.Millisecond})
	// A client on a busy machine may send a request on a kept connection just when it is closed. Package chaos
	// verifies in virtual time what happens to kept connections.
	r.Client.Transport.(*http.Transport).DisableKeepAlives = true
	own := rig.Settings{"store": stores(backends.Database(t), backends.Redis(t).URL),
		"auth":  auth("app", fmt.Sprintf("rpm: 1000000, tpm: 1000000000, concurrent: %d", limit)),
		"drain": `{ accept_grace: 5s, timeout: 30s }`}
	gateways := []*gateway.Process{r.start(own), r.start(own)} // both at once: one of them makes the schema
	for _, p := range gateways {
		p.WaitUntilReady()
	}
	b := backends.NewBalancer(t, address(gateways[0]), address(gateways[1]))
	both := func() {
		rig.Eventually(t, func() error {
			if n := len(b.Ready()); n != len(gateways) {
				return errorf("%d gateways are ready", n)
			}
			return nil
		})
	}
	both()
	l := r.newLoad(rig.TenantKey, "http://"+b.Addr+"/v1")
	l.startStreams(clients)
	l.startChats(clients)
	begin := time.Now()
	for range all {
		for i := range gateways {
			gateways[i] = r.addGateway(gateways[i].StartAgain())
			both()
			l.waitForMore(2 * clients) // the gateway that has started serves some of them
		}
	}
	end := time.Now()
	l.end()
	r.checkNothingBooked(limit, gateways[0].BaseURL, gateways[1].BaseURL)
	for _, p := range gateways { // both stop at once
		r.waitUntilIdleAndWritten(p)
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range gateways {
		p.WaitForEnd()
	}
	t.Logf("%d rolling restarts of 2 gateways in %v: %d asked, %d streams whole; %v",
		all, end.Sub(begin).Round(time.Second), l.count(), l.streams, l.times(begin, end))
}
