package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// stored returns a response of a tenant at the worker w0.
func stored(tenant, id string) StoredResponse {
	return StoredResponse{ID: id, Tenant: tenant, Pool: "small", Worker: "w0", Model: "auto"}
}

// openResponses returns the directory of a new gateway on a Redis.
func openResponses(t testing.TB, server *redisServer) (*Responses, *watched) {
	t.Helper()
	w := openRedis(t, server.config("gw"))
	return NewResponses(ResponsesConfig{Redis: w.Redis}), w
}

// get returns what Redis, which must answer, knows about a response.
func get(t testing.TB, r *Responses, tenant, id string) (s StoredResponse, known bool) {
	t.Helper()
	s, known, err := r.Get(t.Context(), tenant, id)
	if err != nil {
		t.Error(err)
	}
	return s, known
}

func TestResponseIsFoundByEveryGatewayForItsTenantOnly(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		a, _ := openResponses(t, server)
		b, _ := openResponses(t, server)
		for id, at := range map[string]StoredResponse{
			"resp_1": stored("acme", "resp_1"),
			"conv_1": {ID: "conv_1", Tenant: "acme", Pool: `a "pool":1`, Worker: "w:0", Model: "", Server: 1<<63 + 5},
		} {
			if a.Put(t.Context(), at) {
				t.Errorf("%s is contested at once", id)
			}
			if got, known := get(t, b, "acme", id); !known || got != at {
				t.Errorf("%s is %+v, %v", id, got, known)
			}
			if got, known := get(t, b, "evil", id); !known || !got.Foreign || got.Worker != "" {
				t.Errorf("for another tenant %s is %+v, %v", id, got, known)
			}
		}
		if got, known := get(t, b, "acme", "resp_2"); known {
			t.Errorf("an unknown response is %+v", got)
		}
		again := stored("acme", "resp_1")
		again.Worker = "w1"
		if b.Put(t.Context(), again) {
			t.Error("a repeated id of its tenant is contested")
		}
		if got, _ := get(t, a, "acme", "resp_1"); got != again {
			t.Errorf("after a repetition it is %+v", got)
		}
	})
}

// TestNeitherTenantMayUseAContestedResponse: which of the two responses the worker has is unknown.
func TestNeitherTenantMayUseAContestedResponse(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		for i, tenant := range []string{"acme", "evil", "acme", "evil", "third"} {
			if contested := r.Put(t.Context(), stored(tenant, "resp_1")); contested != (i > 0) {
				t.Errorf("%d. Put by %s: contested is %v", i+1, tenant, contested)
			}
		}
		r.Forget(t.Context(), "acme", "resp_1")
		for _, tenant := range []string{"acme", "evil", "third"} {
			if got, known := get(t, r, tenant, "resp_1"); !known || !got.Foreign {
				t.Errorf("for %s it is %+v, %v", tenant, got, known)
			}
		}
	})
}

// TestDeletedResponseIsNotFoundUntilItsIDIsUsedAgain: the gateway that created it must not use its own
// memory.
func TestDeletedResponseIsNotFoundUntilItsIDIsUsedAgain(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		r.Put(t.Context(), stored("acme", "resp_1"))
		r.Forget(t.Context(), "evil", "resp_1")
		if got, _ := get(t, r, "acme", "resp_1"); got.Foreign {
			t.Error("another tenant deletes it")
		}
		r.Forget(t.Context(), "acme", "resp_1")
		if got, known := get(t, r, "acme", "resp_1"); !known || !got.Foreign {
			t.Errorf("after its deletion it is %+v, %v", got, known)
		}
		if life := server.Do("PTTL " + keyOf("resp_1")); life < ":2" {
			t.Errorf("the mark expires in %s", life)
		}
		if r.Put(t.Context(), stored("evil", "resp_1")) {
			t.Error("the id of a deleted response is contested")
		}
		if got, known := get(t, r, "evil", "resp_1"); !known || got.Foreign {
			t.Errorf("for its next tenant it is %+v, %v", got, known)
		}
		if got := server.Do("ZCARD " + indexOf("acme", "resp_1")); got != ":0" {
			t.Errorf("the index of its former tenant has %s", got)
		}
		r.Forget(t.Context(), "acme", "resp_2") // nothing there
		if got := server.Do("EXISTS " + keyOf("resp_2")); got != ":0" {
			t.Error("an unknown response leaves a key")
		}
	})
}

func keyOf(id string) string           { key, _ := responseKeys("", id); return key }
func indexOf(tenant, id string) string { _, index := responseKeys(tenant, id); return index }

// allKeys returns the keys of the gateways' responses.
func allKeys(t *testing.T, r *Responses) []string {
	t.Helper()
	keys, err := r.redis.client.Keys(t.Context(), "*responses*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// TestEachTenantHasABoundedNumberOfResponses: the oldest go first, deleted ones count, and no tenant
// displaces another tenant's.
func TestEachTenantHasABoundedNumberOfResponses(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		r.perShard = 8
		const limit, many = 8 * responseShards, 1000
		r.Put(t.Context(), stored("small", "resp_small"))
		for i := range many {
			id := fmt.Sprint("resp_", i)
			r.Put(t.Context(), stored("busy", id))
			time.Sleep(time.Microsecond) // the order is that of Redis's clock
			if i%3 == 0 {
				r.Forget(t.Context(), "busy", id)
			}
		}
		entries, indexes := 0, 0
		for _, key := range allKeys(t, r) {
			life, err := r.redis.client.PTTL(t.Context(), key).Result()
			if err != nil || life <= responseLife-time.Hour || life > responseLife {
				t.Errorf("%s expires in %v, %v", key, life, err)
			}
			if strings.Contains(key, ":id:") {
				entries++
			} else {
				indexes++
			}
		}
		if entries > limit+1 || entries < limit*9/10 || indexes > responseShards+1 {
			t.Errorf("%d responses and %d indexes are kept; the limit is %d", entries, indexes, limit)
		}
		if got, known := get(t, r, "small", "resp_small"); !known || got.Foreign {
			t.Error("a busy tenant displaces another tenant's response")
		}
		for i := many - limit/4; i < many; i++ { // the hash distributes them unevenly
			if got, known := get(t, r, "busy", fmt.Sprint("resp_", i)); !known || got.Foreign != (i%3 == 0) {
				t.Errorf("one of the newest is lost: %d is %+v, %v", i, got, known)
			}
		}
		if got, known := get(t, r, "busy", "resp_1"); known {
			t.Errorf("the oldest is still %+v", got)
		}
	})
}

// TestExpiredResponsesLeaveTheIndex: an index that is in use does not expire itself.
func TestExpiredResponsesLeaveTheIndex(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		index := indexOf("acme", "resp_1")
		server.Do(fmt.Sprintf("ZADD %s %d %s", index, time.Now().Add(-responseLife-time.Minute).UnixMicro(), hashed("x")))
		r.Put(t.Context(), stored("acme", "resp_1"))
		if got := server.Do("ZCARD " + index); got != ":1" {
			t.Errorf("the index has %s", got)
		}
	})
}

// TestOtherFormatsOfAResponseAreMisses: another version of the program may use them. Put replaces them.
func TestOtherFormatsOfAResponseAreMisses(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, w := openResponses(t, server)
		key, index := keyOf("resp_1"), indexOf("acme", "resp_1")
		tenant := hashed("acme")
		for _, spoil := range []string{
			"SET " + key + " 2:o:" + tenant + `:[]`, "SET " + key + " 10:o:" + tenant + `:[]`, "SET " + key + ` ""`,
			"SET " + key + " x", "SET " + key + " 1:o:" + tenant, "SET " + key + " 1:o:" + tenant + ":",
			"SET " + key + " 1:o:" + tenant + `:["a"]`, "SET " + key + " 1:o:" + tenant + ":{}",
			"RPUSH " + key + " x", "HSET " + key + " a b", "SADD " + key + " x", "SET " + index + " x", "RPUSH " + index + " x",
		} {
			server.Do("FLUSHALL")
			server.Do(spoil)
			for range 2 * tripAfter {
				if got, known := get(t, r, "acme", "resp_1"); known {
					t.Errorf("after %s it is %+v", spoil, got)
				}
				r.Forget(t.Context(), "evil", "resp_1")
			}
			if r.Put(t.Context(), stored("acme", "resp_1")) {
				t.Errorf("after %s it is contested", spoil)
			}
			if got, known := get(t, r, "acme", "resp_1"); !known || got != stored("acme", "resp_1") {
				t.Errorf("after %s and Put it is %+v, %v", spoil, got, known)
			}
			if w.failures.Load() != 0 || !w.Up() {
				t.Fatalf("%s counts as a failure of Redis", spoil)
			}
		}
	})
}

// TestRedisHasNoIDsOrTenantsInClear reads all keys and values.
func TestRedisHasNoIDsOrTenantsInClear(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		const id, tenant = "resp_canary_of_this_test", "tenant-canary-of-this-test"
		r.Put(t.Context(), stored(tenant, id))
		r.Put(t.Context(), stored(tenant, id+"2"))
		r.Put(t.Context(), stored("evil", id+"2"))
		r.Put(t.Context(), stored(tenant, id+"3"))
		r.Forget(t.Context(), tenant, id+"3")
		keys, err := r.redis.client.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) < 4 {
			t.Fatal(keys, err)
		}
		for _, key := range keys {
			value, err := r.redis.client.Get(t.Context(), key).Result()
			if !strings.Contains(key, ":id:") { // an index
				var members []string
				members, err = r.redis.client.ZRange(t.Context(), key, 0, -1).Result()
				value = strings.Join(members, " ")
			}
			if err != nil || strings.Contains(key+value, "canary") || strings.Contains(key+value, "evil") {
				t.Errorf("%s has %q, %v", key, value, err)
			}
			if !strings.HasPrefix(key, "tierway:v1:") {
				t.Errorf("the key %s has no version", key)
			}
		}
		whole := sha256.Sum256([]byte(id))
		key := keyOf(id)
		if got := server.Do("EXISTS " + key); got != ":1" || !strings.HasSuffix(key, hex.EncodeToString(whole[:16])) {
			t.Errorf("%s exists: %s", key, got)
		}
	})
}

// TestLostScriptsOfResponsesAreLoadedAgain: a restarted Redis has no scripts.
func TestLostScriptsOfResponsesAreLoadedAgain(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, w := openResponses(t, server)
		for i := range 3 {
			server.Do("SCRIPT FLUSH")
			r.Put(t.Context(), stored("acme", "resp_1"))
			_, known := get(t, r, "acme", "resp_1")
			server.Do("SCRIPT FLUSH")
			r.Forget(t.Context(), "acme", "resp_1")
			got, _ := get(t, r, "acme", "resp_1")
			if !known || !got.Foreign || w.failures.Load() != 0 {
				t.Errorf("round %d: known %v, then %+v, %d failures", i, known, got, w.failures.Load())
			}
		}
	})
}

// RS-01, RS-02: during an outage each method takes at most the timeout, and a look-up fails, which is no miss.
// Afterwards the gateway's responses are sent to Redis, the newest last, without the ones that Redis knows better.
func TestResponsesReachRedisAfterAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(*line)
		longest    time.Duration
	}{
		"killed": {(*line).kill, (*line).restart, 0},
		"hung":   {(*line).hang, (*line).resume, DefaultRedisTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t)
				w := l.open(t, RedisConfig{})
				r, other := NewResponses(ResponsesConfig{Redis: w.Redis}), NewResponses(ResponsesConfig{
					Redis: l.open(t, RedisConfig{Gateway: "other"}).Redis})
				own := []StoredResponse{stored("acme", "resp_old"), stored("acme", "resp_deleted"), stored("acme", "resp_both")}
				r.OnBack(func() []StoredResponse { return own })
				defer start(w.Run, r.Run)()
				r.Put(t.Context(), own[1])
				c.begin(l)
				for range 2 * tripAfter {
					began := time.Now()
					_, known, err := r.Get(t.Context(), "acme", "resp_old")
					if took := time.Since(began); known || err == nil || took > c.longest {
						t.Errorf("in the outage, after %v: known %v, %v", took, known, err)
					}
				}
				if r.Put(t.Context(), own[0]) {
					t.Error("during the outage a response is contested")
				}
				r.Forget(t.Context(), "acme", "resp_old")
				time.Sleep(2 * time.Second)
				c.end(l)
				other.Put(t.Context(), stored("evil", "resp_both")) // another gateway is first
				other.Put(t.Context(), own[1])
				other.Forget(t.Context(), "acme", "resp_deleted")
				time.Sleep(2 * time.Second)
				if got, known := get(t, other, "acme", "resp_old"); !known || got != own[0] {
					t.Errorf("a response of the outage is %+v, %v", got, known)
				}
				if got, known := get(t, other, "evil", "resp_both"); !known || !got.Foreign { // sent last
					t.Errorf("a response of two tenants is %+v, %v", got, known)
				}
				if got, known := get(t, other, "acme", "resp_deleted"); !known || !got.Foreign {
					t.Errorf("a response that another gateway deleted is %+v, %v", got, known)
				}
			})
		})
	}
}

// A response whose Put fails without an outage is sent again, once and alone. A deleted one is not.
func TestAFailedPutIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		w := l.open(t, RedisConfig{})
		r, other := NewResponses(ResponsesConfig{Redis: w.Redis}), NewResponses(ResponsesConfig{
			Redis: l.open(t, RedisConfig{Gateway: "other"}).Redis})
		r.OnBack(func() []StoredResponse { t.Error("all responses are sent"); return nil })
		hook, refused := &failing{}, errors.New("LOADING Redis is loading the dataset in memory")
		w.client.AddHook(hook)
		defer start(w.Run, r.Run)()
		put := func(ids ...string) {
			hook.err.Store(&refused)
			for _, id := range ids {
				r.Put(t.Context(), stored("acme", id))
			}
			hook.err.Store(nil)
		}
		put("resp_1", "resp_2", "resp_deleted")
		if _, known := get(t, other, "acme", "resp_1"); known {
			t.Fatal("the call has not failed")
		}
		r.Forget(t.Context(), "acme", "resp_deleted")
		time.Sleep(probeEvery * 3 / 2) // between two rounds
		for _, id := range []string{"resp_1", "resp_2"} {
			if got, known := get(t, other, "acme", id); !known || got != stored("acme", id) {
				t.Errorf("%s is %+v, %v", id, got, known)
			}
		}
		if got, known := get(t, other, "acme", "resp_deleted"); known && !got.Foreign {
			t.Errorf("a deleted response is %+v", got)
		}
		before := hook.calls.Load()
		time.Sleep(10 * probeEvery)
		if n := hook.calls.Load() - before; n != 0 {
			t.Errorf("afterwards %d commands are sent", n)
		}
		put("resp_3", "resp_4")
		hook.err.Store(&refused)
		before = hook.calls.Load()
		time.Sleep(10 * probeEvery)
		if n := hook.calls.Load() - before; n > 10 { // one each round
			t.Errorf("in 10 rounds that fail %d commands are sent", n)
		}
	})
}

// TestSentResponseDoesNotReplaceAKnownOne: the entry in Redis may have a newer worker.
func TestSentResponseDoesNotReplaceAKnownOne(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		newer := stored("acme", "resp_1")
		newer.Worker = "w1"
		r.Put(t.Context(), newer)
		server.Do("SET " + keyOf("resp_2") + " 2:x")
		both := stored("acme", "resp_3")
		r.Put(t.Context(), both)
		both.Foreign = true // another tenant got the id during the outage
		r.OnBack(func() []StoredResponse {
			return []StoredResponse{stored("acme", "resp_1"), stored("acme", "resp_2"), both}
		})
		r.all = true
		r.sendUnsent(t.Context())
		if got, _ := get(t, r, "acme", "resp_1"); got != newer {
			t.Errorf("it is %+v", got)
		}
		if got := server.Do("STRLEN " + keyOf("resp_2")); got != ":3" {
			t.Errorf("a value of a newer program is replaced: %s", got)
		}
		if got, known := get(t, r, "acme", "resp_3"); !known || !got.Foreign {
			t.Errorf("an id that the gateway knows to be contested is %+v, %v", got, known)
		}
	})
}

// TestResponsesOfManyGatewaysRaceSafely: two tenants that get one id at the same time never both use it.
func TestResponsesOfManyGatewaysRaceSafely(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		tenants := []string{"acme", "evil"}
		var all [2]*Responses
		for i := range all {
			all[i], _ = openResponses(t, server)
		}
		for i := range 50 {
			id := fmt.Sprint("resp_", i)
			var wg sync.WaitGroup
			for j, r := range all {
				wg.Go(func() { r.Put(t.Context(), stored(tenants[j], id)) })
			}
			wg.Wait()
			for j, r := range all {
				if got, known := get(t, r, tenants[j], id); !known || !got.Foreign {
					t.Fatalf("%s of %s is %+v, %v", id, tenants[j], got, known)
				}
			}
		}
	})
}

// TestInvalidIDsAreNotStored: longer ids are not an engine's.
func TestInvalidIDsAreNotStored(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, _ := openResponses(t, server)
		for _, id := range []string{"", strings.Repeat("x", maxStoredID+1)} {
			r.Put(t.Context(), stored("acme", id))
			if got, known := get(t, r, "acme", id); known {
				t.Errorf("%d bytes: %+v", len(id), got)
			}
		}
		if keys := allKeys(t, r); len(keys) != 0 {
			t.Errorf("Redis has %q", keys)
		}
	})
}

// RS-05: errors of Redis fail no request.
func TestRedisErrorsAreNoMisses(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		r, w := openResponses(t, server)
		hook := &failing{}
		w.client.AddHook(hook)
		for _, err := range []error{redis.Nil, errors.New("LOADING Redis is loading the dataset in memory"),
			context.DeadlineExceeded} {
			hook.err.Store(&err)
			r.Put(t.Context(), stored("acme", "resp_1"))
			got, known, failed := r.Get(t.Context(), "acme", "resp_1")
			if known || (failed != nil) != !errors.Is(err, redis.Nil) {
				t.Errorf("with %v it is %+v, %v", err, got, failed)
			}
			r.Forget(t.Context(), "acme", "resp_1")
		}
	})
}

// BenchmarkStoredResponses measures the time that a response adds to its request, and that a look-up does.
func BenchmarkStoredResponses(b *testing.B) {
	r, w := openResponses(b, realServer(b))
	ids := make([]string, 50_000)
	for i := range ids {
		ids[i] = fmt.Sprintf("resp_%036d", i)
	}
	b.Run("put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			r.Put(b.Context(), stored("acme", ids[i%len(ids)]))
		}
	})
	b.Run("get", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, _, _ = r.Get(b.Context(), "acme", ids[i%len(ids)])
		}
	})
	entry, _ := w.client.MemoryUsage(b.Context(), keyOf(ids[0])).Result()
	index, _ := w.client.MemoryUsage(b.Context(), indexOf("acme", ids[0])).Result()
	n, _ := w.client.ZCard(b.Context(), indexOf("acme", ids[0])).Result()
	b.Logf("an entry has %d bytes, an index of %d entries %d", entry, n, index)
}
