package state

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestFourGatewaysShareOneConcurrencyLimit overloads four gateways with requests of one tenant, which
// may have 8 in flight, and checks how many are in flight at once.
func TestFourGatewaysShareOneConcurrencyLimit(t *testing.T) {
	const limit, clients = 8, 64
	long := engines.Config{PerToken: 3 * time.Millisecond} // an answer takes about 30ms
	for _, c := range []struct {
		name  string
		redis bool
		dies  bool
	}{
		{"with Redis", true, false},
		{"while Redis dies and comes back", true, true},
		{"without Redis", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, long)
			url := ""
			var redis *backends.RedisServer
			if c.redis {
				redis = backends.Redis(t)
				url = redis.URL
			}
			bases := r.fleet(4, url, rig.Settings{"auth": auth("app", fmt.Sprintf("concurrent: %d", limit)), "gateways": "4"})
			part := min(soak(t)/2, 5*time.Second) // longer loads show nothing new
			admitted, refused := r.overload(clients, bases, func() {
				pause(part)
				if c.dies {
					redis.Kill()
					pause(part)
					redis.Restart()
				}
				pause(part)
			})
			most := r.Workers[0].Engine.Stats().MaxConcurrent
			alone := r.decidedAlone()
			// Without Redis, each gateway enforces a quarter of the limit. Together they may admit
			// the limit once more, beside the requests that Redis has admitted.
			if bound := limit + min(alone, limit); most > bound {
				t.Errorf("%d were under way at once, want at most %d: the limit is %d, and %d requests were decided without Redis",
					most, bound, limit, alone)
			}
			if c.dies && alone == 0 {
				t.Error("no gateway noticed that Redis died")
			}
			if admitted == 0 || refused == 0 {
				t.Error("the limit was not reached")
			}
			t.Logf("%s: at most %d under way of %d allowed; %d admitted, %d refused; %d decided by a gateway alone for want "+
				"of an answer",
				c.name, most, limit, admitted, refused, alone)
			r.checkNothingBooked(limit, bases...)
		})
	}
}

// overload sends requests from several clients without a pause while during runs, and counts the
// replies.
func (r *stateRig) overload(clients int, bases []string, during func()) (admitted, refused int) {
	r.T.Helper()
	done, stop := context.WithCancel(context.Background())
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range clients {
		work.Go(func() {
			for n := i; done.Err() == nil; n++ {
				ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
				got, err := r.post(ctx, bases[n%len(bases)], chatPath, rig.TenantKey, chatBody)
				cancel()
				mu.Lock()
				switch {
				case err != nil:
					r.T.Error(err)
				case got.Status == http.StatusOK:
					admitted++
				case got.Status == http.StatusTooManyRequests:
					refused++
				default:
					r.T.Errorf("an answer is %d: %s", got.Status, got.Body)
				}
				mu.Unlock()
				pause(2 * time.Millisecond) // fast, but not so fast that the machine becomes the limit
			}
		})
	}
	during()
	stop()
	work.Wait()
	return admitted, refused
}

// checkNothingBooked checks that no request of the tenant is still booked: limit requests at once are
// all admitted, on gateways in turn. The bookings of a dead gateway end with its lease.
func (r *stateRig) checkNothingBooked(limit int, bases ...string) {
	r.T.Helper()
	took := rig.Within(r.T, lease+rig.Patience, func() error {
		var work sync.WaitGroup
		var admitted atomic.Int64
		for i := range limit {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
				defer cancel()
				if got, err := r.post(ctx, bases[i%len(bases)], chatPath, rig.TenantKey, chatBody); err == nil &&
					got.Status == http.StatusOK {
					admitted.Add(1)
				}
			})
		}
		work.Wait()
		if n := admitted.Load(); n != int64(limit) {
			return errorf("the limit is %d in flight, and only %d were admitted", limit, n)
		}
		return nil
	})
	r.T.Logf("all %d slots were free after %v", limit, took.Round(time.Millisecond))
}

// lease is how long Redis keeps the bookings of a dead gateway.
const lease = 15 * time.Second

// TestBookingsOfADeadGatewayExpire: the requests that a killed gateway had in flight count until its
// lease ends.
func TestBookingsOfADeadGatewayExpire(t *testing.T) {
	t.Parallel()
	const limit = 4
	r := newRig(t, 1, engines.Config{Script: func(_ string, body []byte) engines.Script {
		s := answerScript("", body)
		if strings.Contains(string(body), `"stream":true`) {
			s.HoldAfter = 2 // until the client disconnects
		}
		return s
	}})
	own := rig.Settings{"store": stores("", backends.Redis(t).URL),
		"auth": auth("app", fmt.Sprintf("concurrent: %d", limit))}
	dies, stays := r.serve(own), r.serve(own)
	l := r.newLoad(rig.TenantKey, dies.BaseURL)
	for range limit {
		l.work.Go(func() {
			// The stream ends when its gateway is killed.
			_, _ = r.post(l.done, dies.BaseURL, chatPath, rig.TenantKey, chatStream)
		})
	}
	rig.Within(t, rig.Patience, func() error {
		if n := r.Workers[0].Engine.Stats().Running; n != limit {
			return errorf("%d requests are in flight", n)
		}
		return nil
	})
	if got := r.ask(stays.BaseURL); got.Status != http.StatusTooManyRequests {
		t.Errorf("with %d requests in flight elsewhere, a request gets %d", limit, got.Status)
	}
	dies.Kill()
	took := rig.Within(t, lease+rig.Patience, func() error {
		if got := r.ask(stays.BaseURL); got.Status != http.StatusOK {
			return errorf("the bookings of the dead gateway still count: %d", got.Status)
		}
		return nil
	})
	l.end()
	r.checkNothingBooked(limit, stays.BaseURL)
	t.Logf("a dead gateway's bookings expired after %v", took.Round(100*time.Millisecond))
}
