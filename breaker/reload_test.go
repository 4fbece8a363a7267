package breaker

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestReloadKeepsStateAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, Config{})
		configure := func(c Config) {
			for _, b := range r.bs {
				b.Configure(c)
			}
		}
		r.fails(0, 5, errFive)
		r.fails(1, 4, errFive)
		c := Default()
		c.ConsecutiveFailures, c.MinRequests = 6, 10
		configure(c)
		r.is(Open, Closed)
		if v := r.bs[1].View(); v.Requests != 4 || v.ConsecutiveFailures != 4 {
			t.Errorf("counts were lost: %+v", v)
		}
		c.Window, c.Probes, c.OpenFor = time.Minute, 2, 10*time.Second
		configure(c)
		if v := r.bs[1].View(); v.Requests != 0 || v.ConsecutiveFailures != 4 {
			t.Errorf("counts of another window: %+v", v)
		}
		r.fails(1, 2, errFive)
		r.is(Open, Open)
		r.pass(10 * time.Second)
		r.is(Open, HalfOpen)
		r.pass(50 * time.Second)
		r.is(HalfOpen, HalfOpen)
		one, err1 := r.allow(0)
		two, err2 := r.allow(0)
		if err1 != nil || err2 != nil {
			t.Fatal("two probes are configured", err1, err2)
		}
		one(nil)
		r.is(HalfOpen)
		two(errFive)
		r.pass(9 * time.Second)
		r.is(Open)
		r.pass(time.Second)
		r.is(HalfOpen)
		r.fails(0, 2, nil)
		r.is(Closed)
		r.fails(0, 6, errFive)
		r.is(Open)
	})
}
