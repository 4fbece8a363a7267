package queue

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// sendFromClients sends one request on each of n new connections, which need no goroutine.
func (r *queueRig) sendFromClients(n int) []rig.Resettable {
	r.T.Helper()
	all := make([]rig.Resettable, n)
	for i := range all {
		body := plain
		if i%3 == 0 {
			body = stream
		}
		all[i] = rig.Dial(r.T, r.DataAddr)
		if _, err := fmt.Fprintf(all[i], "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: "+
			"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			r.T.Fatal(err)
		}
	}
	return all
}

// closeAll closes all connections, every other one with a reset.
func closeAll(all []rig.Resettable) {
	for i, c := range all {
		if i%2 == 0 {
			_ = c.SetLinger(0) // fails only on a closed connection
		}
		_ = c.Close()
	}
}

// newFullRig returns two engines with four slots together and the held requests that fill them.
// All further requests wait until ResumePaused.
func newFullRig(t *testing.T, own rig.Settings) (*queueRig, []*pending) {
	t.Helper()
	r := newRig(t, 2, engines.Config{})
	all := rig.Settings{
		"tiers":  r.Tiers("max_inflight: 2", ""),
		"policy": `{ name: least_load }`, // no slot is better than another
		"queue":  "{ max_depth: 100000, heartbeat_after: 10m, " + waitLong + " }",
	}
	for k, v := range own {
		all[k] = v
	}
	r.Serve(all)
	holders := r.startMany(4, held)
	r.waitForRunning(4)
	return r, holders
}

// checkRemoved checks that the gateway has removed n waiting requests after their clients
// disconnected at the time cut, that it sent none of them to an engine, and that it still works.
func (r *queueRig) checkRemoved(n int, cut time.Time, before float64, holders []*pending) {
	r.T.Helper()
	r.waitForQueued(0)
	gone := time.Since(cut)
	rig.Eventually(r.T, func() error {
		if got := r.Sum("tierway_inflight"); got != float64(len(holders)) {
			return fmt.Errorf("%v requests are in flight, %d are held", got, len(holders))
		}
		// The margin covers the scrape, timers and closing connections.
		if got := r.Goroutines(); got > before+10 {
			return fmt.Errorf("the gateway has %v goroutines, it had %v", got, before)
		}
		return nil
	})
	r.T.Logf("%d waiting clients disconnected: depth 0 after %v, no goroutine left after %v", n,
		gone.Round(time.Millisecond), time.Since(cut).Round(time.Millisecond))
	if got := r.received(); got != len(holders) {
		r.T.Errorf("the engines received %d requests, want only the %d held ones", got, len(holders))
	}
	r.ResumePaused()
	r.checkServed(holders)
	r.checkServed(r.startMany(8, plain))
	r.WaitUntilIdle()
	if got := r.received(); got != len(holders)+8 {
		r.T.Errorf("the engines received %d requests, want %d", got, len(holders)+8)
	}
}

// TestThousandDisconnectedRequestsLeaveTheQueue disconnects all waiting clients at once, half of
// them with a reset. Their requests leave the queue and are never sent to an engine.
//
// RL-05, QU-02: after a disconnect, the request gives its place back at once and is never
// dispatched.
func TestThousandDisconnectedRequestsLeaveTheQueue(t *testing.T) {
	bubble.TestAlone(t, func(t *testing.T) {
		r, holders := newFullRig(t, nil)
		before := r.Goroutines()
		all := r.sendFromClients(1000)
		r.waitForQueued(len(all))
		at := time.Now()
		closeAll(all)
		r.checkRemoved(len(all), at, before, holders)
	})
}

// TestTwentyThousandDisconnectedRequestsLeaveTheQueue is the same test with 20,000 requests
// (2,000 in a short run). They share HTTP/2 connections, because a process on a common machine
// may open only about 20,000 sockets.
func TestTwentyThousandDisconnectedRequestsLeaveTheQueue(t *testing.T) {
	bubble.TestAlone(t, func(t *testing.T) {
		n := 2000
		if _, full := soak(t); full {
			n = 20000
		}
		const each = 200 // below the 250 streams that Go's server accepts on a connection
		r, holders := newFullRig(t, rig.Settings{"tls": certificate(t)})
		before := r.Goroutines()

		var mu sync.Mutex // guards conns
		var conns []rig.Resettable
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := rig.EnvironmentOf(t).Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c.(rig.Resettable))
			return c, nil
		}
		var closing atomic.Bool
		var clients sync.WaitGroup
		for i := range n / each {
			line := &http.Transport{TLSClientConfig: anyCertificate(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
				DialContext: dial}
			for range each {
				req := r.request(t.Context(), "/v1/chat/completions", plain)
				clients.Go(func() {
					resp, err := line.RoundTrip(req)
					if err != nil {
						if !closing.Load() {
							t.Errorf("before the clients disconnected: %v", err)
						}
						return
					}
					defer resp.Body.Close()
					b, _ := io.ReadAll(resp.Body) // only for the message
					t.Errorf("a request that must wait was answered %s over %s: %s", resp.Status, resp.Proto, b)
				})
			}
			// One connection after the other, because the gateway ends a handshake that takes longer than 5 s.
			r.waitForQueued((i + 1) * each)
		}
		closing.Store(true)
		mu.Lock()
		at := time.Now()
		closeAll(conns)
		mu.Unlock()
		clients.Wait()
		r.checkRemoved(n, at, before, holders)
	})
}
