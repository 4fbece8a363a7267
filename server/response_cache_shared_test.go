package server

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/memnet/memredis"
)

// newSharedRig serves a cache whose answers are in Redis.
func newSharedRig(t *testing.T, url, more string, e http.Handler) *rig {
	t.Helper()
	return newSharedRigOf(t, cachingRig, url, more, e)
}

// newSharedRigOf is newSharedRig with other tiers.
func newSharedRigOf(t *testing.T, tiers, url, more string, e http.Handler) *rig {
	t.Helper()
	text := fmt.Sprintf("store: { sql: \"\", redis: %q }\nresponse_cache: { store: redis%s }\n", url, more)
	r := newRig(t, text+tiers, e)
	runStores(t, r)
	return r
}

// runStores runs the writers of answers to Redis until the test ends.
func runStores(t *testing.T, r *rig) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var owned sync.WaitGroup
	owned.Go(func() { r.control.Stores.Redis.Run(ctx) })
	owned.Go(func() { r.control.Stores.Answers.Run(ctx) })
	t.Cleanup(func() {
		stop()
		owned.Wait()
		time.Sleep(time.Second) // go-redis ends its goroutines a moment later
	})
}

// TestGatewaysShareAnswersInRedis: a second gateway answers what the first one has kept, until the answer expires or
// its tenant is purged. No KEYS or SCAN is needed. vLLM Router's fork sends KEYS.
func TestGatewaysShareAnswersInRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := memredis.Start(t, networkOf(t).Network).URL
		e := &numberingEngine{}
		a, b := newSharedRig(t, url, "", e), newSharedRig(t, url, "", e)
		const path = "/v1/chat/completions"
		body := cacheBodies[path]
		for i, c := range []struct {
			at   *rig
			more string
			want string
		}{{a, "}", cacheMiss}, {b, "}", exactHit}, {a, `,"stream":true}`, exactHit}, {b, `,"seed":1}`, cacheMiss},
			{a, `,"seed":1}`, exactHit}} {
			got, result := c.at.cached(path, body+c.more)
			if got.status != 200 || result != c.want {
				t.Errorf("%d: %d %s, want %s", i, got.status, result, c.want)
			}
		}
		if _, err := a.proxy.PurgeCache(t.Context(), "anonymous"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{cacheMiss, exactHit} {
			if _, result := b.cached(path, body+"}"); result != want {
				t.Errorf("%d after the purge: %s", i, result)
			}
		}
		if got, _ := a.cached(path, body+"}", "Cache-Control", "no-cache"); !strings.Contains(got.body, `\"4\"`) {
			t.Error(got.body)
		}
		if got, result := b.cached(path, body+"}"); result != exactHit || !strings.Contains(got.body, `\"4\"`) {
			t.Error(result, got.body)
		}
	})
}

// TestC7WithoutRedisRequestsMiss: while Redis is down, under load, no request fails or takes more than 20 ms longer.
// Answers are found again afterwards.
func TestC7WithoutRedisRequestsMiss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memredis.Start(t, networkOf(t).Network)
		e := &numberingEngine{}
		r := newSharedRig(t, server.URL, "", e)
		const path = "/v1/chat/completions"
		body := cacheBodies[path] + "}"
		r.cached(path, body)
		if _, result := r.cached(path, body); result != exactHit {
			t.Fatal(result)
		}
		server.Kill()
		took := slowestInLoop(t, 30, 8, func(int, int) httpAnswer { return r.post(path, body) })
		if n := e.count(); took > 20*time.Millisecond || n != 1+30*8 {
			t.Errorf("a request takes %v; %d at the engine", took, n)
		}
		if _, err := r.proxy.PurgeCache(t.Context(), "other"); err == nil {
			t.Error("a purge without Redis succeeds")
		}
		server.Restart(t)
		time.Sleep(5 * time.Second)
		r.cached(path, body)
		if _, result := r.cached(path, body); result != exactHit {
			t.Error(result)
		}
	})
}

// slowestInLoop runs a closed loop of clients and returns the longest time of a request. send gets the numbers of the
// client and the request. Each answer must have status 200.
func slowestInLoop(t *testing.T, clients, requests int, send func(client, request int) httpAnswer,
) (longest time.Duration) {
	t.Helper()
	times := make([]time.Duration, clients)
	eachClient(clients, requests, func(client, request int) {
		start := time.Now()
		if got := send(client, request); got.status != http.StatusOK || got.err != nil {
			t.Errorf("request %d of client %d: %d %s", request, client, got.status, got.body)
		}
		times[client] = max(times[client], time.Since(start))
	})
	return slices.Max(times)
}

// TestC7HangingRedisIsAMiss: while Redis accepts requests and answers none, under load, no request fails or takes more
// than 20 ms longer, whether Redis hangs from the start or later. Answers are found again afterwards.
func TestC7HangingRedisIsAMiss(t *testing.T) {
	for name, fromStart := range map[string]bool{"from the start": true, "later": false} {
		t.Run(name, func(t *testing.T) {
			defer dropPooledTimers()
			synctest.Test(t, func(t *testing.T) { checkHangingRedis(t, fromStart) })
		})
	}
}

// dropPooledTimers empties the pools of package sync. go-redis keeps timers there, which belong to a bubble.
func dropPooledTimers() {
	runtime.GC()
	runtime.GC()
}

func checkHangingRedis(t *testing.T, fromStart bool) {
	server := memredis.Start(t, networkOf(t).Network)
	if fromStart {
		server.Hang()
	}
	e := &numberingEngine{}
	r := newSharedRig(t, server.URL, "", e)
	const path = "/v1/chat/completions"
	body := cacheBodies[path] + "}"
	if !fromStart {
		for _, want := range []string{cacheMiss, exactHit} {
			if _, result := r.cached(path, body); result != want {
				t.Fatal(result)
			}
		}
		server.Hang()
	}
	before := e.count()
	const rounds, clients, each = 3, 60, 3 // more clients than connections to Redis
	for round := range rounds {            // with pauses, in which Redis is probed
		took := slowestInLoop(t, clients, each, func(int, int) httpAnswer { return r.post(path, body) })
		if took > 20*time.Millisecond {
			t.Errorf("round %d: a request takes %v", round, took)
		}
		time.Sleep(time.Second)
	}
	if n := e.count() - before; n != rounds*clients*each {
		t.Errorf("%d requests at the engine: Redis answers", n)
	}
	if n := r.Inflight(); n != 0 {
		t.Errorf("%d requests in flight", n)
	}
	server.Resume()
	time.Sleep(5 * time.Second)
	r.cached(path, body)
	if _, result := r.cached(path, body); result != exactHit {
		t.Error(result)
	}
}

// TestC8OffSendsRedisNothing: requests of a tier without a cache send Redis no command, although other tiers may keep
// answers there.
func TestC8OffSendsRedisNothing(t *testing.T) {
	for _, on := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := memredis.Start(t, networkOf(t).Network)
			tiers := cachingRig
			if !on {
				tiers = strings.Replace(tiers, "    response_cache: { exact: {} }\n", "", 1)
			}
			r := newSharedRigOf(t, tiers, server.URL, "", &numberingEngine{})
			time.Sleep(time.Second)
			synctest.Wait()
			before := server.CommandCount()
			for range 10 { // without virtual time, in which the gateway renews its lease
				r.post("/v1/chat/completions", cacheBodies["/v1/chat/completions"]+"}")
			}
			synctest.Wait()
			if n := server.CommandCount() - before; (n >= 10) != on || !on && n > 0 {
				t.Errorf("%d commands for 10 requests, with a cache: %t", n, on)
			}
		})
	}
}

// TestExplainWritesNothingToRedis: explain looks for an answer without a write, also for a tenant without answers.
func TestExplainWritesNothingToRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memredis.Start(t, networkOf(t).Network)
		r := newSharedRig(t, server.URL, "", &numberingEngine{})
		const path = "/v1/chat/completions"
		body := cacheBodies[path] + "}"
		ask := func(want string, header ...string) {
			t.Helper()
			if e := r.explained(path, body, header...); e.Cache == nil || e.Cache.Result != want {
				t.Errorf("explain states %+v, want %s", e.Cache, want)
			}
		}
		ask(cacheMiss)
		ask("bypass", "Cache-Control", "no-cache")
		for _, key := range server.Keys() {
			if strings.Contains(key, "{answers-") {
				t.Errorf("explain has written %s", key)
			}
		}
		r.cached(path, body)
		synctest.Wait()
		ask(exactHit)
	})
}

// TestKeysOfAnswersExpire: no key of a tenant's answers stays in Redis. The generation lives as long as the answers,
// and each new answer renews it.
func TestKeysOfAnswersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memredis.Start(t, networkOf(t).Network)
		r := newSharedRigOf(t, strings.Replace(cachingRig, "exact: {}", "exact: { ttl: 1000h }", 1), server.URL, "",
			&numberingEngine{})
		check := func(generation time.Duration) {
			t.Helper()
			synctest.Wait()
			n := 0
			for _, key := range server.Keys() {
				if !strings.Contains(key, "{answers-") {
					continue
				}
				n++
				if ttl := server.TTL(key); ttl == 0 || strings.HasSuffix(key, ":generation") && ttl != generation {
					t.Errorf("%s expires after %v", key, ttl)
				}
			}
			if n == 0 {
				t.Error("Redis has no keys of answers")
			}
		}
		const path = "/v1/chat/completions"
		r.cached(path, cacheBodies[path]+"}", "Cache-Control", "no-store")
		check(30 * 24 * time.Hour)
		r.cached(path, cacheBodies[path]+"}")
		time.Sleep(time.Second)
		check(1000 * time.Hour)
		if _, err := r.proxy.PurgeCache(t.Context(), "anonymous"); err != nil {
			t.Fatal(err)
		}
		check(30 * 24 * time.Hour)
	})
}

// TestEncryptedAnswersNeedTheSecret: gateways with one secret share answers, and one with another secret misses.
func TestEncryptedAnswersNeedTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := memredis.Start(t, networkOf(t).Network).URL
		e := &numberingEngine{}
		const path = "/v1/chat/completions"
		body := cacheBodies[path] + "}"
		for i, c := range []struct{ letter, want string }{
			{"a", cacheMiss}, {"a", exactHit}, {"b", cacheMiss}, {"b", exactHit},
		} {
			r := newSharedRig(t, url, ", encrypt: "+strings.Repeat(c.letter, 32), e)
			if got, result := r.cached(path, body); got.status != 200 || result != c.want {
				t.Errorf("%d: %d %s, want %s", i, got.status, result, c.want)
			}
		}
	})
}
