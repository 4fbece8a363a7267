package routing

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// schedule is a pool under random use, with its own books: the load that each worker was granted and
// that was not given back.
type schedule struct {
	t        *testing.T
	rng      rng
	pool     *Pool
	now      time.Time
	policies []Policy
	chats    [][]Block
	gate     refusingGate
	bounds   map[*Worker]Member // as last configured
	booked   map[*Worker]*sum
	waiting  []*Request
	leases   []*Lease
	steps    int
	grants   int
	held     int
}

// sum is the load in flight on one worker.
type sum struct {
	requests int
	tokens   int64
}

// refusingGate is a gate that refuses one request in eight.
type refusingGate struct {
	rng     *rng
	permits int // without an outcome
}

func (g *refusingGate) Allow(time.Duration) (uint64, error) {
	if g.rng.below(8) == 0 {
		return 0, errors.New("not now")
	}
	g.permits++
	return 0, nil
}

func (g *refusingGate) Report(uint64, error)       { g.permits-- }
func (g *refusingGate) ReportCut(time.Time, error) {}

func newSchedule(t *testing.T, seed uint64, chats [][]Block) *schedule {
	s := &schedule{t: t, rng: rng(Mix(seed + 1)), now: start, chats: chats, bounds: map[*Worker]Member{},
		booked: map[*Worker]*sum{}}
	s.gate.rng = &s.rng
	s.policies = []Policy{mustCHWBL(t, Config{}), leastLoad{}, &wanting{}}
	s.pool = NewPool(s.policies[0], nil)
	s.configure()
	return s
}

func (s *schedule) configure() {
	members := make([]Member, 1+s.rng.below(5))
	first := s.rng.below(3) // the set of members changes
	for i := range members {
		members[i] = Member{
			ID: string(rune('a' + first + i)), Weight: s.rng.below(4), Group: s.rng.below(8) / 7,
			MaxInflight: s.rng.below(5), MaxTokensInflight: int64(s.rng.below(3)) * 3000,
		}
		if s.rng.below(2) == 0 {
			members[i].Gate = &s.gate
		}
	}
	s.pool.Configure(s.policies[s.rng.below(len(s.policies))], members)
	for i, w := range s.pool.workers {
		s.bounds[w] = members[i]
		if s.booked[w] == nil {
			s.booked[w] = &sum{}
		}
		s.pool.Observe(w.id, nil, Status{Up: true})
	}
}

func (s *schedule) request() *Request {
	chat := s.chats[s.rng.below(len(s.chats))]
	blocks := chat[:s.rng.below(len(chat)+1)]
	r := &Request{
		Now: s.now, Rand: s.rng.next(), PromptTokens: int64(len(blocks)) * 128, OutputTokens: int64(s.rng.below(500)),
		Stream: s.rng.below(2) == 0, Wait: s.rng.below(4) > 0, Blocks: blocks,
	}
	if len(blocks) > 0 {
		r.Prefix = blocks[0].Hash
	}
	return r
}

// granted adds a lease to the books and fails if that breaks a bound.
func (s *schedule) granted(r *Request, l *Lease, err error) bool {
	if err != nil {
		if r.learned {
			s.held++
		}
		return false
	}
	w := l.Worker()
	b, m, tokens := s.booked[w], s.bounds[w], r.PromptTokens+r.OutputTokens
	b.requests++
	b.tokens += tokens
	if m.MaxInflight > 0 && b.requests > m.MaxInflight || m.MaxTokensInflight > 0 && b.requests > 1 &&
		b.tokens > m.MaxTokensInflight {
		s.t.Fatalf("step %d: %s has %d requests and %d tokens in flight, and may have %d and %d", s.steps, w.id, b.requests,
			b.tokens, m.MaxInflight, m.MaxTokensInflight)
	}
	if w.removed || m.Weight <= 0 || !w.status.Up || w.status.Saturated || s.now.Before(w.pausedUntilLocked()) {
		s.t.Fatalf("step %d: %s may not take anything", s.steps, w.id)
	}
	s.grants++
	s.leases = append(s.leases, l)
	return true
}

// gave removes a lease from the books.
func (s *schedule) gave(l *Lease) {
	b := s.booked[l.Worker()]
	b.requests--
	b.tokens -= l.booking.tokens
}

func (s *schedule) pass() {
	round := s.pool.BeginRound(s.now)
	var made []*Lease
	s.waiting = slices.DeleteFunc(s.waiting, func(r *Request) bool {
		s.steps++
		l, err := round.Offer(r, nil)
		if err == nil {
			made = append(made, &l)
		}
		return s.granted(r, &l, err)
	})
	round.End()
	for _, l := range made {
		b, tokens := s.booked[l.Worker()], l.booking.tokens
		if l.Admit() != nil {
			b.requests--
			b.tokens -= tokens
			s.leases = slices.DeleteFunc(s.leases, func(other *Lease) bool { return other == l })
		}
	}
}

// worker returns a random worker, or nil.
func (s *schedule) worker() *Worker {
	if len(s.pool.workers) == 0 {
		return nil
	}
	return s.pool.workers[s.rng.below(len(s.pool.workers))]
}

func (s *schedule) step() {
	s.steps++
	w := s.worker()
	soon := s.now.Add(time.Duration(s.rng.below(3000)) * time.Millisecond)
	switch action := s.rng.below(100); {
	case action < 25:
		if len(s.waiting) < 24 {
			s.waiting = append(s.waiting, s.request())
		}
	case action < 40:
		s.pass()
	case action < 50:
		r := s.request()
		l, err := s.pool.Acquire(r)
		s.granted(r, &l, err)
	case action < 85:
		s.end()
	case action < 88:
		s.now = s.now.Add(time.Duration(s.rng.below(1000)) * time.Millisecond)
	case action < 90:
		s.pool.SetBackoff(w, soon)
	case action < 92:
		s.pool.SetOpen(w.id, nil, soon)
	case action < 94:
		s.pool.Restore(w.id, nil, s.now)
	case action < 98:
		s.pool.Observe(w.id, nil, Status{Up: s.rng.below(6) > 0, Saturated: s.rng.below(4) == 0})
	default:
		s.configure()
	}
}

// end advances one lease: its answer begins, or it is given back.
func (s *schedule) end() {
	if len(s.leases) == 0 {
		return
	}
	at := s.rng.below(len(s.leases))
	l := s.leases[at]
	switch s.rng.below(3) {
	case 0:
		l.Answered(s.now, nil)
		return
	case 1:
		s.gave(l)
		l.Unbook()
		l.Release(Result{})
	default:
		s.gave(l)
		l.Release(Result{At: s.now, OutputTokens: 20})
	}
	s.leases = slices.Delete(s.leases, at, at+1)
}

// finish gives back everything and checks that nothing stays booked.
func (s *schedule) finish() {
	for _, l := range s.leases {
		l.Release(Result{At: s.now})
	}
	for w := range s.booked {
		if w.inflight != 0 || w.pending != 0 || w.output != 0 || w.tokens != 0 || w.assumedCached != 0 ||
			w.prefixBookings != 0 || w.backlog != (backlog{}) || len(w.prefillEnds) > 0 {
			s.t.Fatalf("after the last release the books of %s show %+v", w.id, *w)
		}
	}
	noChains(s.t, s.pool)
	if s.gate.permits > 0 {
		s.t.Fatalf("after the last release %d permits are left", s.gate.permits)
	}
}

// TestBoundsHoldUnderAnySchedule: in a million random steps no worker exceeds its bound after a request
// was booked, and everything is given back.
func TestBoundsHoldUnderAnySchedule(t *testing.T) {
	schedules, length := 200, 2000
	if testing.Short() {
		schedules = 50
	}
	chats := make([][]Block, 6)
	for i := range chats {
		chats[i] = prompt(i%3+1, 4+i, 24)
	}
	steps, grants, held := 0, 0, 0
	for seed := range schedules {
		s := newSchedule(t, uint64(seed), chats)
		for s.steps < length {
			s.step()
		}
		s.finish()
		steps, grants, held = steps+s.steps, grants+s.grants, held+s.held
	}
	t.Logf("%d steps, %d requests granted, %d times one waited for a full worker", steps, grants, held)
	if grants < steps/40 || held < steps/40 {
		t.Errorf("of %d steps %d granted a request and %d held one", steps, grants, held)
	}
}
