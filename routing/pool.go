package routing

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Member is one worker of a pool as the configuration has it.
type Member struct {
	ID          string // unique in the pool
	Weight      int    // its share; 0 or less takes no new requests
	Group       int    // priority: a higher group is used only if no worker of a lower one is usable
	MaxInflight int    // requests at once; 0 is no bound
	// MaxTokensInflight bounds the tokens of prompts, cached or not, and expected answers
	// at once; 0 is no bound. A worker with nothing in flight takes any one request.
	MaxTokensInflight int64
	Models            []uint64 // hashes of the names that it serves, as Request.Model has them; empty serves all
	Gate              Gate     // asked before each request; nil lets all pass
	Ref               any      // what the caller sends with; must be comparable. The pool never looks inside
}

// Gate is a worker's circuit breaker. It is called outside the pool's lock and must be
// safe for concurrent use.
type Gate interface {
	// Allow returns an error if the worker may not be used now, else a ticket. The
	// outcome is expected after that time: a stream's first token, or a whole answer.
	Allow(expected time.Duration) (ticket uint64, err error)
	// Report is called exactly once for a ticket, with nil for a success, and with
	// ErrExcluded and ErrSlow among others.
	Report(ticket uint64, outcome error)
	// Cut is called if an answer that was reported as a success has broken off. Its
	// request was booked at began.
	Cut(began time.Time, err error)
}

// Status is what is observed of a worker from outside.
type Status struct {
	Up        bool
	Saturated bool      // it should get nothing more until it says otherwise
	Waiting   int       // requests in its own queue
	KVUsage   float64   // share of its KV cache in use, 0 to 1
	LoadAt    time.Time // when it reported Waiting and KVUsage; zero if it never did
}

// Worker is one member of a pool with the load booked on it. It stays the same object, for
// comparison by pointer, as long as its ID and Ref do.
type Worker struct {
	id  string
	ref any

	// The rest is guarded by the pool's lock. The fields that every pick reads come first, so
	// that they share few cache lines.
	index, weight, group, maxInflight int
	models                            []uint64
	status                            Status
	slowStartFrom                     time.Time
	inflight                          int
	pending, output                   int64
	tokens, maxTokens                 int64 // of all in flight
	backlog                           backlog
	value                             [quantities]float64 // of learned, as last refreshed
	prefillEnds                       []*booking          // prefills that end at a predicted time, the earliest first
	reserved                          bool                // until the round ends: freed capacity is kept for one request
	ejectionDenied                    bool                // in rotation although it is ejected, by the ejection cap
	concurrencyLimit                  concurrencyLimit

	gate                    Gate
	backoffUntil, openUntil time.Time
	ejected                 bool // its breaker is not closed
	ejection                Ejection
	ejectedAt, restoredAt   time.Time // when the last ejection began and ended
	pace                    pace
	reportedInflight        int       // inflight at the time of the last load report
	queuedFrom, queuedUntil time.Time // first and last of the consecutive load reports that show requests waiting in the engine
	streams                 int       // in flight
	answering, slots        int       // streams that have begun to answer: now, and the most so far
	staleAt                 time.Time // when old metrics of it were last counted
	assumedCached           int64     // prompt tokens that are not in pending, because the worker is believed to have them cached
	learned                 [quantities]estimator
	prior                   [quantities]float64 // of learned, as last refreshed
	column                  int                 // in the pool's chains
	prefixBookings          int                 // bookings with a chain
	inHistory               bool                // something of it is in the pool's memory
	removed                 bool
}

// ID returns the member's ID.
func (w *Worker) ID() string { return w.id }

// Ref returns what the member was configured with.
func (w *Worker) Ref() any { return w.ref }

// viewLocked makes v the worker as a policy sees it.
func (w *Worker) viewLocked(v *View, full bool) {
	*v = View{
		ID: w.id, Index: w.index, Weight: w.weight, Group: w.group,
		Up: w.status.Up, Saturated: w.status.Saturated,
		Inflight: w.inflight + w.backlog.requests, MaxInflight: w.concurrencyLimitLocked(), Full: full,
		PendingTokens: w.pending + w.backlog.prefill, OutputTokens: w.output + w.backlog.output,
		Waiting: w.status.Waiting, KVUsage: w.status.KVUsage,
		Rate: w.value[prefillRate],
	}
}

// fullLocked reports whether the worker has no place for a request of so many tokens.
func (w *Worker) fullLocked(tokens int64) bool {
	bound := w.concurrencyLimitLocked()
	return w.reserved || bound > 0 && w.inflight >= bound || w.overTokensLocked(tokens)
}

// overTokensLocked reports whether the bound on tokens leaves no place for so many.
func (w *Worker) overTokensLocked(tokens int64) bool {
	return w.maxTokens > 0 && w.inflight > 0 && w.tokens+tokens > w.maxTokens
}

// Pool is the workers that share one kind of request, the load booked on them and the
// policy that selects among them. It is safe for concurrent use.
type Pool struct {
	mu         mutex
	learnedNow atomic.Uint64             // a packed Learned
	upFrom     atomic.Pointer[time.Time] // a member is in rotation from then on; nil: none will be

	// The rest is guarded by mu.
	policy           Policy
	plans            bool         // the policy is a Planner
	workers          []*Worker    // in the order of the members
	views            []View       // room for one decision, reused by the next
	assessments      []assessment // likewise, for the recorded ones
	inflightPrefixes inflightPrefixes
	history          prefixHistory
	free             *booking // bookings to be used again
	learned          learned
	saturation       Saturation
	slowness         Slowness
	stale            int64         // see Stale
	pausedUntil      time.Time     // no worker is in backoff or open from then on
	round            DispatchRound // the one under way
	onChange         func()        // the watcher, or nil
	changes          uint64        // that the watcher was called for
}

// NewPool makes a pool. Its workers are down until Observe says otherwise.
func NewPool(policy Policy, members []Member) *Pool {
	p := &Pool{}
	p.round.pool = p
	p.inflightPrefixes.rowsByHash = map[uint64]int32{}
	p.learned.output.limits, p.learned.scale.limits, p.learned.residenceTime.limits = outputLimits, scaleLimits, residenceTimeLimits
	p.Configure(policy, members)
	return p
}

// Configure replaces policy and members. A member that keeps its ID and its Ref keeps its
// load, its status, its backoff and what was learned of it, except the learned bound if
// one is configured; one with another Ref is a new worker. A policy that shall keep its
// memory is passed again. Leases stay valid and are released on their own worker.
func (p *Pool) Configure(policy Policy, members []Member) {
	p.mu.Lock()
	defer p.unlockChanged()
	workers := make([]*Worker, len(members))
	for i, m := range members {
		w := p.findLocked(m.ID, m.Ref)
		if w == nil {
			w = &Worker{id: m.ID, ref: m.Ref, column: p.inflightPrefixes.takeColumn()}
			w.learned[prefillRate].limits, w.learned[tokenTime].limits = rateLimits, timeLimits
		}
		w.index, w.weight, w.group, w.maxInflight, w.gate = i, m.Weight, m.Group, m.MaxInflight, m.Gate
		w.maxTokens, w.models = m.MaxTokensInflight, slices.Clone(m.Models)
		if w.maxInflight > 0 || w.maxTokens > 0 {
			w.concurrencyLimit = concurrencyLimit{}
		}
		workers[i] = w
	}
	for _, w := range p.workers {
		if !slices.Contains(workers, w) {
			w.removed = true
			p.releaseColumnLocked(w)
		}
	}
	p.policy, p.plans, p.workers = policy, plans(policy), workers
	p.views, p.assessments = make([]View, 0, len(members)), make([]assessment, len(members))
	p.inflightPrefixes.reserveRoom(len(members))
	p.learned.sorted = make([]float64, 0, len(members))
	for q := range quantities {
		p.refreshLocked(q)
	}
	p.capEjectionsLocked()
	p.publishLearnedLocked()
}

// mutex is a mutex that counts how often it was locked.
type mutex struct {
	sync.Mutex
	locked int64 // guarded by it
}

// Lock locks the mutex.
func (m *mutex) Lock() {
	m.Mutex.Lock()
	m.locked++
}

// Locked returns how often the pool's lock was taken.
func (p *Pool) Locked() int64 {
	p.mu.Mutex.Lock()
	defer p.mu.Unlock()
	return p.mu.locked
}

// releaseColumnLocked gives back the column of a worker that is gone, once the chains have nothing
// of it.
func (p *Pool) releaseColumnLocked(w *Worker) {
	if w.removed && w.prefixBookings == 0 {
		p.forgetCacheLocked(w)
		p.inflightPrefixes.releaseColumn(w.column)
	}
}

func (p *Pool) findLocked(id string, ref any) *Worker {
	for _, w := range p.workers {
		if w.id == id && w.ref == ref {
			return w
		}
	}
	return nil
}

// Observe records what was seen of the worker with that ID and Ref, if the pool has it. A
// worker that was down and is up may have been restarted: its cache is taken for empty,
// and the bound learned of it is forgotten.
func (p *Pool) Observe(id string, ref any, s Status) {
	p.mu.Lock()
	defer p.unlockChanged()
	w := p.findLocked(id, ref)
	if w == nil {
		return
	}
	if s.Up && !w.status.Up {
		p.forgetCacheLocked(w)
		w.concurrencyLimit, w.slots = concurrencyLimit{}, 0
	}
	w.recordLoadLocked(s)
	w.status = s
	p.capEjectionsLocked()
}

// WorkerView is one worker as metrics, readiness and the admin API show it.
type WorkerView struct {
	ID                string
	Ref               any
	Weight, Group     int
	Up, Saturated     bool
	Inflight          int
	MaxInflight       int   // as configured; 0 is no bound
	ConcurrencyLimit  int   // the bound in force on requests in flight, configured or learned; 0 is none
	LimitLearned      bool  // Bound is learned
	TokensInflight    int64 // of prompts, cached or not, and expected answers
	MaxTokensInflight int64 // 0 is no bound
	PendingTokens     int64
	OutputTokens      int64
	Waiting           int
	KVUsage           float64
	Stale             bool          // Waiting and KVUsage are too old to count
	Backoff           time.Duration // how long it gets nothing yet; 0 when it is not cooling
	Open              time.Duration // how long its breaker keeps everything from it; 0 when it is closed
	EjectionDenied    bool          // its breaker is not closed, and the ejection cap keeps it in rotation
	Share             float64       // of its usual load while it is kept or starts slowly, 0.1 to 1; else 1
	SlowRatio         float64       // median of its last comparisons with its peers' streams; 0 if they are too few
	Samples           int           // streams of the last five minutes, at most 64
	Rate              float64       // prefill, tokens/s
	RateCount         int64         // samples behind Rate; 0 means that it is what the others do
	TokenTime         time.Duration // time per output token
	TokenTimeCount    int64
}

// InRotation reports whether the pool sends the worker requests: it is up, has weight, and no
// open breaker keeps them from it. A worker in backoff, saturated or full stays in rotation:
// its requests wait or go to another worker meanwhile.
func (v *WorkerView) InRotation() bool { return v.Up && v.Weight > 0 && v.Open == 0 }

// Snapshot returns all members in their order, as they are now.
func (p *Pool) Snapshot(now time.Time) []WorkerView {
	p.mu.Lock()
	defer p.mu.Unlock()
	views := make([]WorkerView, len(p.workers))
	for i, w := range p.workers {
		w.endDuePrefillsLocked(now)
		w.pace.prune(now)
		saturated, stale := p.metricsLocked(w, now)
		views[i] = WorkerView{
			ID: w.id, Ref: w.ref, Weight: w.weight, Group: w.group,
			Up: w.status.Up, Saturated: saturated, Stale: stale,
			Inflight: w.inflight, MaxInflight: w.maxInflight, ConcurrencyLimit: w.concurrencyLimitLocked(), LimitLearned: w.concurrencyLimitLocked() > w.maxInflight,
			TokensInflight: w.tokens, MaxTokensInflight: w.maxTokens,
			PendingTokens: w.pending, OutputTokens: w.output,
			Waiting: w.status.Waiting, KVUsage: w.status.KVUsage,
			Backoff: max(0, w.backoffUntil.Sub(now)), Open: max(0, w.openUntilLocked().Sub(now)), EjectionDenied: w.ejectionDenied, Share: w.shareLocked(now),
			SlowRatio: w.pace.slowRatio(), Samples: len(w.pace.samples),
			Rate: w.value[prefillRate], RateCount: w.learned[prefillRate].count,
			TokenTime: seconds(w.value[tokenTime]), TokenTimeCount: w.learned[tokenTime].count,
		}
	}
	return views
}
