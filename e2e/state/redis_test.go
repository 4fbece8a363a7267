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
