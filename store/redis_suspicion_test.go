package store

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/tenants"
)

// Five late answers make a gateway suspect Redis. Until the probe answers, nothing changes: callers that fail closed
// are admitted, stored responses are found and changes are published. If the probe finds Redis well, nothing is sent
// again.
func TestASuspectedRedisIsUsedUntilTheProbeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLine(t).open(t, RedisConfig{})
		limits, responses := w.limits(4), NewResponses(ResponsesConfig{Redis: w.Redis})
		var changes, resent atomic.Int64
		w.OnChange(func() { changes.Add(1) })
		w.onBack(func() { resent.Add(1) })
		// a gateway without CPU: its timers are late too
		w.afterFunc = func(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d+DefaultRedisTimeout, f) }
		defer start(w.Run, limits.Run, responses.Run)()
		responses.Put(t.Context(), stored("acme", "resp_1"))
		synctest.Wait()

		own, probe := &failing{}, &failing{}
		w.client.AddHook(own)
		w.prober.AddHook(probe)
		own.late.Store(int64(2 * DefaultRedisTimeout))
		probe.late.Store(int64(probeTimeout * 9 / 10))
		for range tripAfter {
			if _, _, err := responses.Get(t.Context(), "acme", "resp_1"); err == nil {
				t.Fatal("an answer is not too late")
			}
		}
		synctest.Wait()
		asked := probe.calls.Load()
		own.late.Store(0)

		closed := tenants.NewCaller(tenants.Tenant{Name: "x", Limits: tenants.Limits{RPM: 60, Burst: 8}, FailClosed: true},
			tenants.Key{})
		for range 8 { // the share of one of four gateways is two
			g, v, err := limits.TakeCharge(t.Context(), &tenants.Charge{Caller: closed, At: time.Now()})
			if err != nil || v.Refused != "" {
				t.Fatalf("a tenant that fails closed: %+v, %v", v, err)
			}
			g.Settle(tenants.Used{})
		}
		if got, known := get(t, responses, "acme", "resp_1"); !known || got != stored("acme", "resp_1") {
			t.Errorf("a stored response is %+v, %v", got, known)
		}
		if err := w.PublishChange(t.Context()); err != nil {
			t.Errorf("publishing a change: %v", err)
		}
		synctest.Wait()
		if !w.Up() || limits.Degraded() || asked == 0 || !w.suspected.Load() {
			t.Errorf("up %v, degraded %v, probed %d times, suspected %v", w.Up(), limits.Degraded(), asked, w.suspected.Load())
		}

		time.Sleep(2 * probeTimeout)
		synctest.Wait()
		if !w.Up() || w.suspected.Load() || w.log.lines() != 0 {
			t.Errorf("after the probe: up %v, suspected %v, log:\n%s", w.Up(), w.suspected.Load(), w.log.String())
		}
		if changes.Load() != 1 || resent.Load() != 0 {
			t.Errorf("%d changes are followed, %d times all is sent again", changes.Load(), resent.Load())
		}
	})
}

// Until an outage is confirmed, each use of Redis loses at most the timeout. Afterwards none does.
func TestASuspectedRedisDelaysEachUseByTheTimeoutAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t)
		o.line.hang()
		defer o.line.resume()
		for range tripAfter {
			o.ask()
		}
		began := time.Now()
		for o.redis.Up() {
			if took := o.ask(); took > DefaultRedisTimeout {
				t.Fatalf("a request waits %v", took)
			}
		}
		synctest.Wait() // the log follows the state
		if took := time.Since(began); took > 2*probeTimeout || o.redis.log.lines() != 1 {
			t.Errorf("confirmed after %v; the log has:\n%s", took, o.redis.log.String())
		}
		if waited, _ := o.askMany(100); waited != 0 {
			t.Errorf("after the confirmation %d requests wait", waited)
		}
		_ = o.redis.do(t.Context(), "asking", func(context.Context) error {
			t.Error("after the confirmation Redis is asked")
			return nil
		})
	})
}
