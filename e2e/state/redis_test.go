package state

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestSmokeAKilledRedisFailsNoRequest kills Redis under a load and starts it again. All requests succeed, and each
// change is one log line.
//
// RS-01, RS-02, RS-11.
func TestSmokeAKilledRedisFailsNoRequest(t *testing.T) {
	t.Parallel()
	loseRedis(t, stores, (*backends.RedisServer).Kill, (*backends.RedisServer).Restart)
}

// TestAHungRedisFailsNoRequest suspends Redis under a load and resumes it.
//
// RS-01, RS-02, RS-11.
func TestAHungRedisFailsNoRequest(t *testing.T) {
	t.Parallel()
	loseRedis(t, hastyStores, (*backends.RedisServer).Hang, (*backends.RedisServer).Resume)
}

// loseRedis checks that a load survives what away does to Redis until back undoes it. The tests of store check in
// virtual time how long requests wait for Redis meanwhile and when it is used again.
func loseRedis(t *testing.T, stores func(sql, redis string) string, away, back func(*backends.RedisServer)) {
	t.Helper()
	const clients, limit = 10, 64
	r := newRig(t, 2, engines.Config{})
	redis := backends.Redis(t)
	p := r.serve(rig.Settings{"store": stores(backends.Database(t), redis.URL),
		"auth": auth("app", fmt.Sprintf("rpm: 1000000, tpm: 1000000000, concurrent: %d", limit))})
	waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
	before := len(linesWith(p, "redis"))
	l := r.newLoad(rig.TenantKey, p.BaseURL)
	l.startChats(clients)
	begin := time.Now()
	l.waitForMore(2 * clients)

	gone := time.Now()
	away(redis)
	waitForMetric(t, p, "tierway_ratelimit_degraded", 1, rig.Patience)
	noticed := time.Since(gone)
	waitForMetric(t, p, "tierway_redis_up", 0, rig.Patience)
	waitForDegraded(t, p, "redis")
	rig.Eventually(t, func() error { // the outage is confirmed
		if len(linesWith(p, "Redis unavailable; ")) == 0 {
			return errorf("the log has no outage of Redis")
		}
		return nil
	})
	if status := p.GetStatus("/livez"); status != http.StatusOK {
		t.Errorf("without Redis /livez is %d", status)
	}
	pause(fullSoak(t))
	l.waitForMore(2 * clients)
	came := time.Now()
	back(redis)
	recovered := waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
	waitForMetric(t, p, "tierway_ratelimit_degraded", 0, rig.Patience)
	l.waitForMore(2 * clients)
	l.end()
	r.checkNothingBooked(limit, p.BaseURL)
	checkOutagesAreLoggedOnce(t, p, before)
	t.Logf("with Redis: %v", l.times(begin, gone))
	t.Logf("without it: %v; noticed after %v", l.times(gone, came), noticed)
	t.Logf("after it:   %v; used again after %v", l.times(came, time.Now()), recovered)
}

// checkOutagesAreLoggedOnce waits until Redis is used and reports lines after the first ones beyond one for the begin
// of each outage, one for its end and a few for changes of its cause. A slow machine can make Redis late, which is an
// outage too; a line for each of the hundreds of requests is a fault on every machine.
func checkOutagesAreLoggedOnce(t *testing.T, p *gateway.Process, first int) {
	t.Helper()
	rig.Eventually(t, func() error {
		lines := linesWith(p, "redis")[first:]
		begins := strings.Count(strings.Join(lines, "\n"), "Redis unavailable; ")
		ends := strings.Count(strings.Join(lines, "\n"), "Redis available again")
		if begins == 0 || begins != ends || len(lines) > 8*begins {
			return errorf("the outage has %d begins, %d ends and %d log lines: %q", begins, ends, len(lines), lines)
		}
		return nil
	})
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
	const clients = 5
	l.startChats(clients)
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
		asked := l.waitForMore(20 * clients)
		do(trouble.end)
		waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
		waitForMetric(t, p, "tierway_ratelimit_degraded", 0, rig.Patience)
		// Each change of the state is a line, not each request.
		if lines := linesWith(p, "redis")[before:]; len(lines) > asked/4 {
			t.Errorf("%s is %d log lines for %d requests: %q", trouble.begin, len(lines), asked, lines)
		}
	}
	l.end()
	r.checkNothingBooked(64, p.BaseURL)
	t.Logf("%v", l.times(time.Time{}, time.Now()))
}
