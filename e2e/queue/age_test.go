package queue

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestLowerClassesGetAgedShare keeps requests of all classes waiting. Requests of the lower
// classes that have waited for their age get aged_share of the tokens: not less and not more.
func TestLowerClassesGetAgedShare(t *testing.T) {
	bubble.TestAlone(t, func(t *testing.T) {
		d, _ := soak(t)
		const want, margin, tokens = 0.2, 0.02, 10
		r := newRig(t, 2, engines.Config{Slots: places, PerToken: 5 * time.Millisecond,
			Script: func(string, []byte) engines.Script { return engines.Script{Tokens: tokens} }})
		r.Serve(rig.Settings{
			"tiers": r.Tiers(fmt.Sprintf("max_inflight: %d", places), ""),
			"queue": fmt.Sprintf(`{ age: { background: 300ms, batch: 600ms }, aged_share: %v, %s }`, want, waitLong),
		})
		var clients sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer clients.Wait()
		defer stop()
		classes := map[string]*replies{"interactive": {}, "background": {}, "batch": {}}
		for class, c := range classes {
			c.keepOutstanding(ctx, &clients, r, 60, func(i int64) string {
				return chat(fmt.Sprintf("%d is %s", i, class), `"max_tokens":10`)
			}, "X-Request-Priority", class)
		}
		rig.Pause(ctx, 2*time.Second) // until the lower classes are aged and the gateway has learned the engines' speed
		from := time.Now()
		rig.Pause(ctx, d/2)
		to := time.Now()
		got := map[string]int{}
		for class, c := range classes {
			for _, a := range c.answers() {
				if err := a.CheckOK(); err != nil {
					t.Fatal(err)
				}
			}
			got[class] = c.tokensBetween(from, to)
		}
		low, all := got["background"]+got["batch"], got["interactive"]+got["background"]+got["batch"]
		share := float64(low) / float64(max(all, 1))
		t.Logf("tokens in %v: %v; the lower classes got %.1f %%, aged_share is %.0f %%", to.Sub(from).Round(time.Millisecond),
			got, 100*share, 100*want)
		if rig.Soaking() {
			return // the machine may be too slow to keep requests of all classes waiting
		}
		if share < want-margin || share > want+margin {
			t.Errorf("the lower classes got %.1f %% of the tokens, want %.0f %%", 100*share, 100*want)
		}
		if got["background"] == 0 || got["batch"] == 0 {
			t.Errorf("a class got no tokens: %v", got)
		}
	})
}

// TestBurstOfOneTenantDoesNotDelayAnother queues many requests of one tenant. Occasional
// requests of another tenant wait at most for two requests, even if the gateway overestimates
// the queued requests.
//
// QU-05: a burst of one tenant.
func TestBurstOfOneTenantDoesNotDelayAnother(t *testing.T) {
	bubble.TestAlone(t, func(t *testing.T) {
		d, full := soak(t)
		n := 30
		if full {
			n = 300
		}
		r := newRig(t, 2, engines.Config{Slots: places, PerToken: perToken,
			Script: func(string, []byte) engines.Script { return engines.Script{Tokens: batchTokens} }})
		r.Serve(rig.Settings{
			"tiers": r.Tiers(fmt.Sprintf("max_inflight: %d", places), ""),
			"auth":  "{ keys: [ " + tenant("loud", "weight: 1") + ", " + tenant("quiet", "weight: 1") + " ] }",
			"queue": `{ ` + waitLong + ` }`,
		})
		var loud, quiet replies
		var clients sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer clients.Wait()
		defer stop()
		var begun atomic.Int64
		loud.keepOutstanding(ctx, &clients, r, n, func(i int64) string {
			if begun.Add(1) <= int64(n) {
				return chat(fmt.Sprintf("%d is loud", i)) // the gateway expects hundreds of output tokens
			}
			return chat(fmt.Sprintf("%d is loud", i), fmt.Sprintf(`"max_tokens":%d`, batchTokens))
		}, bearer("loud")...)
		rig.Eventually(t, func() error {
			if n := len(loud.answers()); n < places {
				return fmt.Errorf("%d requests were answered", n)
			}
			return nil
		})
		some, end := context.WithTimeout(ctx, d/2)
		defer end()
		quiet.sendEvery(some, r, 300*time.Millisecond, func(i int64) string { return chat(fmt.Sprintf("%d is quiet", i)) },
			bearer("quiet")...)
		for _, a := range append(loud.answers(), quiet.answers()...) {
			if err := a.CheckOK(); err != nil {
				t.Fatal(err)
			}
		}
		served, waited := quantile(times(loud.answers(), service), 0.5), quantile(times(quiet.answers(), queued), 0.99)
		t.Logf("%d requests of the quiet tenant wait %v (p99) behind %d of the loud one; a request is served in %v, the "+
			"loud wait %v (p50)",
			len(quiet.answers()), waited, n, served, quantile(times(loud.answers(), queued), 0.5))
		if !rig.Soaking() && waited > 2*served { // in real time, the machine delays requests too
			t.Errorf("the quiet tenant waits %v, a request is served in %v", waited, served)
		}
	})
}
