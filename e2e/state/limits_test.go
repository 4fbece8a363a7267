package state

import (
	"context"
	"net/http"
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
// of the limit.
func (r *stateRig) decidedAlone() (n int) {
	for _, p := range r.gateways {
		n += len(linesWith(p, "Redis did not decide about a limit"))
	}
	return n
}

// offer sends requests from clients to gateways in turn for a duration, each client one after the other. It returns
// the replies, which must be 200 or 429, and the time from the first request to the last reply.
func (r *stateRig) offer(clients int, last time.Duration, bases []string) (admitted, refused []rig.Reply,
	took time.Duration) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), last)
	defer cancel()
	var mu sync.Mutex
	var work sync.WaitGroup
	begin := time.Now()
	for i := range clients {
		work.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				got, err := r.askOnce(bases[n%len(bases)])
				mu.Lock()
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
				mu.Unlock()
				rig.Pause(ctx, thinkTime)
			}
		})
	}
	work.Wait()
	return admitted, refused, time.Since(begin)
}

// askOnce posts chatBody with rig.TenantKey, for at most [rig.Patience]. It may be called on any goroutine.
func (r *stateRig) askOnce(base string) (rig.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	return r.post(ctx, base, chatPath, rig.TenantKey, chatBody)
}

// checkAdmitted checks that a fleet has admitted no more than a burst and a rate for some time, beside the requests
// that its gateways decided alone, and at least the burst. The tests of store check in virtual time that it
// admits the whole rate.
func (r *stateRig) checkAdmitted(admitted, burst int, rate float64, took time.Duration) {
	r.T.Helper()
	alone := r.decidedAlone()
	if most := burst + int(rate*took.Seconds()) + alone; admitted < burst || admitted > most {
		r.T.Errorf("%d requests were admitted in %v, want %d to %d; %d were decided without Redis", admitted, took, burst,
			most, alone)
	}
}

// TestFourGatewaysShareOneLimit: under overload, four gateways with a limit of 60 requests per minute
// admit together that rate and one burst.
func TestFourGatewaysShareOneLimit(t *testing.T) {
	t.Parallel()
	const burst, clients = 10, 4 // the burst is a sixth of a minute's
	r := newRig(t, 1, engines.Config{})
	bases := r.fleet(4, backends.Redis(t).URL, rig.Settings{"auth": auth("app", "rpm: 60")})
	admitted, refused, took := r.offer(clients, time.Duration(rounds(t, 20, 180))*time.Second, bases)
	r.checkAdmitted(len(admitted), burst, 1, took)
	t.Logf("60 rpm over 4 gateways for %v: %d of %d admitted; %d decided by a gateway alone", took, len(admitted),
		len(admitted)+len(refused), r.decidedAlone())
}

// TestThreeGatewaysShareOneRate offers more than 10 requests per second to three gateways with this limit. In no
// second do they admit more than the rate and a burst. Rejections have Retry-After and the rate limit headers.
//
// RL-01.
func TestThreeGatewaysShareOneRate(t *testing.T) {
	t.Parallel()
	const rps, burst, clients = 10, 10, 15 // the burst is a second's
	r := newRig(t, 1, engines.Config{})
	bases := r.fleet(3, backends.Redis(t).URL, rig.Settings{"auth": auth("app", "rps: 10, tpm: 100000000")})
	admitted, refused, took := r.offer(clients, time.Duration(rounds(t, 5, 60))*time.Second, bases)
	r.checkAdmitted(len(admitted), burst, rps, took)
	most := 0
	for _, first := range admitted {
		n := 0
		for _, a := range admitted { // these were decided within the second
			if !a.Sent.Before(first.Sent) && a.Done.Sub(first.Sent) <= time.Second {
				n++
			}
		}
		most = max(most, n)
	}
	if most > rps+burst+r.decidedAlone() {
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
	t.Logf("%d rps over 3 gateways for %v: %d of %d admitted, at most %d in one second", rps, took, len(admitted),
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
