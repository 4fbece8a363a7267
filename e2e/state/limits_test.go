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

// fleet starts n gateways that share a Redis and returns their base URLs.
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
			waitForMetric(r.T, p, "tierway_redis_gateways", float64(n), rig.Patience)
		}
	}
	return bases
}

// decidedAlone returns how many requests the rig's gateways decided without Redis, each by its part
// of the limit. On a busy machine this also happens with a healthy Redis: a gateway waits at most
// 50 ms for a reply, and five replies in a row after more than 25 ms make Redis unavailable for a
// moment.
func (r *stateRig) decidedAlone() (n int) {
	for _, p := range r.gateways {
		n += len(linesWith(p, "Redis did not decide about a limit"))
	}
	return n
}

// offer sends requests to gateways in turn at a rate, for a duration. It returns the replies, which
// must be 200 or 429, in the order of arrival.
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
				r.T.Errorf("a request got %d: %s", got.Status, got.Body)
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

// TestFourGatewaysShareOneLimit: under overload, four gateways with a limit of 60 requests per minute
// admit together that rate and one burst.
func TestFourGatewaysShareOneLimit(t *testing.T) {
	t.Parallel()
	const rpm, burst = 60, 10 // the burst is a sixth of a minute's
	last := time.Duration(rounds(t, 20, 180)) * time.Second
	r := newRig(t, 1, engines.Config{})
	bases := r.fleet(4, backends.Redis(t).URL, rig.Settings{"auth": auth("app", "rpm: 60")})
	admitted, refused := r.offer(20, last, bases)
	near(t, "requests admitted", len(admitted), int(last.Minutes()*rpm)+burst, 3+min(r.decidedAlone(), burst))
	t.Logf("%d rpm over 4 gateways for %v: "+
		"%d of %d admitted; the rate and one burst are %d; %d decided by a gateway alone",
		rpm, last,
		len(admitted), len(admitted)+len(refused), int(last.Minutes()*rpm)+burst, r.decidedAlone())
}

// TestThreeGatewaysShareOneRate offers 300 requests per second to three gateways with a limit of 10
// per second. In no second do they admit more than the rate and a burst. Rejections have Retry-After
// and the rate limit headers.
//
// RL-01.
func TestThreeGatewaysShareOneRate(t *testing.T) {
	t.Parallel()
	const rps, burst = 10, 10 // the burst is a second's
	last := time.Duration(rounds(t, 5, 60)) * time.Second
	r := newRig(t, 1, engines.Config{})
	bases := r.fleet(3, backends.Redis(t).URL, rig.Settings{"auth": auth("app", "rps: 10, tpm: 100000000")})
	admitted, refused := r.offer(300, last, bases)
	near(t, "requests admitted", len(admitted), int(last.Seconds())*rps+burst, 10+min(r.decidedAlone(), burst))
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
	// The time of a decision is known only to half the duration of its request.
	if most > rps+burst+2+min(r.decidedAlone(), burst) {
		t.Errorf("%d were admitted within one second", most)
	}
	if len(refused) == 0 {
		t.Fatal("no request was rejected")
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

// badRefusal returns the first problem of a rejection's headers; "" if there is none.
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
