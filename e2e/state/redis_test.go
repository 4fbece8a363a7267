package state

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/rig"
	"tierway/engines"
)

// recovery is the maximum time from the return of Redis to its use.
const recovery = 2 * time.Second

// TestRedisOutageFailsNoRequest kills or suspends Redis under 200 requests per second and brings it
// back. All requests succeed without a long delay, each change is one log line, and Redis is used
// again at once.
//
// RS-01, RS-02, RS-11.
func TestRedisOutageFailsNoRequest(t *testing.T) {
	for name, way := range map[string]struct{ away, back func(*backends.RedisServer) }{
		"killed": {(*backends.RedisServer).Kill, (*backends.RedisServer).Restart},
		"hung":   {(*backends.RedisServer).Hang, (*backends.RedisServer).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, engines.Config{})
			redis := backends.Redis(t)
			p := r.serve(rig.Settings{"store": stores(backends.Database(t), redis.URL),
				"auth": auth("app", "rpm: 1000000, tpm: 1000000000, concurrent: 64")})
			waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
			before := len(linesWith(p, "redis"))
			l := r.newLoad(rig.TenantKey, p.BaseURL)
			l.startChats(200)
			begin := time.Now()
			pause(time.Second)

			gone := time.Now()
			way.away(redis)
			waitForMetric(t, p, "tierway_ratelimit_degraded", 1, rig.Patience)
			noticed := time.Since(gone)
			waitForMetric(t, p, "tierway_redis_up", 0, rig.Patience)
			waitForDegraded(t, p, "redis")
			if status := p.GetStatus("/livez"); status != http.StatusOK {
				t.Errorf("without Redis /livez is %d", status)
			}
			pause(soak(t))
			back := time.Now()
			way.back(redis)
			recovered := waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
			waitForMetric(t, p, "tierway_ratelimit_degraded", 0, rig.Patience)
			if recovered > recovery {
				t.Errorf("Redis was used again %v after it was back", recovered)
			}
			pause(time.Second)
			l.end()
			r.checkNothingBooked(64, p.BaseURL)

			usual, without := l.times(begin, gone), l.times(gone, back)
			// A go-redis client with its defaults stalls for seconds here.
			if worst, most := without.at(1), usual.at(0.99)+500*time.Millisecond; worst > most {
				t.Errorf("without Redis an answer took %v", worst)
			}
			if mid := without.at(0.5); mid > usual.at(0.5)+10*time.Millisecond {
				t.Errorf("without Redis half of the answers took more than %v, with it %v", mid, usual.at(0.5))
			}
			checkOutagesAreLoggedOnce(t, linesWith(p, "redis")[before:])
			t.Logf("with Redis: %v", usual)
			t.Logf("without it: %v; %d took 50ms more than usual; noticed after %v", without,
				without.countAbove(usual.at(0.5)+50*time.Millisecond), noticed)
			t.Logf("after it:   %v; used again after %v", l.times(back, time.Now()), recovered)
		})
	}
}

// checkOutagesAreLoggedOnce reports lines beyond one for the begin of each outage, one for its end and
// a few for changes of its cause. A slow machine can make Redis late, which is an outage too; a line
// for each of the hundreds of requests is a fault on every machine.
func checkOutagesAreLoggedOnce(t *testing.T, lines []string) {
	t.Helper()
	begins := strings.Count(strings.Join(lines, "\n"), "Redis unavailable; ")
	ends := strings.Count(strings.Join(lines, "\n"), "Redis available again")
	if begins == 0 || begins != ends || len(lines) > 12 {
		t.Errorf("the outage has %d begins, %d ends and %d log lines: %q", begins, ends, len(lines), lines)
	}
}

// TestStartWithoutRedisServes: the gateway serves requests, reports degraded limits, and uses Redis
// once it is up.
//
// RS-08.
func TestStartWithoutRedisServes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	redis := backends.Redis(t)
	redis.Kill()
	p := r.serve(rig.Settings{"store": stores(backends.Database(t), redis.URL), "auth": auth("app", "rpm: 1000000")})
	for range 20 {
		if got := r.ask(p.BaseURL); got.Status != http.StatusOK {
			t.Fatalf("without Redis an answer is %d: %s", got.Status, got.Body)
		}
	}
	waitForMetric(t, p, "tierway_redis_up", 0, rig.Patience)
	waitForMetric(t, p, "tierway_ratelimit_degraded", 1, rig.Patience)
	redis.Restart()
	if took := waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience); took > recovery {
		t.Errorf("Redis was used %v after it came", took)
	}
	if got := r.ask(p.BaseURL); got.Status != http.StatusOK {
		t.Errorf("with Redis an answer is %d: %s", got.Status, got.Body)
	}
}

// TestRedisErrorsFailNoRequest: Redis is emptied, loses its scripts, is out of memory, is a read-only
// replica, or has keys of another type. No request fails, and Redis is used again afterwards.
//
// RS-05.
func TestRedisErrorsFailNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	redis := backends.Redis(t)
	p := r.serve(rig.Settings{"store": stores(backends.Database(t), redis.URL),
		"auth": auth("app", "rpm: 1000000, tpm: 1000000000, concurrent: 64, day_tokens: 1000000000")})
	waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
	l := r.newLoad(rig.TenantKey, p.BaseURL)
	l.startChats(100)
	for _, trouble := range []struct{ begin, end string }{
		{"FLUSHALL", "PING"},
		{"SCRIPT FLUSH", "PING"},
		{"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"},
		{"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"},
		{`EVAL "for _,k in ipairs(redis.call('keys','*')) do redis.call('del',k) redis.call('set',k,'x') end return 1" 0`,
			"PING"},
	} {
		do := func(command string) {
			if got := redis.Do(command); strings.HasPrefix(got, "-") {
				t.Errorf("%s: %s", command, got)
			}
		}
		before := len(linesWith(p, "redis"))
		do(trouble.begin)
		pause(time.Second)
		do(trouble.end)
		up := waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
		if took := up + waitForMetric(t, p, "tierway_ratelimit_degraded", 0, rig.Patience); took > recovery {
			t.Errorf("%v after the end of %s Redis was used again", took, trouble.begin)
		}
		if lines := linesWith(p, "redis")[before:]; len(lines) > 12 {
			t.Errorf("%s is %d log lines: %q", trouble.begin, len(lines), lines)
		}
	}
	l.end()
	r.checkNothingBooked(64, p.BaseURL)
	t.Logf("%v", l.times(time.Time{}, time.Now()))
}

// TestLimitsWithoutRedis: each of four gateways enforces a quarter of a limit. A tenant with
// fail_closed gets 503 instead.
//
// RS-04.
func TestLimitsWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, engines.Config{})
	redis := backends.Redis(t)
	const strictKey = "the-key-of-the-tenant-that-fails-closed"
	p := r.serve(rig.Settings{"store": stores("", redis.URL), "gateways": "4", "auth": `{ keys: [
  { name: app, sha256: ` + rig.Digest(rig.TenantKey) + `, limits: { rpm: 240 } },
  { name: strict, sha256: ` + rig.Digest(strictKey) + `, limits: { rpm: 240 }, fail_closed: true } ] }`})
	ask := func(key string) rig.Reply {
		t.Helper()
		got, err := r.post(t.Context(), p.BaseURL, chatPath, key, chatBody)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
	if got := ask(strictKey); got.Status != http.StatusOK {
		t.Errorf("with Redis the strict tenant gets %d: %s", got.Status, got.Body)
	}
	redis.Kill()
	waitForMetric(t, p, "tierway_ratelimit_degraded", 1, rig.Patience)
	for range 20 {
		if got := ask(strictKey); got.Status != http.StatusServiceUnavailable ||
			!contains(got.Body, "ratelimit_unavailable") || got.Header.Get("Retry-After") == "" {
			t.Fatalf("without Redis the strict tenant gets %d, Retry-After %q: %s", got.Status, got.Header.Get("Retry-After"),
				got.Body)
		}
	}
	admitted := 0
	for range 30 { // the burst is a sixth of the rate per minute: 40 for four gateways
		if got := ask(rig.TenantKey); got.Status == http.StatusOK {
			admitted++
		}
	}
	near(t, "admitted by one gateway of four alone", admitted, 10, 1)
	redis.Restart()
	waitForMetric(t, p, "tierway_ratelimit_degraded", 0, rig.Patience)
	if got := ask(strictKey); got.Status != http.StatusOK {
		t.Errorf("with Redis again the strict tenant gets %d: %s", got.Status, got.Body)
	}
}
