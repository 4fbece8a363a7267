package state

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// fleet starts n gateways that share a Redis.
func (r *stateRig) fleet(n int, redis string, own rig.Settings) (bases []string) {
	r.T.Helper()
	all := rig.Settings{"store": stores("", redis), "log": "{ level: debug, access: false }"}.With(own)
	var started []*gateway.Process
	for range n {
		started = append(started, r.start(all))
	}
	for _, p := range started {
		p.WaitUntilReady()
		bases = append(bases, p.BaseURL)
		if redis != "" {
			metric(r.T, p, "tierway_redis_gateways", float64(n), rig.Patience)
		}
	}
	return bases
}

// alone returns how many requests the rig's gateways decided without Redis, each by its
// part of the limit. On a busy machine that happens beside a Redis that is well: one
// answer after more than 50 ms is not waited for, and five in a row after more than
// 25 ms make Redis unavailable for a moment.
func (r *stateRig) alone() (n int) {
	for _, p := range r.gateways {
		n += len(about(p, "a limit was not asked of Redis"))
	}
	return n
}

// offer asks for whole answers of gateways in turn, so many a second for so long,
// and returns the answers, which are 200 or 429, in the order in which they came.
func (r *stateRig) offer(perSecond int, last time.Duration, bases []string) (admitted, refused []rig.Reply) {
	r.T.Helper()
	var mu sync.Mutex
	var work sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i, begin := 0, time.Now(); time.Since(begin) < last; i++ {
		base := bases[i%len(bases)]
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
			defer cancel()
			got, err := r.post(ctx, base, chatPath, rig.TenantKey, chatBody)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				r.T.Error(err)
			case got.Status == http.StatusOK:
				admitted = append(admitted, got)
			case got.Status == http.StatusTooManyRequests:
				refused = append(refused, got)
			default:
				r.T.Errorf("an answer is %d: %s", got.Status, got.Body)
			}
		})
		<-tick.C
	}
	work.Wait()
	return admitted, refused
}

// near fails the test unless got is within slack of want.
func near(t *testing.T, what string, got, want, slack int) {
	t.Helper()
	if got < want-slack || got > want+slack {
		t.Errorf("%s: %d, want %d ± %d", what, got, want, slack)
	}
}

// TestFourGatewaysShareOneLimit: 60 requests a minute across four gateways are
// that and one burst, not four times that, however much is offered.
func TestFourGatewaysShareOneLimit(t *testing.T) {
	t.Parallel()
	const rpm, burst = 60, 10 // the burst is a sixth of a minute's
	last := time.Duration(rounds(t, 20, 180)) * time.Second
	r := newRig(t, 1, engines.Config{})
	bases := r.fleet(4, backends.Redis(t).URL, rig.Settings{"auth": auth("app", "rpm: 60")})
	admitted, refused := r.offer(20, last, bases)
	near(t, "requests admitted", len(admitted), int(last.Minutes()*rpm)+burst, 3+min(r.alone(), burst))
	t.Logf("%d rpm over 4 gateways for %v: "+
		"%d of %d admitted; the rate and one burst are %d; %d decided by a gateway alone",
		rpm, last,
		len(admitted), len(admitted)+len(refused), int(last.Minutes()*rpm)+burst, r.alone())
}

// TestThreeGatewaysShareOneRate: 10 requests a second across three gateways that
// are offered 300, in no second more than the rate and a burst; refusals say when
// to come again and what the limit is.
//
// RL-01.
func TestThreeGatewaysShareOneRate(t *testing.T) {
	t.Parallel()
	const rps, burst = 10, 10 // the burst is a second's
	last := time.Duration(rounds(t, 5, 60)) * time.Second
	r := newRig(t, 1, engines.Config{})
	bases := r.fleet(3, backends.Redis(t).URL, rig.Settings{"auth": auth("app", "rps: 10, tpm: 100000000")})
	admitted, refused := r.offer(300, last, bases)
	near(t, "requests admitted", len(admitted), int(last.Seconds())*rps+burst, 10+min(r.alone(), burst))
	var ats []time.Time
	for _, a := range admitted {
		ats = append(ats, a.Sent.Add(a.Duration()/2))
	}
	slices.SortFunc(ats, time.Time.Compare)
	most := 0
	for i, from := range ats {
		n := 0
		for _, at := range ats[i:] {
			if at.Sub(from) < time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	// When the gateway decided is known to half of what an answer took.
	if most > rps+burst+2+min(r.alone(), burst) {
		t.Errorf("%d were admitted within one second", most)
	}
	if len(refused) == 0 {
		t.Fatal("nothing was refused")
	}
	for _, got := range refused {
		if problem := badRefusal(got.Header); problem != "" {
			t.Errorf("%s: %v", problem, got.Header)
			break
		}
	}
	t.Logf("%d rps over 3 gateways for %v: %d of %d admitted, at most %d in one second", rps, last, len(admitted),
		len(admitted)+len(refused), most)
}

// badRefusal says what a refusal's headers lack; empty is nothing.
func badRefusal(h http.Header) string {
	if n, err := strconv.Atoi(h.Get("Retry-After")); err != nil || n < 1 {
		return "Retry-After is missing or less than a second"
	}
	for _, what := range []string{"requests", "tokens"} {
		for _, field := range []string{"limit", "remaining"} {
			if n, err := strconv.ParseInt(h.Get("x-ratelimit-"+field+"-"+what), 10, 64); err != nil || n < 0 {
				return "x-ratelimit-" + field + "-" + what + " is missing or no number"
			}
		}
		if _, err := time.ParseDuration(h.Get("x-ratelimit-reset-" + what)); err != nil {
			return "x-ratelimit-reset-" + what + " is missing or no duration"
		}
	}
	return ""
}
