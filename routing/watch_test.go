package routing

import (
	"testing"
	"time"
)

func TestWatcherIsCalledAfterChangesThatFreeRequests(t *testing.T) {
	ref := new(int)
	p := poolOf(Member{ID: "a", Weight: 1, Ref: ref, MaxInflight: 1})
	changes := 0
	p.Watch(func() {
		changes++
		p.Up(start) // the lock is free
	})
	var l *Lease
	for _, c := range []struct {
		what string
		do   func()
		want int
	}{
		{"acquiring", func() { l = mustAcquire(t, p) }, 0},
		{"being full", func() { p.Acquire(ask()) }, 0},
		{"an answer's beginning", func() { l.Answered(start, nil) }, 0},
		{"a release", func() { l.Release(Result{}) }, 1},
		{"another release of the same", func() { l.Release(Result{}) }, 0},
		{"acquiring again", func() { l = mustAcquire(t, p) }, 0},
		{"giving back the load", func() { l.Unbook() }, 1},
		{"giving it back again", func() { l.Unbook() }, 0},
		{"the release of nothing", func() { l.Release(Result{}) }, 0},
		{"a status", func() { p.Observe("a", ref, Status{Up: true}) }, 1},
		{"a breaker", func() { p.SetOpen("a", ref, time.Time{}) }, 1},
		{"a reload", func() { p.Configure(leastLoad{}, nil) }, 1},
		{"a round", func() { p.BeginRound(start).End() }, 0},
		{"no watcher", func() { p.Watch(nil); p.Configure(leastLoad{}, nil) }, 0},
	} {
		before, counted := changes, p.changes
		if c.do(); changes-before != c.want {
			t.Errorf("%s notified the watcher %d times, want %d", c.what, changes-before, c.want)
		}
		if got := p.changes - counted; c.what != "no watcher" && got != uint64(c.want) {
			t.Errorf("%s was counted %d times, want %d", c.what, got, c.want)
		}
	}
}

// TestChangesAreSureUnlessAWorkerIsPaused: a pause ends without a change.
func TestChangesAreSureUnlessAWorkerIsPaused(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	p.SetBackoff(p.workers[0], start.Add(time.Second))
	for after, want := range map[time.Duration]bool{time.Millisecond: false, time.Second: true} {
		round := p.BeginRound(start.Add(after))
		if count, sure := round.Changes(); count != p.changes || sure != want {
			t.Errorf("after %s a round counts %d of %d changes and is sure: %v", after, count, p.changes, sure)
		}
		round.End()
	}
}
