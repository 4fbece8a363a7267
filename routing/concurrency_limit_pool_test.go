package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// overload teaches worker a of the pool by streams at low levels, and then makes streams at that level
// late.
func overload(t *testing.T, p *Pool, level int) time.Time {
	t.Helper()
	now := start
	ask := func(took time.Duration) {
		l, err := p.Acquire(&Request{Now: now, PromptTokens: 1000, OutputTokens: 10, Stream: true})
		if errors.Is(err, ErrFull) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		l.Answered(now.Add(took), nil)
		l.Release(Result{At: now.Add(took)})
		now = now.Add(time.Second)
	}
	for range 24 {
		ask(150 * time.Millisecond)
	}
	for range level - 1 {
		if _, err := p.Acquire(&Request{Now: now, OutputTokens: 10}); err != nil {
			t.Fatal(err)
		}
	}
	for range 16 {
		ask(3 * time.Second)
	}
	return now
}

// limitObserver is a policy that expects to be shown that limit.
type limitObserver struct {
	t    *testing.T
	want int
}

func (limitObserver) Name() string { return "bound" }
func (s limitObserver) Pick(_ *Request, ws []View) (int, Reason) {
	if ws[0].MaxInflight != s.want {
		s.t.Errorf("a policy sees a bound of %d, not %d", ws[0].MaxInflight, s.want)
	}
	return 0, "bound"
}

func TestWorkerAtItsLearnedLimitIsFull(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	now := overload(t, p, 40)
	v := p.Snapshot(now)[0]
	if v.ConcurrencyLimit < 28 || v.ConcurrencyLimit > 38 || !v.LimitLearned || v.MaxInflight != 0 {
		t.Fatalf("the worker shows %+v", v)
	}
	if _, err := p.Acquire(&Request{Now: now}); !errors.Is(err, ErrFull) {
		t.Errorf("a full worker: %v", err)
	}
	w := p.workers[0]
	w.concurrencyLimit.limit = w.inflight + 1
	p.Configure(limitObserver{t, w.concurrencyLimit.limit}, []Member{{ID: "a", Weight: 1}})
	if _, err := p.Acquire(&Request{Now: now}); err != nil {
		t.Errorf("one place is left: %v", err)
	}
	p.Observe("a", nil, Status{})
	p.Observe("a", nil, Status{Up: true})
	if v := p.Snapshot(now)[0]; v.ConcurrencyLimit != 0 || v.LimitLearned {
		t.Errorf("a worker that was started again shows %+v", v)
	}
}

func TestNoLimitIsLearnedBesideAConfiguredBound(t *testing.T) {
	for _, m := range []Member{{ID: "a", Weight: 1, MaxInflight: 50}, {ID: "a", Weight: 1, MaxTokensInflight: 1 << 30}} {
		p := poolOf(m)
		now := overload(t, p, 40)
		if v := p.Snapshot(now)[0]; v.ConcurrencyLimit != m.MaxInflight || v.LimitLearned {
			t.Errorf("%+v: the worker shows %+v", m, v)
		}
		p = poolOf(Member{ID: "a", Weight: 1})
		if now = overload(t, p, 40); p.Snapshot(now)[0].ConcurrencyLimit == 0 {
			t.Fatal("no bound was learned")
		}
		p.Configure(leastLoad{}, []Member{m})
		p.Configure(leastLoad{}, []Member{{ID: "a", Weight: 1}})
		if v := p.Snapshot(now)[0]; v.ConcurrencyLimit != 0 || v.LimitLearned {
			t.Errorf("%+v came and went, and the worker shows %+v", m, v)
		}
	}
}

// TestUnsentRequestsDoNotCountAsEnded: they do not show how many requests an engine ends per second.
func TestUnsentRequestsDoNotCountAsEnded(t *testing.T) {
	gone := fmt.Errorf("the client left: %w", ErrExcluded)
	for name, c := range map[string]struct {
		end  func(l *Lease)
		want int64
	}{
		"refused by its gate": {func(l *Lease) {
			l.gate.(*recordingGate).refuse = true
			_ = l.Admit()
			l.Release(Result{At: start})
		}, 0},
		"given back": {func(l *Lease) { l.Release(Result{At: start, Err: gone}) }, 0},
		"answered":   {func(l *Lease) { l.Answered(start, nil); l.Release(Result{At: start}) }, 1},
		"answered, and the client left": {func(l *Lease) { l.Answered(start, nil); l.Release(Result{At: start, Err: gone}) },
			1},
		"failed":                  {func(l *Lease) { l.Release(Result{At: start, Err: errors.New("broke")}) }, 1},
		"unbooked, then released": {func(l *Lease) { l.Unbook(); l.Release(Result{At: start, Err: gone}) }, 1},
	} {
		p := poolOf(Member{ID: "a", Weight: 1, Gate: &recordingGate{}})
		round := p.BeginRound(start)
		l, err := round.Offer(ask(), nil)
		round.End()
		if err != nil {
			t.Fatal(err)
		}
		if c.end(&l); p.workers[0].concurrencyLimit.ended != c.want || p.workers[0].inflight != 0 {
			t.Errorf("%s: %d have ended and %d are in flight", name, p.workers[0].concurrencyLimit.ended, p.workers[0].inflight)
		}
	}
}

func TestOnlyStreamsTeachTheConcurrencyLimit(t *testing.T) {
	for name, end := range map[string]func(l *Lease, at time.Time){
		"failed":   func(l *Lease, at time.Time) { l.Answered(at, errors.New("broke")) },
		"whole":    func(l *Lease, at time.Time) { l.stream = false; l.Answered(at, nil) },
		"timeless": func(l *Lease, _ time.Time) { l.Answered(time.Time{}, nil) },
		"unbooked": func(l *Lease, at time.Time) { l.Unbook(); l.Answered(at, nil) },
	} {
		p := poolOf(Member{ID: "a", Weight: 1})
		for i := range 99 {
			now := start.Add(time.Duration(i) * time.Second)
			l, err := p.Acquire(&Request{Now: now, PromptTokens: 1000, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			end(&l, now.Add(time.Second))
			l.Release(Result{})
		}
		if _, upTo := p.workers[0].concurrencyLimit.unloaded.line(); upTo > 0 {
			t.Errorf("%s: a bound learned from it", name)
		}
	}
}

// BenchmarkStreamBooks measures all bookings of one stream.
func BenchmarkStreamBooks(b *testing.B) {
	var members []Member
	for i := range 16 {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
	}
	p := poolOf(members...)
	r := Request{PromptTokens: 2000, OutputTokens: 256, Stream: true}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Now = start.Add(time.Duration(i) * time.Millisecond)
		r.Rand += 0x9E3779B97F4A7C15
		l, err := p.Acquire(&r)
		if err != nil {
			b.Fatal(err)
		}
		l.Answered(r.Now.Add(200*time.Millisecond), nil)
		l.Release(Result{})
	}
}
