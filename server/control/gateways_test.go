package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/memnet/memredis"
	"tierway/routing"
	"tierway/store"
)

// concurrencyLimit returns the number of requests that the first worker takes at once.
func concurrencyLimit(c *Control) int {
	return c.Snapshot().Pools[0].Routing.Snapshot(time.Now())[0].ConcurrencyLimit
}

// bounded has a tier with one worker that takes nine requests at once. Its arguments are the URL of
// Redis and the number of gateways.
const bounded = `
store: { sql: "", redis: %q }
gateways: %d
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: small, model: fake-7b, serves: [chat], workers: [ { name: w0, url: "http://127.0.0.1:1", max_inflight: 9, max_tokens_inflight: 900 } ] }
`

// TestBoundIsDividedAmongTheLiveGateways: Redis counts them, and the configuration has the minimum.
// Booked requests stay booked.
func TestBoundIsDividedAmongTheLiveGateways(t *testing.T) {
	for gateways, want := range map[int][2]int{1: {9, 5}, 2: {5, 5}, 3: {3, 3}} {
		t.Run(fmt.Sprint(gateways), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := newRedis(t)
				c := newTestControlOn(t, redis.Network(), fmt.Sprintf(bounded, redis.URL, gateways))
				var owned sync.WaitGroup
				ctx, stop := context.WithCancel(t.Context())
				defer owned.Wait()
				defer stop()
				owned.Go(func() { c.Stores.Redis.Run(ctx) })
				l, err := c.Snapshot().Pools[0].Routing.Acquire(&routing.Request{Now: time.Now()})
				if err != nil {
					t.Fatal(err)
				}
				if got := concurrencyLimit(c); got != want[0] {
					t.Errorf("one gateway takes %d, want %d", got, want[0])
				}
				other, err := store.OpenRedis(store.RedisConfig{URL: redis.URL, Gateway: "other",
					Dial: redis.Network().Dial})
				if err != nil {
					t.Fatal(err)
				}
				owned.Go(func() { other.Run(ctx) })
				until(t, "two live gateways", func() bool { return len(members(t, redis)) == 2 })
				owned.Go(func() { c.Stores.Redis.Run(ctx) }) // a start counts the gateways at once
				until(t, "this gateway counts both", func() bool { return c.Stores.Redis.Gateways() == 2 })
				c.Pools.updateGatewayCount()
				if got := concurrencyLimit(c); got != want[1] {
					t.Errorf("one of two gateways takes %d, want %d", got, want[1])
				}
				if got := c.Pools.Gauges()[0].Inflight; got != 1 {
					t.Errorf("%d are booked, want 1", got)
				}
				l.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
			})
		})
	}
}

// members returns the gateways that are registered in Redis.
func members(t *testing.T, redis *memredis.Server) []string {
	t.Helper()
	if !redis.Exists("tierway:gateways") {
		return nil
	}
	all, err := redis.ZMembers("tierway:gateways")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWithoutRedisTheConfiguredGatewaysDivideABound, and a repeated update changes nothing.
func TestWithoutRedisTheConfiguredGatewaysDivideABound(t *testing.T) {
	c := newTestControl(t, strings.Replace(fmt.Sprintf(bounded, "", 4), `, redis: ""`, "", 1))
	for range 2 {
		if got := concurrencyLimit(c); got != 3 {
			t.Errorf("it takes %d, want 3 of 9", got)
		}
		c.Pools.updateGatewayCount()
	}
}
