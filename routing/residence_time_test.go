package routing

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestThroughputFollowsTheLearnedResidenceTime(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
	if rate, sure := p.Throughput(start); rate != 0 || sure {
		t.Errorf("an idle pool answers %v a second (sure: %v)", rate, sure)
	}
	for range 10 {
		mustAcquire(t, p)
	}
	// 25 ms + 100 tokens of prefill at 8,000/s + 10 tokens of 25 ms.
	if rate, sure := p.Throughput(start); math.Abs(rate-10/0.2875) > 1e-9 || sure {
		t.Errorf("before any answer it is %v a second (sure: %v)", rate, sure)
	}
	for i := range 8 {
		n := float64(i) // the prior counts for one answer
		if rate, sure := p.Throughput(start); sure || math.Abs(rate-10*(1+n)/(0.2875+n*2)) > 1e-9 {
			t.Errorf("after %d answers it is %v a second (sure: %v)", i, rate, sure)
		}
		mustAcquire(t, p).Release(Result{At: start.Add(2 * time.Second)})
	}
	if rate, sure := p.Throughput(start); math.Abs(rate-5) > 1e-9 || !sure {
		t.Errorf("after eight answers of two seconds it is %v a second (sure: %v), want 5", rate, sure)
	}
	if e := p.Estimates().ResidenceTime; e.Count != 8 || math.Abs(e.Prior-0.2875) > 1e-9 || math.Abs(e.Value-2) > 1e-9 ||
		e.Ceiling != 3600 {
		t.Errorf("the estimate is %+v", e)
	}
	for range 200 { // it forgets: 32 answers are what it looks back over
		mustAcquire(t, p).Release(Result{At: start.Add(time.Second)})
	}
	if rate, _ := p.Throughput(start); math.Abs(rate-10) > 0.1 {
		t.Errorf("after many answers of one second it is %v a second, want 10", rate)
	}
	// On workers that get nothing no room is made.
	spread := p.Snapshot(start)
	for name, c := range map[string]struct {
		spoil, heal func()
	}{
		"down":       {func() { p.Observe("a", nil, Status{}) }, func() { p.Observe("a", nil, Status{Up: true}) }},
		"open":       {func() { p.SetOpen("a", nil, start.Add(time.Second)) }, func() { p.SetOpen("a", nil, time.Time{}) }},
		"in backoff": {func() { p.SetBackoff(p.workers[0], start.Add(time.Second)) }, func() {}},
	} {
		whole, _ := p.Throughput(start)
		c.spoil()
		rate, _ := p.Throughput(start)
		if part := float64(spread[1].Inflight) / 10; math.Abs(rate-whole*part) > 1e-9 {
			t.Errorf("with one worker %s it is %v of %v", name, rate, whole)
		}
		c.heal()
		if name == "in backoff" {
			p.workers[0].backoffUntil = time.Time{}
		}
	}
}

// TestOnlyAnswersTeachTheResidenceTime lists the ways in which a lease ends.
func TestOnlyAnswersTeachTheResidenceTime(t *testing.T) {
	later, broke := start.Add(time.Second), errors.New("broke")
	for name, c := range map[string]struct {
		end  func(l *Lease)
		want int64
	}{
		"a whole answer": {func(l *Lease) { l.Release(Result{At: later}) }, 1},
		"released twice": {func(l *Lease) { l.Release(Result{At: later}); l.Release(Result{At: later}) },
			1},
		"one that broke off after it began": {func(l *Lease) {
			l.Answered(later, nil)
			l.Release(Result{At: later, Err: broke})
		}, 1},
		"the client left after it began": {func(l *Lease) {
			l.Answered(later, nil)
			l.Release(Result{At: later, Err: ErrExcluded})
		}, 1},
		"one that never began": {func(l *Lease) { l.Release(Result{At: later, Err: broke}) }, 0},
		"refused": {func(l *Lease) {
			l.Answered(later, ErrExcluded)
			l.Release(Result{At: later, Err: ErrExcluded})
		}, 0},
		"without a time":                    {func(l *Lease) { l.Release(Result{}) }, 0},
		"ended before it began":             {func(l *Lease) { l.Release(Result{At: start.Add(-time.Hour)}) }, 0},
		"its place was given back long ago": {func(l *Lease) { l.Unbook(); l.Release(Result{At: later}) }, 0},
	} {
		p := poolOf(Member{ID: "a", Weight: 1})
		c.end(mustAcquire(t, p))
		if got := p.Estimates().ResidenceTime.Count; got != c.want {
			t.Errorf("%s: %d samples, want %d", name, got, c.want)
		}
	}
}
