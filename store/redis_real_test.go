package store

import (
	"fmt"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/tenants"
)

// realServer starts a redis-server, which ends with the test.
func realServer(t testing.TB) *redisServer {
	t.Helper()
	return &redisServer{t: t, url: backends.Redis(t).URL}
}

// TestSmokeRedis verifies on a redis-server what the other tests verify in memory: its scripts, its types and its
// errors are another program's.
func TestSmokeRedis(t *testing.T) {
	server := backends.Redis(t)
	t.Setenv(realRedis, server.Addr)
	for name, law := range map[string]func(*testing.T){
		"limits": func(t *testing.T) { onRedis(t, checkLimits) },
		"a fleet": func(t *testing.T) {
			onRedis(t, func(t *testing.T, s *redisServer) { fourGatewaysAdmitNoMoreThanOne(t, s) })
		},
		"cancelled requests": TestCancelledRequestsFreeTheirSlots,
		"lost budgets":       TestSpentBudgetsSurviveFlushAll,
		"invalid limits":     TestInvalidRedisContentsAreReplaced,
		"lost scripts":       TestLostScriptsAreLoadedAgain,
		"live gateways":      TestRedisCountsLiveGateways,
		"exchange":           TestExchangeReturnsWhatOthersPublished,
		"leases":             TestLoadExpiresWithItsGateway,
		"age of a journal":   TestJournalIsTrimmedByAge,
		"long journal":       TestLongLogIsReadInParts,
		"faults in exchange": TestExchangeSurvivesFaultsOfRedis,
		"responses":          TestResponseIsFoundByEveryGatewayForItsTenantOnly,
		"contested response": TestNeitherTenantMayUseAContestedResponse,
		"deleted response":   TestDeletedResponseIsNotFoundUntilItsIDIsUsedAgain,
		"bounded responses":  TestEachTenantHasABoundedNumberOfResponses,
		"expired responses":  TestExpiredResponsesLeaveTheIndex,
		"invalid responses":  TestOtherFormatsOfAResponseAreMisses,
		"sent response":      TestSentResponseDoesNotReplaceAKnownOne,
		"racing responses":   TestResponsesOfManyGatewaysRaceSafely,
		"out of memory":      func(t *testing.T) { onRedis(t, checkMemory) },
	} {
		t.Run(name, law)
	}
}

// checkLimits runs the cases that no second on Redis's clock changes, and rates of one a minute.
func checkLimits(t *testing.T, server *redisServer) {
	for _, name := range []string{"under way", "budgets", "budgets beyond a double's integers"} {
		server.Do("FLUSHALL")
		g := newGateway(t, server, "a", nil)
		g.run(cases()[name])
		if g.Degraded() || g.redis.failures.Load() != 0 {
			t.Errorf("%s: Redis is away", name)
		}
	}
	for limit, limits := range map[tenants.Limit]tenants.Limits{tenants.LimitRPM: {RPM: 1, Burst: 2},
		tenants.LimitTPM: {TPM: 5, TokenBurst: 10}} {
		server.Do("FLUSHALL")
		g := newGateway(t, server, "a", nil)
		for i := range 3 {
			v := g.take(callerWith(limits, tenants.Limits{}), 5, false)
			if i < 2 && v.Refused != "" || i == 2 && (v.Refused != limit || v.Wait <= 0 || v.Wait > time.Minute) {
				t.Errorf("%s: request %d is %+v", limit, i, v)
			}
		}
	}
}

// checkMemory: a Redis that is out of memory stores nothing, not even a part.
func checkMemory(t *testing.T, server *redisServer) {
	r, w := openResponses(t, server)
	server.Do("CONFIG SET maxmemory 1")
	defer server.Do("CONFIG SET maxmemory 0")
	r.Put(t.Context(), stored("acme", "resp_1"))
	if got := server.Do("DBSIZE"); got != ":0" || w.failures.Load() != 1 {
		t.Errorf("%s keys, %d failures", got, w.failures.Load())
	}
}

// TestRealRedisOutageIsNoticedAndEnds: a real server is killed, and hangs.
func TestRealRedisOutageIsNoticedAndEnds(t *testing.T) {
	backends.RequireSoak(t)
	for name, c := range map[string]struct{ begin, end func(*backends.RedisServer) }{
		"killed": {(*backends.RedisServer).Kill, (*backends.RedisServer).Restart},
		"hung":   {(*backends.RedisServer).Hang, (*backends.RedisServer).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			server := backends.Redis(t)
			w := openRedis(t, RedisConfig{URL: server.URL, Timeout: time.Second, Gateway: "gw"})
			l := w.limits(2)
			defer start(w.Run, l.Run)()
			o := &outage{t: t, redis: w, limits: l, caller: callerWith(
				tenants.Limits{RPM: 60_000, Burst: 60_000, Concurrent: 1000, DayTokens: 1 << 40}, tenants.Limits{})}
			o.ask()
			eventually(t, func() bool { return l.queue.Stats().Waiting == 0 })
			c.begin(server)
			eventually(t, func() bool { o.ask(); return !w.Up() })
			c.end(server)
			eventually(t, w.Up)
			o.ask()
			if got := w.states(); len(got) != 2 || w.log.lines() != 2 {
				t.Errorf("the log has:\n%s", w.log.String())
			}
			eventually(t, func() bool { // the spending of the outage is sent without help
				got, err := w.client.HGet(t.Context(), fmt.Sprintf("tierway:{x}:d%d", tenants.Day(time.Now())), "tokens").Int64()
				return err == nil && got == o.asked
			})
		})
	}
}

// TestRealClusterRunsAllScripts: the keys of each script are on one node of a cluster.
func TestRealClusterRunsAllScripts(t *testing.T) {
	backends.RequireSoak(t)
	node := backends.RedisCluster(t)
	if got := node.Do("CLUSTER ADDSLOTSRANGE 0 16383"); got != "+OK" {
		t.Fatal(got)
	}
	eventually(t, func() bool { return node.Do("SET probe x") == "+OK" })
	server := &redisServer{t: t, url: "redis+cluster://" + node.Addr}
	t.Run("limits", func(t *testing.T) {
		g := newGateway(t, server, "a", nil)
		c := callerWith(tenants.Limits{RPM: 6, Burst: 3, TPM: 600, Concurrent: 5, DayTokens: 100},
			tenants.Limits{RPM: 600, Concurrent: 5, MonthMoney: 100})
		for range 4 {
			g.take(c, 1, false)
		}
		if err := g.redis.beat(t.Context()); err != nil {
			t.Error(err)
		}
		if g.Degraded() || g.redis.failures.Load() != 0 || g.redis.Gateways() != 1 {
			t.Errorf("degraded: %v, %d failures", g.Degraded(), g.redis.failures.Load())
		}
	})
	t.Run("exchange", func(t *testing.T) { checkExchange(t, server) })
	t.Run("responses", func(t *testing.T) { // each script uses one slot, and responses use several
		r, w := openResponses(t, server)
		r.perShard = 1
		for i := range 100 {
			r.Put(t.Context(), stored("acme", fmt.Sprint("resp_", i)))
		}
		if !r.Put(t.Context(), stored("evil", "resp_99")) {
			t.Error("an id of two tenants is not contested")
		}
		r.Forget(t.Context(), "acme", "resp_98")
		slots := map[string]bool{}
		for _, key := range allKeys(t, r) {
			slots[node.Do("CLUSTER KEYSLOT "+key)] = true
		}
		if w.failures.Load() != 0 || len(slots) != responseShards {
			t.Errorf("%d failures; %d slots are used", w.failures.Load(), len(slots))
		}
		if n := len(allKeys(t, r)); n > 2*responseShards {
			t.Errorf("%d keys are kept", n)
		}
	})
}
