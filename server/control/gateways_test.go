package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"tierway/routing"
	"tierway/store"
)

// bound is how many requests the first worker takes at once.
func bound(c *Control) int {
	return c.Snapshot().Pools[0].Routing.Snapshot(time.Now())[0].ConcurrencyLimit
}

// bounded is a tier whose worker takes nine requests at once. It wants a Redis and
// the number of gateways.
const bounded = `
store: { sql: "", redis: %q }
gateways: %d
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, serves: [chat], workers: [ { name: w0, url: "http://127.0.0.1:1", max_inflight: 9, max_tokens_inflight: 900 } ] }
`

// TestABoundIsDividedAmongTheGatewaysThatLive: Redis counts them, and the
// configuration says how many there are at least. What is booked stays.
func TestABoundIsDividedAmongTheGatewaysThatLive(t *testing.T) {
	mini := miniredis.RunT(t)
	url := "redis://" + mini.Addr()
	for gateways, want := range map[int][2]int{1: {9, 5}, 2: {5, 5}, 3: {3, 3}} {
		t.Run(fmt.Sprint(gateways), func(t *testing.T) {
			c := newTestControl(t, fmt.Sprintf(bounded, url, gateways))
			var owned sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			defer owned.Wait()
			defer stop()
			owned.Go(func() { c.Stores.Redis.Run(ctx) })
			l, err := c.Snapshot().Pools[0].Routing.Acquire(&routing.Request{Now: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			if got := bound(c); got != want[0] {
				t.Errorf("alone it takes %d, want %d", got, want[0])
			}
			other, err := store.OpenRedis(store.RedisConfig{URL: url, Gateway: "other"})
			if err != nil {
				t.Fatal(err)
			}
			owned.Go(func() { other.Run(ctx) })
			until(t, "two gateways live", func() bool { return len(members(t, mini)) == 2 })
			owned.Go(func() { c.Stores.Redis.Run(ctx) }) // it asks at once, and not in some seconds
			until(t, "this one knows", func() bool { return c.Stores.Redis.Gateways() == 2 })
			c.Pools.shareAgain()
			if got := bound(c); got != want[1] {
				t.Errorf("beside another it takes %d, want %d", got, want[1])
			}
			if got := c.Pools.Gauges()[0].Inflight; got != 1 {
				t.Errorf("%d are booked, want 1", got)
			}
			l.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
		})
	}
}

// members are the gateways that Redis knows of.
func members(t *testing.T, mini *miniredis.Miniredis) []string {
	t.Helper()
	if !mini.Exists("tierway:gateways") {
		return nil
	}
	all, err := mini.ZMembers("tierway:gateways")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWithoutRedisTheFileDividesABound: nobody else counts, and asking again changes
// nothing.
func TestWithoutRedisTheFileDividesABound(t *testing.T) {
	c := newTestControl(t, strings.Replace(fmt.Sprintf(bounded, "", 4), `, redis: ""`, "", 1))
	for range 2 {
		if got := bound(c); got != 3 {
			t.Errorf("it takes %d, want 3 of 9", got)
		}
		c.Pools.shareAgain()
	}
}
