package state

import (
	"net/http"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/engines"
)

// recovery is how soon after its return Redis must be used again.
const recovery = 2 * time.Second

// TestRedisAwayCostsNobodyAnything takes Redis away under 200 requests a second,
// by SIGKILL and by SIGSTOP, and brings it back: no answer is anything but 200,
// none waits long, each change is one log line, and it is used again at once.
//
// RS-01, RS-02, RS-11.
func TestRedisAwayCostsNobodyAnything(t *testing.T) {
	for name, way := range map[string]struct{ away, back func(*backends.RedisServer) }{
		"killed": {(*backends.RedisServer).Kill, (*backends.RedisServer).Restart},
		"hung":   {(*backends.RedisServer).Hang, (*backends.RedisServer).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, engines.Config{})
			redis := backends.Redis(t)
			p := r.serve(settings{"store": stores(backends.Database(t), redis.URL), "auth": auth("app", "rpm: 1000000, tpm: 1000000000, concurrent: 10000")})
			metric(t, p, "tierway_redis_up", 1, patience)
			before := len(about(p, "redis"))
			l := r.newLoad(tenantKey, p.BaseURL)
			l.answers(200)
			begin := time.Now()
			pause(time.Second)

			gone := time.Now()
			way.away(redis)
			metric(t, p, "tierway_ratelimit_degraded", 1, patience)
			noticed := time.Since(gone)
			metric(t, p, "tierway_redis_up", 0, patience)
			lists(t, p, "redis")
			if status := p.Get("/livez"); status != http.StatusOK {
				t.Errorf("without Redis /livez is %d", status)
			}
			pause(soakTime(t))
			back := time.Now()
			way.back(redis)
			recovered := metric(t, p, "tierway_redis_up", 1, patience)
			metric(t, p, "tierway_ratelimit_degraded", 0, patience)
			if recovered > recovery {
				t.Errorf("Redis was used again %v after it was back", recovered)
			}
			pause(time.Second)
			l.end()

			usual, without := l.times(begin, gone), l.times(gone, back)
			// A go-redis client with its defaults stalls for seconds here.
			if worst, most := without.at(1), usual.at(0.99)+500*time.Millisecond; worst > most {
				t.Errorf("without Redis an answer took %v", worst)
			}
			if mid := without.at(0.5); mid > usual.at(0.5)+10*time.Millisecond {
				t.Errorf("without Redis half of the answers took more than %v, with it %v", mid, usual.at(0.5))
			}
			lines := about(p, "redis")[before:]
			if len(lines) != 2 {
				t.Errorf("there are %d log lines about one absence: %q", len(lines), lines)
			}
			t.Logf("with Redis: %v", usual)
			t.Logf("without it: %v; %d took 50ms more than usual; noticed after %v", without, without.over(usual.at(0.5)+50*time.Millisecond), noticed)
			t.Logf("after it:   %v; used again after %v", l.times(back, time.Now()), recovered)
		})
	}
}

// TestAStartWithoutRedisServes: it serves, says that its limits are its own, and
// uses Redis when it comes.
//
// RS-08.
func TestAStartWithoutRedisServes(t *testing.T) {
	r := newRig(t, 1, engines.Config{})
	redis := backends.Redis(t)
	redis.Kill()
	p := r.serve(settings{"store": stores(backends.Database(t), redis.URL), "auth": auth("app", "rpm: 1000000")})
	for range 20 {
		if got := r.ask(p.BaseURL); got.status != http.StatusOK {
			t.Fatalf("without Redis an answer is %d: %s", got.status, got.body)
		}
	}
	metric(t, p, "tierway_redis_up", 0, patience)
	metric(t, p, "tierway_ratelimit_degraded", 1, patience)
	redis.Restart()
	if took := metric(t, p, "tierway_redis_up", 1, patience); took > recovery {
		t.Errorf("Redis was used %v after it came", took)
	}
	if got := r.ask(p.BaseURL); got.status != http.StatusOK {
		t.Errorf("with Redis an answer is %d: %s", got.status, got.body)
	}
}
