package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestOpenWorkerGetsNoRequestsUntilItsEnd(t *testing.T) {
	ref := new(int)
	p := poolOf(Member{ID: "a", Weight: 1, Ref: ref}, Member{ID: "b", Weight: 1})
	p.SetOpen("a", ref, start.Add(time.Minute))
	p.SetOpen("b", ref, start.Add(time.Minute)) // of another engine
	for range 5 {
		if l := mustAcquire(t, p); l.Worker().ID() != "b" {
			t.Error("a worker was used past its open breaker")
		}
	}
	if v := p.Snapshot(start.Add(time.Second)); v[0].Open != 59*time.Second || v[1].Open != 0 {
		t.Errorf("the snapshot shows %+v", v)
	}
	p.SetOpen("a", ref, start.Add(time.Second)) // the last call holds
	l, err := p.Acquire(&Request{Now: start.Add(time.Second)})
	if err != nil || l.Worker().ID() != "a" {
		t.Errorf("at its time the worker is not used: %v", err)
	}
	p.SetOpen("a", ref, start.Add(time.Hour))
	p.SetOpen("a", ref, time.Time{})
	if l := mustAcquire(t, p); l.Worker().ID() != "a" {
		t.Error("a closed worker is not used")
	}
}

func TestErrorNamesTheFirstPauseToEnd(t *testing.T) {
	at := func(s int) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return start.Add(time.Duration(s) * time.Second)
	}
	for name, c := range map[string]struct {
		backoff, open [2]int // seconds from now for two workers; 0 is not at all
		up            bool
		want          error
	}{
		"all open":                         {[2]int{}, [2]int{9, 5}, false, &OpenError{at(5)}},
		"all in backoff":                   {[2]int{7, 3}, [2]int{}, true, &BackoffError{at(3)}},
		"the one in backoff is back first": {[2]int{3, 0}, [2]int{0, 5}, true, &BackoffError{at(3)}},
		"the open one is back first":       {[2]int{6, 0}, [2]int{0, 5}, true, &OpenError{at(5)}},
		"both at once, open for longer":    {[2]int{3, 9}, [2]int{4, 0}, true, &OpenError{at(4)}},
		"both at once, longer in backoff":  {[2]int{4, 9}, [2]int{3, 0}, true, &BackoffError{at(4)}},
		"one is left":                      {[2]int{4, 0}, [2]int{3, 0}, true, nil},
		"all over":                         {[2]int{-1, 0}, [2]int{0, -1}, true, nil},
	} {
		p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
		for i, w := range p.workers {
			p.SetOpen(w.id, nil, at(c.open[i]))
			p.SetBackoff(w, at(c.backoff[i]))
		}
		if got := p.Up(start); got != c.up {
			t.Errorf("%s: up is %v", name, got)
		}
		if got := p.Ready(start); got != (c.want == nil) {
			t.Errorf("%s: ready is %v", name, got)
		}
		_, err := p.Acquire(ask())
		if fmt.Sprintf("%T %v", err, err) != fmt.Sprintf("%T %v", c.want, c.want) {
			t.Errorf("%s: Acquire returned %v, want %v", name, err, c.want)
		}
	}
}

func TestUpCountsWorkersThatAreOnlyBusy(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b"})
	mustAcquire(t, p)
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) || !p.Up(start) {
		t.Errorf("Up of a full pool is %v (%v)", p.Up(start), err)
	}
	p.Observe("a", nil, Status{Up: true, Saturated: true})
	if !p.Up(start) {
		t.Error("a saturated pool is not up")
	}
	p.Observe("a", nil, Status{})
	if p.Up(start) {
		t.Error("a pool with a worker that is down and one without weight is up")
	}
}

func TestRequestGoesToAWorkerOfItsModel(t *testing.T) {
	models := []uint64{1, 2}
	members := []Member{{ID: "base", Weight: 1, Models: []uint64{1}}, {ID: "both", Weight: 1, Models: models},
		{ID: "down", Weight: 1}}
	p := poolOf(members...)
	p.Observe("down", nil, Status{})
	models[1] = 9 // the caller's slice is its own
	for model, want := range map[uint64]string{1: "map[base:true both:true]", 2: "map[both:true]",
		0: "map[base:true both:true]"} {
		got := map[string]bool{}
		for i := range 8 {
			l, err := p.Acquire(&Request{Now: start, Model: model, Rand: uint64(i)})
			if err != nil {
				t.Fatal(err)
			}
			got[l.Worker().ID()] = true
			l.Release(Result{})
		}
		if fmt.Sprint(got) != want {
			t.Errorf("model %d went to %v, want %s", model, got, want)
		}
	}
	if _, err := p.Acquire(&Request{Now: start, Model: 3}); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a model that no worker serves: %v", err)
	}
}

// first is a policy that picks the first worker that it is shown.
type first struct{}

func (first) Name() string                        { return "first" }
func (first) Pick(*Request, []View) (int, Reason) { return 0, "first" }

func TestUnbookGivesBackTheLoadAndStillOwesTheOutcome(t *testing.T) {
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		end  func(l *Lease)
		want string
	}{
		"released":              {func(l *Lease) { l.Release(Result{Err: broke}) }, "[broke]"},
		"answered and released": {func(l *Lease) { l.Answered(start, broke); l.Release(Result{}) }, "[broke]"},
		"unbooked twice": {func(l *Lease) {
			l.Unbook()
			l.Release(Result{})
			l.Unbook()
			l.Release(Result{Err: broke})
		}, "[<nil>]"},
	} {
		g := &recordingGate{}
		p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
		l, err := p.Acquire(&Request{Now: start, PromptTokens: 100, OutputTokens: 10, Blocks: prompt(1, 0, 9)})
		if err != nil {
			t.Fatal(err)
		}
		l.Unbook()
		wantBooks(t, p, "a 0 0 0")
		noChains(t, p)
		if len(g.outcomes) != 0 {
			t.Errorf("%s: an outcome was reported already: %v", name, g.outcomes)
		}
		other := mustAcquire(t, p)
		c.end(&l)
		wantBooks(t, p, "a 1 100 10") // the other's, although it has the first one's record
		if got := fmt.Sprint(g.outcomes); got != c.want {
			t.Errorf("%s: the error is %s, want %s", name, got, c.want)
		}
		other.Release(Result{})
		wantBooks(t, p, "a 0 0 0")
	}
	var zero Lease
	zero.Unbook()
}

func TestEligibleWorkers(t *testing.T) {
	up := Status{Up: true}
	for name, c := range map[string]struct {
		members  []Member
		statuses []Status
		want     string // the worker or the error
	}{
		"no worker": {nil, nil, "no worker is up"},
		"all down":  {[]Member{{ID: "a", Weight: 1}}, []Status{{}}, "no worker is up"},
		"no weight": {[]Member{{ID: "a"}}, []Status{up}, "no worker is up"},
		"saturated": {[]Member{{ID: "a", Weight: 1}}, []Status{{Up: true, Saturated: true}},
			"all workers are full"},
		"the lower group": {[]Member{{ID: "b", Weight: 1, Group: 1}, {ID: "a", Weight: 1}}, []Status{up, up},
			"a"},
		"the lower group is down": {[]Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1, Group: 1}}, []Status{{}, up},
			"b"},
		"the lower group has no weight": {[]Member{{ID: "a"}, {ID: "b", Weight: 1, Group: 1}}, []Status{up, up}, "b"},
		"the lower group is saturated": {[]Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1, Group: 1}},
			[]Status{{Up: true, Saturated: true}, up}, "all workers are full"},
		"groups in any order, negative": {[]Member{{ID: "c", Weight: 1, Group: 2}, {ID: "a", Weight: 1, Group: -1},
			{ID: "b", Weight: 1}}, []Status{up, up, up}, "a"},
		"half of the group is saturated": {[]Member{{ID: "a", Weight: 1}, {ID: "b", Weight: 1}},
			[]Status{{Up: true, Saturated: true}, up}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPool(leastLoad{}, c.members)
			for i, s := range c.statuses {
				p.Observe(c.members[i].ID, nil, s)
			}
			l, err := p.Acquire(ask())
			got := fmt.Sprint(err)
			if err == nil {
				got = l.Worker().ID()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestFullGroupKeepsRequestsAndTriedGroupDoesNot(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1, MaxInflight: 1}, Member{ID: "b", Weight: 1, Group: 1})
	first := mustAcquire(t, p)
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrFull) {
		t.Errorf("load moved to the next group: %v", err)
	}
	if l := mustAcquire(t, p, first.Worker()); l.Worker().ID() != "b" {
		t.Errorf("a second try went to %s", l.Worker().ID())
	}
	first.Release(Result{})
	if l := mustAcquire(t, p); l.Worker().ID() != "a" {
		t.Errorf("a free place in the first group was not used but %s", l.Worker().ID())
	}
}

func TestWorkerInBackoffGetsNoRequestsUntilItsEnd(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
	a := mustAcquire(t, p)
	b := mustAcquire(t, p, a.Worker())
	p.SetBackoff(a.Worker(), start.Add(20*time.Second))
	p.SetBackoff(a.Worker(), start.Add(5*time.Second)) // does not shorten
	if l := mustAcquire(t, p); l.Worker() != b.Worker() {
		t.Errorf("a worker in backoff got a request")
	}
	p.SetBackoff(b.Worker(), start.Add(10*time.Second))
	var backoff *BackoffError
	if _, err := p.Acquire(ask()); !errors.As(err, &backoff) || !backoff.Until.Equal(start.Add(10*time.Second)) {
		t.Errorf("with all in backoff Acquire returns %v", err)
	}
	if got := p.Snapshot(start.Add(time.Second)); got[0].ID != a.Worker().ID() && got[0].Backoff != 9*time.Second {
		t.Errorf("the snapshot shows %+v", got)
	}
	if l, err := p.Acquire(&Request{Now: start.Add(10 * time.Second)}); err != nil || l.Worker() != b.Worker() {
		t.Errorf("at the end of its backoff, b is not used: %v", err)
	}
}
