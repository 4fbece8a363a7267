package state

import (
	"strings"
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

// TestRollingRestartsFailNoRequest restarts two gateways behind a TCP balancer repeatedly, one after
// the other, under 200 requests per second and streams.
//
// SD-02.
func TestRollingRestartsFailNoRequest(t *testing.T) {
	t.Parallel()
	const perSecond, streams = 200, 30
	all := rounds(t, 2, 20)
	r := newRig(t, 3, engines.Config{PerToken: 20 * time.Millisecond})
	own := rig.Settings{"store": stores(backends.Database(t), backends.Redis(t).URL),
		"auth": auth("app", "rpm: 1000000, tpm: 1000000000, concurrent: 200"),
		// long enough for each idle connection of a client to be used once, and closed, on a busy machine too
		"drain": `{ accept_grace: 2s, timeout: 30s }`}
	gateways := []*gateway.Process{r.start(own), r.start(own)} // both at once: one of them makes the schema
	for _, p := range gateways {
		p.WaitUntilReady()
	}
	b := backends.NewBalancer(t, address(gateways[0]), address(gateways[1]))
	both := func() {
		rig.Within(t, rig.Patience, func() error {
			if n := len(b.Ready()); n != len(gateways) {
				return errorf("%d gateways are ready", n)
			}
			return nil
		})
	}
	both()
	l := r.newLoad(rig.TenantKey, "http://"+b.Addr+"/v1")
	l.startStreams(streams)
	l.startChats(perSecond)
	pause(time.Second)
	begin := time.Now()
	var away times
	for range all {
		for i := range gateways {
			since := time.Now()
			gateways[i] = r.addGateway(gateways[i].StartAgain())
			both()
			away = append(away, time.Since(since))
		}
	}
	end := time.Now()
	pause(time.Second)
	l.end()
	r.checkNothingBooked(200, gateways[0].BaseURL, gateways[1].BaseURL)
	t.Logf("%d rolling restarts of 2 gateways in %v: %d asked, %d streams whole; %v; a restart took %v at most",
		all, end.Sub(begin).Round(time.Second), l.count(), l.streams, l.times(begin, end), sorted(away).at(1))
}
