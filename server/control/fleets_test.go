package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/memnet/memredis"
	"tierway/routing"
	"tierway/store"
)

// newFleets returns the gateways of two fleets on one Redis, whose workers have the same names and other URLs.
func newFleets(t *testing.T, redis *memredis.Server) (a, b *Control) {
	t.Helper()
	a = newSharers(t, redis, 1, "")[0]
	b = newTestControlOn(t, redis.Network(), strings.ReplaceAll(fmt.Sprintf(sharedTiers, redis.URL, ""),
		"http://127.0.0.1:", "http://10.0.0.9:8"))
	for name, m := range poolOf(b).Members {
		poolOf(b).Routing.Observe(name, m, routing.Status{Up: true, CacheTokens: 1 << 20})
	}
	return a, b
}

// TestAnotherFleetOnTheSameRedisIsIgnoredAndReported: its workers have the same names, and are others. A gateway of the
// own fleet still counts.
func TestAnotherFleetOnTheSameRedisIsIgnoredAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newRedis(t)
		a, b := newFleets(t, redis)
		own := newSharers(t, redis, 1, "")[0]
		all := []*Control{a, b, own}
		var log strings.Builder
		a.Pools.log = slog.New(slog.NewTextHandler(&log, nil))
		now := time.Now()
		l := book(t, b, now, chainOf(1, 20))
		l.Answered(now, nil)
		gate := poolOf(b).Members["w1"].Gate
		for range 5 {
			if ticket, err := gate.Allow(0); err == nil {
				gate.Report(ticket, errors.New("the worker returned 500"))
			}
		}
		for range 3 {
			now = now.Add(shareIdle)
			for _, c := range all {
				c.Pools.sharing.exchangeIfDue(t.Context(), now)
			}
		}
		if peers, history := sums(a, now); peers != 0 || history != 0 {
			t.Errorf("%d requests and %d cached tokens of the other fleet count", peers, history)
		}
		if got := poolOf(a).Members["w1"].Gate.View().State; got != breaker.Closed {
			t.Errorf("the breaker is %v because of the other fleet's worker of that name", got)
		}
		v := a.Pools.Sharing()
		foreign := 0
		for _, g := range v.Gateways {
			if g.Foreign != (g.ID == b.Pools.redis.Gateway()) {
				t.Errorf("the view has %+v", g)
			}
			if g.Foreign {
				foreign++
			}
		}
		if len(v.Gateways) != 2 || foreign != 1 || a.Pools.foreignGateways() != 1 {
			t.Errorf("the view is %+v, and %d gateways are foreign", v, a.Pools.foreignGateways())
		}
		if strings.Contains(log.String(), "another fleet") {
			t.Errorf("reported at once, although a reload may be on its way: %s", log.String())
		}
		for range 3 {
			now = now.Add(reportFleetAfter)
			b.Pools.sharing.exchangeIfDue(t.Context(), now)
			a.Pools.sharing.exchangeIfDue(t.Context(), now)
		}
		if n := strings.Count(log.String(), "another fleet"); n != 1 {
			t.Errorf("reported %d times: %s", n, log.String())
		}
		l.Release(routing.Result{At: now})
	})
}

// TestOpeningOfAnotherServerIsNoSuspicion: one worker of the fleet has another URL here than there.
func TestOpeningOfAnotherServerIsNoSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSharers(t, newRedis(t), 1, "")[0]
		s, now := g.Pools.sharing, time.Now()
		m := poolOf(g).Members["w1"]
		if share(t, g, s, "other", 7, now); m.Gate.View().State != breaker.Closed {
			t.Errorf("another server: the breaker is %v", m.Gate.View().State)
		}
		if share(t, g, s, "same", poolOf(g).ServerOf("w1"), now); m.Gate.View().State != breaker.Open {
			t.Errorf("the same server: the breaker is %v", m.Gate.View().State)
		}
	})
}

// share applies the state of another gateway, which has opened its breaker of w1 at that server.
func share(t *testing.T, g *Control, s *sharing, id string, server uint64, now time.Time) {
	t.Helper()
	text, err := json.Marshal(gatewayState{Pools: map[string]sharedPool{"small": {
		Load: poolOf(g).Routing.AppendLoad(nil, now), Open: map[string]int64{"w1": 1000},
		OpenAt: map[string]uint64{"w1": server}}}})
	if err != nil {
		t.Fatal(err)
	}
	s.applyReceived(g.Snapshot().Pools, &store.Received{Loads: map[string]string{id: string(text)}}, now)
}
