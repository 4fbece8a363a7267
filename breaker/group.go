package breaker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Member is one worker of a pool.
type Member struct {
	ID  string // unique in the pool
	Ref any    // the caller's name for it; must be comparable. A breaker never looks inside
}

// Options are the questions that a group asks and the news that it gives. All
// of them may be nil.
type Options struct {
	// Excluded tells whether a verdict counts neither way: a client's mistake,
	// a client that left, backpressure. nil excludes nothing.
	Excluded func(error) bool

	// Hard tells whether a failure shows that nobody is there, such as a
	// refused connection. Hard failures may open every breaker of the pool. nil
	// means that no failure is hard.
	Hard func(error) bool

	// Usable tells whether a worker could take requests for all that is known
	// beside breakers: it is up and its weight is above 0. It is called outside
	// all locks of this package. nil takes every worker for usable.
	Usable func(id string, ref any) bool

	// Rand returns a number of [0, 1). It is called under a breaker's lock and
	// must not call back. nil means math/rand/v2.
	Rand func() float64

	// OnChange is told of every transition, by the goroutine that caused it or
	// by another that is just telling of an earlier one: outside all locks of
	// this package and of gobreaker, for one breaker one at a time and in
	// order. It may call anything of the group. Configure never calls it.
	// OnKept is called after each verdict for which a worker would be left, were
	// not half of the pool out or nobody else there: whoever distributes load
	// should give it less. Outside all locks; nil for nobody.
	OnKept   func(id string, ref any)
	OnChange func(Change)
}

// The causes of transitions.
const (
	CauseConsecutiveFailures = "consecutive_failures" // closed to open: that many failures in a row
	CauseFailureRatio        = "failure_ratio"        // closed to open: that share within the window
	CauseSlow                = "slow"                 // to open: slower than its peers or than p95_above allows
	CauseProbeFailed         = "probe_failed"         // half-open to open
	CauseProbeTimeout        = "probe_timeout"        // half-open to open: a probe had no verdict in time
	CauseTimeout             = "timeout"              // open to half-open: open_for is over
	CauseHealthy             = "healthy"              // open to half-open: a health check was good
	CauseProbeSucceeded      = "probe_succeeded"      // half-open to closed
	CauseLastUsable          = "last_usable"          // to closed: no other worker is left
	CauseHalfPool            = "half_pool"            // to closed: the pool shrank and too many were out
)

// Change is one transition of one breaker.
type Change struct {
	ID       string
	Ref      any
	From, To State
	Cause    string    // one of the Cause constants
	Until    time.Time // when an open breaker is to become half-open; zero otherwise
}

// Group is the breakers of one pool. It is safe for concurrent use and lives
// as long as its pool: a reload goes through Configure. It has no goroutine of
// its own; its owner owes it a Poll a second.
type Group struct {
	options Options
	reload  sync.Mutex // held through Configure; before any breaker's lock

	mu      sync.Mutex // held briefly, after any breaker's lock
	members []*Breaker // replaced whole, never written
}

// NewGroup makes a group without members.
func NewGroup(c Config, o Options) *Group {
	if o.Excluded == nil {
		o.Excluded = func(error) bool { return false }
	}
	if o.Hard == nil {
		o.Hard = func(error) bool { return false }
	}
	if o.Usable == nil {
		o.Usable = func(string, any) bool { return true }
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.OnChange == nil {
		o.OnChange = func(Change) {}
	}
	g := &Group{options: o}
	g.Configure(c, nil)
	return g
}

// Configure replaces configuration and members. A member that keeps its ID and
// its Ref keeps its breaker, with its state and its counts; only when Window
// changes do the counts within it start afresh, because a count over another
// time is another count. New values of OpenFor and of Probes hold from the next
// opening on, and Probes for a breaker that is open too. A breaker whose member
// is gone stays as it is for those who still hold it, counts nothing more and
// leaves no timer behind.
//
// Configure causes no transition: when fewer members leave too many of them
// out, the next Poll closes some.
func (g *Group) Configure(c Config, members []Member) {
	g.reload.Lock()
	defer g.reload.Unlock()
	c = c.whole()
	old := g.all()
	breakers := make([]*Breaker, len(members))
	for i, m := range members {
		if breakers[i] = find(old, m.ID, m.Ref); breakers[i] == nil {
			breakers[i] = newBreaker(g, c, m)
		} else {
			breakers[i].configure(c)
		}
	}
	g.mu.Lock()
	g.members = breakers
	g.mu.Unlock()
	for _, b := range old {
		if !slices.Contains(breakers, b) {
			b.retire()
		}
	}
}

// Breaker returns the breaker of the member with that ID and Ref. Breakers are
// made by Configure only: for a worker that is no member it returns nil, whose
// methods are safe and let everything pass.
func (g *Group) Breaker(id string, ref any) *Breaker { return find(g.all(), id, ref) }

func find(breakers []*Breaker, id string, ref any) *Breaker {
	for _, b := range breakers {
		if b.id == id && b.ref == ref {
			return b
		}
	}
	return nil
}

// Poll makes half-open what was open for long enough, and closes what may not
// be kept out because nobody else is left. To be called every second: without
// it the first would wait for a request, and the second would not happen.
func (g *Group) Poll() {
	now := time.Now()
	for _, b := range g.all() {
		b.poll(now)
	}
	g.relieve()
}

// all returns the members' breakers. The slice is not to be written.
func (g *Group) all() []*Breaker {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members
}
