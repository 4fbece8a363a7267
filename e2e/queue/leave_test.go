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

	"tierway/e2e/rig"
	"tierway/engines"
)

// waiter is a client that speaks HTTP/1.1 by hand, so that it costs a socket and
// no goroutine.
type waiter struct{ *net.TCPConn }

// line makes n clients of their own connection ask, and returns when they have.
func (r *queueRig) line(n int) []waiter {
	r.T.Helper()
	all := make([]waiter, n)
	var dialers sync.WaitGroup
	for d := range 16 { // dials one after the other take their time
		dialers.Go(func() {
			for i := d; i < n; i += 16 {
				body := plain
				if i%3 == 0 {
					body = stream
				}
				c, err := net.Dial("tcp", r.DataAddr)
				if err != nil {
					r.T.Error(err)
					return
				}
				all[i] = waiter{c.(*net.TCPConn)}
				if _, err := fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: "+
					"application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
					r.T.Error(err)
				}
			}
		})
	}
	dialers.Wait()
	return all
}

// cut ends all connections at once: every other one by a reset.
func cut(all []waiter) {
	for i, w := range all {
		if w.TCPConn == nil {
			continue
		}
		if i%2 == 0 {
			_ = w.SetLinger(0) // fails only on a connection that is closed
		}
		_ = w.Close() // that is what it is for
	}
}

// goroutines is how many the gateway has.
func (r *queueRig) goroutines() float64 { return r.Sum("go_goroutines") }

// occupied is a rig of two engines whose four places are taken by requests that
// are held. Nothing else is sent to an engine before the rig lets go.
func occupied(t *testing.T, own rig.Settings) (*queueRig, []*promise) {
	t.Helper()
	r := newRig(t, 2, engines.Config{})
	all := rig.Settings{
		"tiers":  r.Tiers("max_inflight: 2", ""),
		"policy": `{ name: least_load }`, // no place is better than another
		"queue":  "{ max_depth: 100000, heartbeat_after: 10m, " + waitLong + " }",
	}
	for k, v := range own {
		all[k] = v
	}
	r.Serve(all)
	holders := r.crowd(4, held)
	r.running(4)
	return r, holders
}

// forgotten wants that nothing is left of n requests that waited and whose clients
// left at the moment cut, and that the gateway then works as before.
func (r *queueRig) forgotten(n int, cut time.Time, before float64, holders []*promise) {
	r.T.Helper()
	r.waiting(0)
	gone := time.Since(cut)
	rig.Eventually(r.T, func() error {
		if got := r.Sum("tierway_inflight"); got != float64(len(holders)) {
			return fmt.Errorf("%v requests are in flight, %d are held", got, len(holders))
		}
		// A few are the scrape's own and those of timers and connections about to end.
		if got := r.goroutines(); got > before+10 {
			return fmt.Errorf("there are %v goroutines, before there were %v", got, before)
		}
		return nil
	})
	r.T.Logf("%d waiting clients left: depth 0 after %v, all of it gone after %v", n, gone.Round(time.Millisecond),
		time.Since(cut).Round(time.Millisecond))
	if got := r.asked(); got != len(holders) {
		r.T.Errorf("the engines were asked %d times, and %d requests were granted a place", got, len(holders))
	}
	r.ReleaseHeld()
	r.served(holders)
	r.served(r.crowd(8, plain))
	r.WaitUntilQuiet()
	if got := r.asked(); got != len(holders)+8 {
		r.T.Errorf("the engines were asked %d times by %d requests that were not left", got, len(holders)+8)
	}
}

// TestAThousandWaitersLeave: all clients that wait cut their connections at once,
// half of them by a reset. Nobody waits then, nothing is in flight but what was,
// nothing of them is sent to an engine when places come free, and the gateway goes
// on.
//
// RL-05, QU-02: what is left while it waits gives its place back at once and is
// never dispatched.
func TestAThousandWaitersLeave(t *testing.T) {
	r, holders := occupied(t, nil)
	before := r.goroutines()
	all := r.line(1000)
	r.waiting(len(all))
	at := time.Now()
	cut(all)
	r.forgotten(len(all), at, before, holders)
}

// TestTwentyThousandWaitersLeave is the same with 20,000 of them, 2,000 in a short
// run. They share connections over HTTP/2, 200 each: a process may have no more
// than some 20,000 sockets on common machines.
func TestTwentyThousandWaitersLeave(t *testing.T) {
	n := 2000
	if _, full := soak(t); full {
		n = 20000
	}
	const each = 200 // below the 250 streams that Go's server takes of a connection
	r, holders := occupied(t, rig.Settings{"tls": certificate(t)})
	before := r.goroutines()

	var mu sync.Mutex // guards conns
	var conns []waiter
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, waiter{c.(*net.TCPConn)})
		return c, nil
	}
	var over atomic.Bool
	var clients sync.WaitGroup
	for range n / each {
		line := &http.Transport{TLSClientConfig: anyCertificate(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
			DialContext: dial}
		for range each {
			req := r.request(t.Context(), "/v1/chat/completions", plain)
			clients.Go(func() {
				resp, err := line.RoundTrip(req)
				if err != nil {
					if !over.Load() {
						t.Errorf("before the clients left: %v", err)
					}
					return // that is how it ends
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body) // whatever it is, it should not be there
				t.Errorf("a request that waits for ever was answered %s over %s: %s", resp.Status, resp.Proto, b)
			})
		}
	}
	r.waiting(n)
	over.Store(true)
	mu.Lock()
	at := time.Now()
	cut(conns)
	mu.Unlock()
	clients.Wait()
	r.forgotten(n, at, before, holders)
}
