package breaker

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errFive    = errors.New("the worker answered 500")
	errRefused = errors.New("connection refused")
	errClient  = errors.New("the client left")
)

// rig is a group of n workers called a, b, c and so on, with what it told.
type rig struct {
	*Group
	t    testing.TB
	bs   []*Breaker
	down map[string]bool

	mu   sync.Mutex
	told []Change
}

func newRig(t testing.TB, n int, c Config, change ...func(*Options)) *rig {
	r := &rig{t: t, down: map[string]bool{}}
	o := Options{
		Excluded: func(err error) bool { return errors.Is(err, errClient) },
		Hard:     func(err error) bool { return errors.Is(err, errRefused) },
		Usable:   func(id string, _ any) bool { return !r.down[id] },
		Rand:     func() float64 { return 0.5 }, // no spread
		OnChange: func(c Change) {
			r.mu.Lock()
			r.told = append(r.told, c)
			r.mu.Unlock()
		},
	}
	for _, f := range change {
		f(&o)
	}
	r.Group = NewGroup(c, o)
	r.Configure(c, members(n))
	for i := range n {
		r.bs = append(r.bs, r.Breaker(name(i), i))
	}
	return r
}

func name(i int) string { return string(rune('a' + i)) }

func members(n int) []Member {
	var ms []Member
	for i := range n {
		ms = append(ms, Member{ID: name(i), Ref: i})
	}
	return ms
}

// try sends one request with that end to a worker, if its breaker lets it.
func (r *rig) try(i int, end error) bool {
	done, err := r.bs[i].Allow()
	if err == nil {
		done(end)
	}
	return err == nil
}

// fails sends n requests that fail.
func (r *rig) fails(i, n int, end error) {
	for range n {
		r.try(i, end)
	}
}

// is checks the states of all workers, as in "open closed".
func (r *rig) is(want ...State) {
	r.t.Helper()
	for i, s := range want {
		if got := r.bs[i].State(); got != s {
			r.t.Fatalf("%s is %s, not %s", name(i), got, s)
		}
	}
}

// news returns what was told.
func (r *rig) news() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

// last returns what was told last.
func (r *rig) last() Change {
	news := r.news()
	return news[len(news)-1]
}

// causes returns what was told, as in "a open slow".
func (r *rig) causes() []string {
	var all []string
	for _, c := range r.news() {
		all = append(all, fmt.Sprintf("%s %s %s", c.ID, c.To, c.Cause))
	}
	return all
}

// pass lets time pass as it does in the running gateway: with a poll a second.
func (r *rig) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second))
		r.Poll()
	}
}

// softOut counts those that are out for soft reasons.
func (r *rig) softOut() (n int) {
	for _, b := range r.bs {
		if r.outing(b) == soft {
			n++
		}
	}
	return n
}

// outing returns why a worker is out.
func (r *rig) outing(b *Breaker) outing {
	r.Group.mu.Lock()
	defer r.Group.mu.Unlock()
	return b.seat.out
}
