package state

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/config"
	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// fleet is two gateways behind a proxy.
type fleet struct {
	*stateRig
	gateways [2]*gateway.Process
	base     string // URL of the proxy, ending in /v1
}

// behindProxies runs a test behind nginx and behind HAProxy, each with its file of deploy/.
func behindProxies(t *testing.T, c engines.Config, own rig.Settings, test func(t *testing.T, f *fleet)) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB, string, string) *backends.ProxyServer{
		"nginx": backends.Nginx, "haproxy": backends.HAProxy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{stateRig: newRig(t, 2, c)}
			both := rig.Settings{"store": stores("", ""), "retry": `{ attempts: 1 }`}.With(own)
			f.gateways = [2]*gateway.Process{f.start(both), f.start(both)}
			for _, p := range f.gateways {
				p.WaitUntilReady()
			}
			f.base = "http://" + start(t, address(f.gateways[0]), address(f.gateways[1])).Addr + "/v1"
			test(t, f)
		})
	}
}

// ask posts a chat through the proxy.
func (f *fleet) ask(ctx context.Context, body string) rig.Reply {
	got, _ := f.post(ctx, f.base, chatPath, rig.TenantKey, body)
	return got
}

// running waits until the engines run n requests.
func (f *fleet) running(n int) {
	f.T.Helper()
	rig.Eventually(f.T, func() error {
		got := 0
		for _, w := range f.Workers {
			got += w.Engine.Stats().Running
		}
		if got != n {
			return errorf("the engines run %d requests, want %d", got, n)
		}
		return nil
	})
}

// heldBody is a chat without streaming that stays in flight until ResumePaused.
var heldBody = rig.Chat("sim", rig.PauseMark)

// TestSmokeProxiesForwardEachEventAtOnce: the client reads the first event of a stream while the engine
// waits for the client before it sends the next one.
func TestSmokeProxiesForwardEachEventAtOnce(t *testing.T) {
	behindProxies(t, engines.Config{}, nil, func(_ *testing.T, f *fleet) {
		body := rig.Chat("sim", rig.PauseMark, `"stream":true`)
		s := f.Open(f.RequestTo(f.T.Context(), http.MethodPost, f.base+chatPath, body,
			"Authorization", "Bearer "+rig.TenantKey))
		s.ReadUntil(`"content":`)
		f.ResumePaused()
		rest, err := s.ReadRest()
		if text, ended := parseStream(rest); err != nil || text != streamText || !ended {
			f.T.Errorf("the stream ended with %v: %s", err, rest)
		}
	})
}

// TestProxiesEndTheRequestsOfDisconnectedClients: if a client disconnects from the proxy, its
// request ends at the engine.
func TestProxiesEndTheRequestsOfDisconnectedClients(t *testing.T) {
	behindProxies(t, engines.Config{}, nil, func(_ *testing.T, f *fleet) {
		ctx, disconnect := context.WithCancel(f.T.Context())
		go f.ask(ctx, heldBody)
		f.running(1)
		disconnect()
		f.running(0)
	})
}

// TestProxiesPassBodiesOfTheGatewaysLimit: the limit of the proxies is max_body_bytes.
func TestProxiesPassBodiesOfTheGatewaysLimit(t *testing.T) {
	most := int(config.Default().MaxBodyBytes)
	behindProxies(t, engines.Config{}, nil, func(t *testing.T, f *fleet) {
		for length, status := range map[int]int{5 << 20: 200, most: 200, most + 1: 413} {
			body := chatBody + strings.Repeat(" ", length-len(chatBody))
			if got := f.ask(t.Context(), body); got.Status != status {
				t.Errorf("a body of %d bytes: the response is %d, want %d: %v %s", length, got.Status, status, got.Err, got.Body)
			}
		}
	})
}

// TestProxiesNameTheClientsAddress: the gateway limits wrong keys by the address of the client, not
// by that of the proxy.
func TestProxiesNameTheClientsAddress(t *testing.T) {
	own := rig.Settings{"trusted_proxies": `["127.0.0.1/32"]`}
	behindProxies(t, engines.Config{}, own, func(t *testing.T, f *fleet) {
		send := func(from string) int {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c := http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
			resp, err := c.Do(f.RequestTo(t.Context(), http.MethodPost, f.base+chatPath, chatBody,
				"Authorization", "Bearer wrong"))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		rig.Eventually(t, func() error { // each gateway counts by itself
			if status := send("127.0.0.9"); status != http.StatusTooManyRequests {
				return errorf("many wrong keys of an address: status %d", status)
			}
			return nil
		})
		for range 4 {
			if status := send("127.0.0.8"); status != http.StatusUnauthorized {
				t.Errorf("a wrong key of another address: status %d", status)
			}
		}
	})
}

// TestAKilledGatewayLosesOnlyItsRequests kills one of two gateways under load. Only requests that it
// had fail, the proxy uses it again after its start, and no request reaches an engine twice.
//
// SD-07.
func TestAKilledGatewayLosesOnlyItsRequests(t *testing.T) {
	const held, clients = 16, 5
	behindProxies(t, engines.Config{}, nil, func(t *testing.T, f *fleet) {
		replies := make(chan rig.Reply, held)
		reply := func() rig.Reply {
			select {
			case got := <-replies:
				return got
			case <-time.After(rig.Patience):
				t.Fatal("timeout: a request does not end")
				return rig.Reply{}
			}
		}
		for range held {
			go func() { replies <- f.ask(t.Context(), heldBody) }()
		}
		f.running(held)
		inFlight := sum(t, f.gateways[0], "tierway_inflight")
		if inFlight == 0 || inFlight == held {
			t.Fatalf("the gateway to kill has %v of %d requests", inFlight, held)
		}
		l := f.newLoad(rig.TenantKey, f.base)
		l.tolerant = true
		l.startChats(clients)
		l.startStreams(4)
		pause(soak(t) / 4)
		f.gateways[0].Kill()
		killed := time.Now()
		for range int(inFlight) {
			if got := reply(); got.Status == http.StatusOK {
				t.Error("a request of the killed gateway succeeded, although none was released")
			}
		}
		pause(soak(t) / 4)
		f.ResumePaused()
		for range held - int(inFlight) {
			if got := reply(); got.CheckOK() != nil {
				t.Errorf("a request of the other gateway: %v", got.CheckOK())
			}
		}
		f.gateways[0] = f.addGateway(f.gateways[0].StartAgain())
		f.waitUntilUsed(f.gateways[0])
		l.end()
		for _, got := range l.broken {
			if got.Sent.After(killed) {
				t.Errorf("a request %v after the kill: status %d, %v: %s", got.Sent.Sub(killed), got.Status, got.Err, got.Body)
			}
		}
		for i, p := range f.gateways {
			if all, ok := sum(t, p, "tierway_requests_total"), sum(t, p, "tierway_requests_total", `outcome="ok"`); all != ok {
				t.Errorf("gateway %d served %v of %v requests", i+1, ok, all)
			}
		}
		f.checkSentOnce()
		t.Logf("%d requests in flight and %d of %d of the load failed", int(inFlight), len(l.broken),
			len(l.broken)+l.count())
	})
}

// sum returns the sum of a metric of a gateway.
func sum(t *testing.T, p *gateway.Process, name string, labels ...string) float64 {
	t.Helper()
	m, err := p.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	return m.Sum(name, labels...)
}

// checkSentOnce checks that no request reached the engines twice.
func (f *fleet) checkSentOnce() {
	f.T.Helper()
	times := map[string]int{}
	for _, w := range f.Workers {
		for _, r := range w.Recorder.Requests() {
			times[r.Header.Get("X-Request-Id")]++
		}
	}
	if len(times) < 2 {
		f.T.Errorf("the engines received %d requests", len(times))
	}
	for id, n := range times {
		if n != 1 {
			f.T.Errorf("the request %s reached the engines %d times", id, n)
		}
	}
}

// waitUntilUsed waits until the proxy sends requests to a gateway.
func (f *fleet) waitUntilUsed(p *gateway.Process) {
	f.T.Helper()
	rig.Eventually(f.T, func() error {
		m, err := p.Metrics()
		if err == nil && m.Sum("tierway_requests_started_total") == 0 {
			err = errorf("the proxy does not use the gateway")
		}
		return err
	})
}

// TestRollingRestartsBehindProxiesFailNoRequest restarts two gateways one after the other under chats and streams. The
// next one stops as soon as the proxy uses the last one again: a proxy that has seen a gateway fail leaves it out for a
// time, and would have none.
//
// SD-01, SD-02.
func TestRollingRestartsBehindProxiesFailNoRequest(t *testing.T) {
	all := rounds(t, 1, 20)
	// nginx does not use a gateway for 2 s after its restart
	own := rig.Settings{"drain": `{ accept_grace: 3s, timeout: 30s }`}
	behindProxies(t, engines.Config{PerToken: 20 * time.Millisecond}, own, func(t *testing.T, f *fleet) {
		l := f.newLoad(rig.TenantKey, f.base)
		l.startStreams(20)
		l.startChats(5)
		for range all {
			for i, p := range f.gateways {
				f.gateways[i] = f.addGateway(p.StartAgain())
				f.gateways[i].WaitUntilReady()
				f.waitUntilUsed(f.gateways[i])
			}
		}
		l.end()
		f.checkSentOnce()
		t.Logf("%d rolling restarts: %d requests, %d streams whole", all, l.count(), l.streams)
	})
}
