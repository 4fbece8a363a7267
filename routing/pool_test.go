package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ask is a request of 100 prompt and 10 output tokens.
func ask() *Request { return &Request{Now: start, PromptTokens: 100, OutputTokens: 10} }

// poolOf returns a least_load pool whose members are all up.
func poolOf(members ...Member) *Pool {
	p := NewPool(leastLoad{}, members)
	for _, m := range members {
		p.Observe(m.ID, m.Ref, Status{Up: true})
	}
	return p
}

func mustAcquire(t *testing.T, p *Pool, tried ...*Worker) *Lease {
	t.Helper()
	l, err := p.Acquire(ask(), tried...)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return &l
}

// books writes a pool's accounts as "id inflight pending output".
func books(p *Pool) string {
	var b []string
	for _, v := range p.Snapshot(start) {
		b = append(b, fmt.Sprint(v.ID, " ", v.Inflight, " ", v.PendingTokens, " ", v.OutputTokens))
	}
	return strings.Join(b, ", ")
}

func wantBooks(t *testing.T, p *Pool, want string) {
	t.Helper()
	if got := books(p); got != want {
		t.Errorf("the books show %q, want %q", got, want)
	}
}

// recordingGate is a gate that records its calls.
type recordingGate struct {
	refuse   bool
	asked    int
	expected time.Duration // as Allow had it last
	outcomes []error
	cuts     []error
	began    time.Time // as the last cut had it
}

func (g *recordingGate) ReportCut(began time.Time, err error) {
	g.began, g.cuts = began, append(g.cuts, err)
}

func (g *recordingGate) Allow(expected time.Duration) (uint64, error) {
	g.asked++
	g.expected = expected
	if g.refuse {
		return 0, errors.New("open")
	}
	return uint64(g.asked), nil
}

func (g *recordingGate) Report(_ uint64, err error) { g.outcomes = append(g.outcomes, err) }

func TestWorkerIsDownUntilObservedUp(t *testing.T) {
	p := NewPool(leastLoad{}, []Member{{ID: "a", Weight: 1}})
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrNoWorker) {
		t.Errorf("an unseen worker was used: %v", err)
	}
	p.Observe("a", nil, Status{Up: true})
	mustAcquire(t, p)
}

func TestBookingsAreGivenBackInTwoSteps(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	l := mustAcquire(t, p)
	wantBooks(t, p, "a 1 100 10")
	for range 2 {
		l.Answered(start, nil)
		wantBooks(t, p, "a 1 0 10")
	}
	for range 2 {
		l.Release(Result{})
		wantBooks(t, p, "a 0 0 0")
	}
	l.Answered(start, nil)
	wantBooks(t, p, "a 0 0 0")
}

func TestReleaseImpliesAnswered(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	mustAcquire(t, p).Release(Result{})
	wantBooks(t, p, "a 0 0 0")
}

func TestZeroLeaseOwesNothing(t *testing.T) {
	var l Lease
	l.Answered(start, nil)
	l.Release(Result{})
	if l.Worker() != nil || l.Ref() != nil || l.Reason() != "" || l.Overlap() != 0 {
		t.Errorf("a zero lease claims to hold something: %+v", l)
	}
}

func TestAbsurdTokenCountsCannotOverflowTheBooks(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	const huge, negative = 1 << 62, -1 << 62
	for range 100 {
		if _, err := p.Acquire(&Request{Now: start, PromptTokens: huge, OutputTokens: huge}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Acquire(&Request{Now: start, PromptTokens: negative, OutputTokens: negative}); err != nil {
			t.Fatal(err)
		}
	}
	wantBooks(t, p, fmt.Sprint("a 200 ", int64(100*maxBooked), " ", int64(100*maxBooked)))
}

func TestEachTicketGetsOneOutcome(t *testing.T) {
	broke, gone := errors.New("broke off"), fmt.Errorf("client left: %w", ErrExcluded)
	for name, c := range map[string]struct {
		end  func(l *Lease)
		want []error
		cuts []error
	}{
		"answered, released": {func(l *Lease) { l.Answered(start, nil); l.Release(Result{}) }, []error{nil}, nil},
		"released at once":   {func(l *Lease) { l.Release(Result{}) }, []error{nil}, nil},
		"released twice": {func(l *Lease) { l.Release(Result{}); l.Release(Result{Err: broke}) }, []error{nil},
			nil},
		"failed before an answer": {func(l *Lease) { l.Release(Result{Err: broke}) }, []error{broke}, nil},
		"failed answer": {func(l *Lease) { l.Answered(start, broke); l.Release(Result{Err: broke}) },
			[]error{broke}, nil},
		"the first answer counts": {func(l *Lease) {
			l.Answered(start, broke)
			l.Answered(start, nil)
			l.Release(Result{})
		}, []error{broke}, nil},
		"client left before": {func(l *Lease) { l.Release(Result{Err: gone}) }, []error{gone}, nil},
		"client left after the answer": {func(l *Lease) { l.Answered(start, nil); l.Release(Result{Err: gone}) },
			[]error{nil}, nil},
		"cut after a good answer": {func(l *Lease) { l.Answered(start, nil); l.Release(Result{Err: broke}) },
			[]error{nil}, []error{broke}},
		"late answer": {func(l *Lease) { l.Release(Result{Err: broke}); l.Answered(start, nil) },
			[]error{broke}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := &recordingGate{}
			p := poolOf(Member{ID: "a", Weight: 1, Gate: g})
			c.end(mustAcquire(t, p))
			if g.asked != 1 || !slices.Equal(g.outcomes, c.want) || !slices.Equal(g.cuts, c.cuts) {
				t.Errorf("called %d times with the outcomes %v, then %v; want %v, then %v",
					g.asked, g.outcomes, g.cuts, c.want, c.cuts)
			}
			if len(c.cuts) > 0 && !g.began.Equal(start) {
				t.Errorf("the cut stream began at %v, want %v", g.began, start)
			}
			wantBooks(t, p, "a 0 0 0")
		})
	}
}

func TestRefusalUndoesTheBookingAndTriesTheNextWorker(t *testing.T) {
	shut := &recordingGate{refuse: true}
	p := poolOf(Member{ID: "a", Weight: 1, Gate: shut}, Member{ID: "b", Weight: 1})
	busy := mustAcquire(t, p) // whichever comes first, b has more on it now
	if busy.Worker().ID() != "b" {
		t.Fatalf("%s was used past its gate", busy.Worker().ID())
	}
	if l := mustAcquire(t, p); l.Worker().ID() != "b" || shut.asked == 0 {
		t.Errorf("the lease is on %s, the gate was called %d times", l.Worker().ID(), shut.asked)
	}
	wantBooks(t, p, "a 0 0 0, b 2 200 20")
	p.Observe("b", nil, Status{})
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrNoWorker) {
		t.Errorf("with one down and one refused Acquire returned %v", err)
	}
}

// reentrant is a gate that calls the pool.
type reentrant struct{ pool *Pool }

func (g *reentrant) Allow(time.Duration) (uint64, error) {
	g.pool.Snapshot(start)
	return 0, nil
}

func (g *reentrant) Report(uint64, error)       { g.pool.Snapshot(start) }
func (g *reentrant) ReportCut(time.Time, error) { g.pool.Snapshot(start) }

func TestGatesAreCalledOutsideTheLock(t *testing.T) {
	g := &reentrant{}
	g.pool = poolOf(Member{ID: "a", Weight: 1, Gate: g})
	l := mustAcquire(t, g.pool)
	l.Answered(start, nil)
	l.Release(Result{Err: errors.New("cut")})
}

func TestReloadKeepsUnchangedMembers(t *testing.T) {
	one, two := new(int), new(int)
	p := poolOf(Member{ID: "a", Weight: 1, Ref: one}, Member{ID: "b", Weight: 1, Ref: one})
	a := mustAcquire(t, p)
	b := mustAcquire(t, p, a.Worker())
	if a.Worker().ID() == "b" {
		a, b = b, a
	}
	p.SetBackoff(b.Worker(), start.Add(time.Minute))

	// b comes first and may have less, a is another engine now.
	p.Configure(leastLoad{}, []Member{{ID: "b", Weight: 2, MaxInflight: 1, Ref: one}, {ID: "a", Weight: 1, Ref: two}})
	wantBooks(t, p, "b 1 100 10, a 0 0 0")
	if v := p.Snapshot(start)[0]; !v.Up || v.Backoff != time.Minute || v.Weight != 2 || v.MaxInflight != 1 {
		t.Errorf("b lost its state: %+v", v)
	}
	p.Observe("a", one, Status{Up: true})
	if v := p.Snapshot(start)[1]; v.Up {
		t.Error("news of the old engine were believed of the new one")
	}
	p.Observe("a", two, Status{Up: true})
	next := mustAcquire(t, p)
	if next.Ref() != any(two) || next.Worker() == a.Worker() {
		t.Errorf("the request went to the old engine")
	}

	old := a.Worker()
	a.Release(Result{})
	wantBooks(t, p, "b 1 100 10, a 1 100 10")
	if old.inflight != 0 || old.pending != 0 || old.output != 0 || old.prefixBookings != 0 {
		t.Errorf("the old engine's books show %+v", old)
	}

	p.Configure(leastLoad{}, nil)
	b.Release(Result{})
	next.Release(Result{})
	if w := b.Worker(); w.inflight != 0 || w.pending != 0 || w.output != 0 {
		t.Errorf("the removed worker's books show %+v", w)
	}
	if _, err := p.Acquire(ask()); !errors.Is(err, ErrNoWorker) {
		t.Errorf("a removed worker got a request: %v", err)
	}
}

// last is a policy that picks the last worker, which the pool must accept.
type last struct{}

func (last) Name() string                             { return "last" }
func (last) Pick(_ *Request, ws []View) (int, Reason) { return len(ws) - 1, "last" }
