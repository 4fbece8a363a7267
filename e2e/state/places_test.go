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

// TestTheOvershootOfFourGateways measures how many requests of one tenant, which
// may have 8 under way, four gateways that are hammered let through at once.
func TestTheOvershootOfFourGateways(t *testing.T) {
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
			part := min(soak(t)/2, 5*time.Second) // it has met everything by then
			admitted, refused := r.hammer(clients, bases, func() {
				pause(part)
				if c.dies {
					redis.Kill()
					pause(part)
					redis.Restart()
				}
				pause(part)
			})
			most := r.Workers[0].Engine.Stats().MaxConcurrent
			alone := r.alone()
			// A gateway alone enforces a quarter of the limit; all four together enforce
			// the limit once more, beside the requests that Redis has admitted.
			if bound := limit + min(alone, limit); most > bound {
				t.Errorf("%d were under way at once, want at most %d: the limit is %d, and %d requests were decided without Redis",
					most, bound, limit, alone)
			}
			if c.dies && alone == 0 {
				t.Error("no gateway noticed that Redis died")
			}
			if admitted == 0 || refused == 0 {
				t.Error("the limit was not met")
			}
			t.Logf("%s: at most %d under way of %d allowed; %d admitted, %d refused; %d decided by a gateway alone for want "+
				"of an answer",
				c.name, most, limit, admitted, refused, alone)
			r.fills(limit, bases...)
		})
	}
}

// hammer has clients ask without a pause while during runs, and counts what they
// got.
func (r *stateRig) hammer(clients int, bases []string, during func()) (admitted, refused int) {
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
				pause(2 * time.Millisecond) // as fast as clients that obey nothing, not faster than the machine
			}
		})
	}
	during()
	stop()
	work.Wait()
	return admitted, refused
}

// fills checks that nothing is left booked: of a tenant that may have so many
// requests under way, all of them get in at once, on gateways in turn. What a dead
// gateway has booked comes back when its lease has ended.
func (r *stateRig) fills(limit int, bases ...string) {
	r.T.Helper()
	took := rig.Within(r.T, lease+5*time.Second, func() error {
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
			return errorf("of %d that may be under way %d got in", limit, n)
		}
		return nil
	})
	r.T.Logf("all %d places were there after %v", limit, took.Round(time.Millisecond))
}

// lease is how long Redis keeps what a gateway that is dead had under way.
const lease = 15 * time.Second

// TestADeadGatewaysPlacesComeBack: what a killed gateway had under way counts until
// its lease ends, and no longer.
func TestADeadGatewaysPlacesComeBack(t *testing.T) {
	t.Parallel()
	const limit = 4
	r := newRig(t, 1, engines.Config{Script: func(_ string, body []byte) engines.Script {
		s := says("", body)
		if strings.Contains(string(body), `"stream":true`) {
			s.HoldAfter = 2 // for as long as its client stays
		}
		return s
	}})
	own := rig.Settings{"store": stores("", backends.Redis(t).URL),
		"auth": auth("app", fmt.Sprintf("concurrent: %d", limit))}
	dies, stays := r.serve(own), r.serve(own)
	l := r.newLoad(rig.TenantKey, dies.BaseURL)
	for range limit {
		l.work.Go(func() {
			// It is cut with its gateway.
			_, _ = r.post(l.done, dies.BaseURL, chatPath, rig.TenantKey, chatStream)
		})
	}
	rig.Within(t, rig.Patience, func() error {
		if n := r.Workers[0].Engine.Stats().Running; n != limit {
			return errorf("%d are under way", n)
		}
		return nil
	})
	if got := r.ask(stays.BaseURL); got.Status != http.StatusTooManyRequests {
		t.Errorf("beside %d under way elsewhere an answer is %d", limit, got.Status)
	}
	dies.Kill()
	took := rig.Within(t, lease+5*time.Second, func() error {
		if got := r.ask(stays.BaseURL); got.Status != http.StatusOK {
			return errorf("after its gateway died a place is still taken: %d", got.Status)
		}
		return nil
	})
	l.end()
	r.fills(limit, stays.BaseURL)
	t.Logf("a dead gateway's places came back after %v", took.Round(100*time.Millisecond))
}
