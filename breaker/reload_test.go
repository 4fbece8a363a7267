package breaker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestReloadKeepsWhatItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, Config{})
		r.fails(0, 5, errFive)
		r.fails(1, 4, errFive)
		c := Default()
		c.Probes, c.OpenFor = 2, time.Second
		r.Configure(c, append([]Member{{ID: "a", Ref: 0}, {ID: "b", Ref: 1}, {ID: "c", Ref: "other"}}, members(4)[3]))
		r.is(Open, Closed)
		if r.Breaker("b", 1) != r.bs[1] || r.Breaker("c", 2) != nil || r.Breaker("c", "other") == nil {
			t.Fatal("the breakers are not those of the members")
		}
		if v := r.bs[1].View(); v.Requests != 4 {
			t.Errorf("counts were lost: %+v", v)
		}
		c.Window = time.Minute
		r.Configure(c, members(4))
		if v := r.bs[1].View(); v.Requests != 0 || v.ConsecutiveFailures != 4 {
			t.Errorf("counts of another window: %+v", v)
		}
		r.try(1, errFive)
		r.is(Open, Open)
		r.pass(60 * time.Second)
		r.is(HalfOpen, HalfOpen)
		one, err1 := r.bs[0].Allow()
		two, err2 := r.bs[0].Allow()
		if err1 != nil || err2 != nil {
			t.Fatal("two probes are configured", err1, err2)
		}
		one(nil)
		two(nil)
		r.is(Closed)
	})
}

func TestARemovedBreakerRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, Config{})
		r.fails(0, 5, errFive)
		r.pass(60 * time.Second)
		done, _ := r.bs[0].Allow()
		r.fails(1, 5, errRefused)
		told := len(r.news())
		r.Configure(Config{}, members(4)[3:])
		time.Sleep(time.Minute) // beyond the probe's timeout
		done(nil)
		r.bs[0].Healthy(time.Now())
		r.Poll()
		if _, err := r.bs[0].Allow(); !errors.Is(err, ErrProbing) {
			t.Errorf("a probe of a worker that is gone: %v", err)
		}
		r.bs[1].Healthy(time.Now())
		if r.try(1, nil) {
			t.Error("an open worker that is gone was used")
		}
		r.fails(2, 50, errRefused)
		r.is(HalfOpen, Open, Closed)
		if len(r.news()) != told {
			t.Errorf("told %v", r.causes()[told:])
		}
	})
}
