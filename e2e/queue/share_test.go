package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
)

// key returns the key of a tenant.
func key(tenant string) string { return "the-key-of-" + tenant }

// bearer returns the headers of a tenant's request.
func bearer(tenant string) []string { return []string{"Authorization", "Bearer " + key(tenant)} }

// tenant returns the entry of a tenant in auth.keys. more are further keys in YAML.
func tenant(name, more string) string {
	return fmt.Sprintf("{ name: %s, sha256: %s, %s }", name, rig.Digest(key(name)), more)
}

// tokensBetween returns the tokens of the requests that were answered between two times.
func (c *replies) tokensBetween(from, to time.Time) (n int) {
	for _, a := range c.answers() {
		if a.Done.After(from) && !a.Done.After(to) {
			n += tokens(a)
		}
	}
	return n
}

// TestTenantsShareByWeight: while two tenants have waiting requests, each gets tokens in
// proportion to its weight, although one sends ten times the requests with prompts ten times as
// long. This holds for every policy and for either tenant with the larger weight.
func TestTenantsShareByWeight(t *testing.T) {
	d, _ := soak(t)
	for _, c := range []struct {
		policy       string
		small, large int // the weights of the light tenant and of the heavy one
	}{
		{"chwbl", 3, 1},
		{"least_load", 3, 1},
		{"least_load", 1, 3},
	} {
		bubble.Run(t, fmt.Sprintf("%s, %d to %d", c.policy, c.small, c.large), func(t *testing.T) {
			checkShare(t, c.policy, d/2, c.small, c.large)
		})
	}
}

// checkShare checks the tokens of two tenants during d, which must be long enough that a single
// request of the heavy tenant does not matter.
func checkShare(t *testing.T, policy string, d time.Duration, small, large int) {
	const (
		margin       = 0.05
		slots        = 2 * places
		light, heavy = 40, 400                  // requests outstanding
		turn         = 12 * time.Millisecond    // per output token; an answer waits for two
		prompt       = "some words to be read " // twenty times in a light prompt
	)
	r := newRig(t, 2, engines.Config{Slots: slots, PerToken: turn,
		Script: func(string, []byte) engines.Script { return engines.Script{Tokens: 3} }})
	r.Serve(rig.Settings{
		"tiers": r.Tiers(fmt.Sprintf("max_inflight: %d", slots), ""),
		"auth": "{ keys: [ " + tenant("light", fmt.Sprintf("weight: %d", small)) + ", " +
			tenant("heavy", fmt.Sprintf("weight: %d", large)) + " ] }",
		"policy": "{ name: " + policy + " }",
		"queue":  "{ " + waitLong + " }",
	})
	var few, many replies
	var clients sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer clients.Wait()
	defer stop()
	body := func(times int) func(int64) string {
		return func(i int64) string {
			return chat(fmt.Sprintf("%d: %s", i, strings.Repeat(prompt, 20*times)), `"max_tokens":3`)
		}
	}
	few.keepOutstanding(ctx, &clients, r, light, body(1), bearer("light")...)
	many.keepOutstanding(ctx, &clients, r, heavy, body(10), bearer("heavy")...)
	rig.Eventually(t, func() error {
		// The first 2 × slots requests of one tenant may take all slots before the other tenant
		// sends any. The other tenant then gets more until the shares are even: up to ten light
		// prompts for each heavy one, three times as often.
		if len(many.answers()) < 4*slots || len(few.answers()) < (4+2*10*3)*slots {
			return fmt.Errorf("%d and %d were answered", len(few.answers()), len(many.answers()))
		}
		return nil
	})
	from := time.Now()
	rig.Pause(ctx, d)
	to := time.Now()
	for _, a := range append(few.answers(), many.answers()...) {
		if err := a.CheckOK(); err != nil {
			t.Fatal(err)
		}
	}
	fewTokens, manyTokens := few.tokensBetween(from, to), many.tokensBetween(from, to)
	got, want := float64(fewTokens)/float64(manyTokens), float64(small)/float64(large)
	t.Logf("%s, weights %d : %d, tokens %d : %d in %v, %.3f where %.3f is fair (%+.1f %%)", policy, small, large,
		fewTokens, manyTokens, to.Sub(from).Round(time.Millisecond), got, want, 100*(got/want-1))
	// In real time, the machine may be too slow to keep requests of both tenants waiting.
	if !rig.Soaking() && (got < want*(1-margin) || got > want*(1+margin)) {
		t.Errorf("the light tenant has %.3f of the heavy one's tokens, %.3f is fair", got, want)
	}
}
