package control

import (
	"testing"
	"time"

	"tierway/breaker"
	"tierway/routing"
	"tierway/workers"
)

// TestStoppedWorkersHangOrAreSilent: a worker that is down or suspended may still finish its requests; one that
// hangs does not.
func TestStoppedWorkersHangOrAreSilent(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	heard := func(ago time.Duration) routing.WorkerView { return routing.WorkerView{LastByteAt: now.Add(-ago)} }
	for name, c := range map[string]struct {
		view   routing.WorkerView
		status workers.Status
		want   string
	}{
		"up and silent":           {heard(time.Hour), workers.Status{Up: true}, ""},
		"hung":                    {routing.WorkerView{HungAt: now, LastByteAt: now}, workers.Status{Up: true}, "hangs"},
		"one request is overdue":  {routing.WorkerView{Unanswered: true}, workers.Status{Up: true}, ReasonSilent},
		"down and silent":         {heard(5 * time.Second), workers.Status{}, "is down"},
		"down and never heard":    {routing.WorkerView{}, workers.Status{}, "is down"},
		"down, but it sends":      {heard(4 * time.Second), workers.Status{}, ""},
		"asleep and silent":       {heard(time.Minute), workers.Status{Up: true, Suspended: workers.Asleep}, "is asleep"},
		"paused and silent":       {heard(time.Minute), workers.Status{Up: true, Suspended: workers.Paused}, "is paused"},
		"pausing, and it sends":   {heard(time.Second), workers.Status{Up: true, Suspended: workers.Paused}, ""},
		"down, and known to hang": {routing.WorkerView{HungAt: now}, workers.Status{}, "hangs"},
	} {
		m, stopped := &Member{Gate: closedBreaker()}, StoppedWorkers{}
		c.view.Ref = m
		stopped.addIfStopped(&c.view, &c.status, now)
		if stopped[m].Reason != c.want {
			t.Errorf("%s: %q, want %q", name, stopped[m].Reason, c.want)
		}
	}
}

// TestStopLastsFromItsBeginning, whatever reasons follow each other.
func TestStopLastsFromItsBeginning(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &Member{Gate: closedBreaker()}
	for i, c := range []struct {
		up, hangs bool
		want      int // seconds from the beginning to Since; -1: not stopped
	}{{true, false, -1}, {false, false, 1}, {true, true, 1}, {true, false, -1}, {true, true, 4}} {
		now, stopped := begin.Add(time.Duration(i)*time.Second), StoppedWorkers{}
		v := routing.WorkerView{Ref: m}
		if c.hangs {
			v.HungAt = now
		}
		stopped.addIfStopped(&v, &workers.Status{Up: c.up}, now)
		stop, ok := stopped[m]
		if ok != (c.want >= 0) || ok && !stop.Since.Equal(begin.Add(time.Duration(c.want)*time.Second)) {
			t.Errorf("after %d s: %v, since %s", i, ok, stop.Since)
		}
	}
}

// closedBreaker returns a breaker that is closed.
func closedBreaker() *breaker.Breaker {
	return breaker.New(breaker.Config{}, breaker.Options{Rand: func() float64 { return 0 }})
}
