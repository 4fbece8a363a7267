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
	errFive    = errors.New("the worker returned 500")
	errRefused = errors.New("connection refused")
	errClient  = errors.New("the client left")
	errSlow    = errors.New("the worker is too slow")
)

// outcomes classifies the errors of these tests.
func outcomes(err error) Outcome {
	switch {
	case err == nil:
		return Success
	case errors.Is(err, errClient):
		return Excluded
	case errors.Is(err, errRefused):
		return Unreachable
	case errors.Is(err, errSlow):
		return TooSlow
	}
	return Failure
}

// rig holds the breakers of n workers, named a, b, c and so on, and their transitions.
type rig struct {
	t  testing.TB
	bs []*Breaker

	mu     sync.Mutex
	events []event
}

// event is a transition of one worker's breaker.
type event struct {
	worker string
	Change
}

func newRig(t testing.TB, n int, c Config, change ...func(*Options)) *rig {
	r := &rig{t: t}
	for i := range n {
		o := Options{
			Outcome: outcomes,
			Rand:    func() float64 { return 0.5 }, // no spread
			OnChange: func(c Change) {
				r.mu.Lock()
				r.events = append(r.events, event{name(i), c})
				r.mu.Unlock()
			},
		}
		for _, f := range change {
			f(&o)
		}
		r.bs = append(r.bs, New(c, o))
	}
	return r
}

func name(i int) string { return string(rune('a' + i)) }

// allow requests admission with an expected time of 0, and returns the function that reports.
func (r *rig) allow(i int) (report func(error), err error) { return r.allowFor(i, 0) }

func (r *rig) allowFor(i int, expected time.Duration) (report func(error), err error) {
	ticket, err := r.bs[i].Allow(expected)
	return func(err error) { r.bs[i].Report(ticket, err) }, err
}

// try sends one request that ends with end, if the breaker admits it.
func (r *rig) try(i int, end error) bool {
	ticket, err := r.bs[i].Allow(0)
	if err == nil {
		r.bs[i].Report(ticket, end)
	}
	return err == nil
}

// fails sends n requests that end with end.
func (r *rig) fails(i, n int, end error) {
	for range n {
		r.try(i, end)
	}
}

// probesOf returns the number of probes in progress.
func probesOf(b *Breaker) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.probes)
}

// is checks the states of all workers, in their order.
func (r *rig) is(want ...State) {
	r.t.Helper()
	for i, s := range want {
		if got := r.bs[i].View().State; got != s {
			r.t.Fatalf("%s is %s, not %s", name(i), got, s)
		}
	}
}

// transitions returns all transitions so far.
func (r *rig) transitions() []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// last returns the last transition.
func (r *rig) last() Change {
	all := r.transitions()
	return all[len(all)-1].Change
}

// causes returns the transitions as texts such as "a open slow".
func (r *rig) causes() []string {
	var all []string
	for _, c := range r.transitions() {
		all = append(all, fmt.Sprintf("%s %s %s", c.worker, c.To, c.Cause))
	}
	return all
}

// Poll polls all breakers.
func (r *rig) Poll() {
	for _, b := range r.bs {
		b.Poll()
	}
}

// tick is the shortest time after which an open state that ended is observed.
const tick = 2 * time.Nanosecond

// pass advances the time as the running gateway does: with one poll per second.
func (r *rig) pass(d time.Duration) {
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second))
		time.Sleep(tick)
		r.Poll()
	}
}

// healthy reports a good health check and polls a moment later.
func (r *rig) healthy(i int, started time.Time) {
	r.bs[i].Healthy(started)
	time.Sleep(tick)
	r.Poll()
}
