package routing

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Member is the configuration of one worker of a pool.
type Member struct {
	ID          string // unique in the pool
	Weight      int    // share of the load; 0 or less takes no new requests
	Group       int    // priority: a higher group is used only if no worker of a lower group is usable
	MaxInflight int    // bound on requests in flight; 0 is no bound
	// MaxTokensInflight bounds the tokens in flight: prompts, cached or not, and expected
	// output. 0 is no bound. A worker without requests in flight takes a request of any size.
	MaxTokensInflight int64
	Models            []uint64 // hashes of the models that it serves, as in Request.Model; empty serves all
	Gate              Gate     // called before each request; nil admits all
	Region            uint64   // hash of the name of its region, as in Request.Regions; 0 is none
	Stages            Stages   // parts of requests that it serves; 0 is StageWhole
	Ref               any      // the caller's handle of the worker; comparable, and opaque to the pool
}

// Gate is a worker's circuit breaker. The pool calls it outside its lock. It must be safe
// for concurrent use.
type Gate interface {
	// Allow returns a ticket, or an error if the worker must not be used now. expected is the
	// predicted time to the outcome: a stream's first token, or the end of any other answer.
	Allow(expected time.Duration) (ticket uint64, err error)
	// Report receives the outcome of a ticket exactly once: nil is a success; ErrExcluded and
	// ErrSlow are possible outcomes.
	Report(ticket uint64, outcome error)
	// ReportCut is called if an answer breaks off after a Report of success. began is the time of the
	// booking.
	ReportCut(began time.Time, err error)
}

// Status is the observed state of a worker.
type Status struct {
	Up        bool
	Saturated bool      // the worker must get no more requests until a Status without it
	Waiting   int       // requests in the engine's own queue
	KVUsage   float64   // share of the KV cache in use, 0 to 1
	LoadAt    time.Time // when the engine reported Waiting and KVUsage; zero if it never did
	// time of the last reading in which the step counters or the load differed, or of the first reading; zero
	// without counters
	SteppedAt time.Time
	// since when they stand still although the engine reports running requests; zero while they move
	StalledSince time.Time
	// size of the KV cache in tokens; 0 if unknown
	CacheTokens int64
}

// Worker is one member of a pool with the load that is booked on it. The same ID and Ref keep
// the same *Worker across Configure, so workers compare by pointer.
type Worker struct {
	id     string
	idHash uint64 // HashText of id
	ref    any

	// The pool's lock guards the remaining fields. Fields that every pick reads come first, so
	// that they share few cache lines.
	index, weight, group, maxInflight int
	stages                            Stages
	models                            []uint64
	region                            uint64
	status                            Status
	slowStartFrom                     time.Time
	inflight                          int
	success                           successRatio
	// booked tokens: prefill without a first event, and expected output
	pending, output int64
	// tokens in flight, prompts and expected output, and their bound
	tokens, maxTokens int64
	backlog           backlog             // requests of the current round that wait for the worker
	value             [quantities]float64 // of learned, as last refreshed
	// bookings whose prefill ends at a predicted time, earliest first
	prefillEnds []*booking
	reserved    bool // freed capacity is kept for one request until the round ends
	// in rotation although its breaker is not closed, by the ejection cap
	ejectionDenied   bool
	concurrencyLimit concurrencyLimit

	gate                    Gate
	backoffUntil, openUntil time.Time
	ejected                 bool // its breaker is not closed
	ejection                Ejection
	ejectedAt, restoredAt   time.Time // start and end of the last ejection
	pace                    pace
	reportedInflight        int // inflight at the time of the last load report
	// first and last of the consecutive load reports with requests waiting in the engine
	queuedFrom, queuedUntil time.Time
	streams                 int       // in flight
	answering, slots        int       // streams with a first event: now, and the most so far
	staleAt                 time.Time // when its stale metrics were last counted
	// prompt tokens that are not in pending, because the worker should have them cached
	assumedCached   int64
	learned         [quantities]estimator
	prior           [quantities]float64 // of learned, as last refreshed
	column          int                 // its column in inflightPrefixes and its bit in cacheModel
	prefixBookings  int                 // bookings with a chain
	latency         latency
	costs           workerCosts
	credit          [sources]credit
	reportsCached   bool // the engine has reported cached tokens
	silences        silences
	overdue, hidden bool // at the last pick; see markOverdueLocked
	removed         bool // no longer a member
	others          othersLoad
}

// ID returns the member's ID.
func (w *Worker) ID() string { return w.id }

// Ref returns the member's Ref.
func (w *Worker) Ref() any { return w.ref }

// viewLocked sets v to the worker as a policy sees it. weight is its effective weight.
func (w *Worker) viewLocked(v *View, full bool, weight float64) {
	*v = View{
		ID: w.id, Index: w.index, Weight: w.weight, Effective: weight, Group: w.group,
		Inflight: w.inflight + w.backlog.requests, MaxInflight: w.concurrencyLimitLocked(), Full: full,
		PendingTokens: w.pending + w.backlog.prefill, OutputTokens: w.output + w.backlog.output,
		Waiting: w.status.Waiting, KVUsage: w.status.KVUsage,
		Rate: w.value[prefillRate], stages: w.stages,
	}
}

// fullLocked reports whether the worker has no room for a request of that many tokens.
func (w *Worker) fullLocked(tokens int64) bool {
	bound := w.concurrencyLimitLocked()
	return w.reserved || bound > 0 && w.inflight >= bound || w.overTokensLocked(tokens)
}

// overTokensLocked reports whether that many tokens exceed the bound on tokens.
func (w *Worker) overTokensLocked(tokens int64) bool {
	return w.maxTokens > 0 && w.inflight > 0 && w.tokens+tokens > w.maxTokens
}

// Pool is the workers of one tier with the load that is booked on them, and the policy that
// selects among them. It is safe for concurrent use.
type Pool struct {
	mu         sync.Mutex
	learnedNow atomic.Uint64           // a packed Learned
	upFrom     atomic.Pointer[upTimes] // nil: no member will be in rotation

	// mu guards the remaining fields.
	policy           Policy
	handover         *handover    // nil without one
	workers          []*Worker    // in the order of the members
	views            []View       // buffer of one decision
	assessments      []assessment // buffer of one recorded decision
	inflightPrefixes inflightPrefixes
	caches           *cacheModel
	facts            facts // that the policy uses
	times            workTimes
	reuse            time.Duration // of the conversation of the current decision; negative without one
	predictions      Predictions
	traffic          traffic
	others           otherGateways
	pins             pins
	journal          journal
	received         []promptBlock // buffer of a prompt of another gateway
	receivedChain    []Block
	free             *booking // list of unused bookings
	learned          learned
	saturation       Saturation
	slowness         Slowness
	healthWeight     HealthWeight
	stale            int64         // see StaleSeconds
	pausedUntil      time.Time     // from then on no worker is in backoff or open
	detectedAt       time.Time     // last call of DetectHangs
	round            DispatchRound // the current one
	onChange         func()        // set by Watch, or nil
	changes          uint64        // calls of onChange
}

// NewPool returns a pool. Its workers are down until Observe reports them up.
func NewPool(policy Policy, members []Member) *Pool {
	p := &Pool{}
	p.round.pool = p
	p.inflightPrefixes.rowsByHash = map[uint64]int32{}
	p.learned.output.limits, p.learned.scale.limits, p.learned.residenceTime.limits = outputLimits, scaleLimits,
		residenceTimeLimits
	p.caches, p.times = &cacheModel{}, newWorkTimes()
	p.Configure(policy, members)
	return p
}

// Configure replaces the policy and the members. A member with the same ID and Ref keeps its
// load, status, backoff and learned values. Its learned concurrency limit is dropped if a
// bound is configured. A member with another Ref is a new worker. To keep a policy's memory,
// pass the same policy again. Leases stay valid and are released on their own worker.
func (p *Pool) Configure(policy Policy, members []Member) {
	workers, rings := make([]*Worker, len(members)), p.grownRings(policy, members)
	p.mu.Lock()
	defer p.unlockChanged()
	p.configureLocked(policy, members, workers, rings)
}

// configureLocked is the part of Configure that needs the lock. It fills workers; rings are the result of grownRings.
func (p *Pool) configureLocked(policy Policy, members []Member, workers []*Worker, rings map[*ring]*ring) {
	for g, grown := range rings {
		g.replace(grown)
	}
	changed := p.matchLocked(workers, members)
	for i := range members {
		m, w := &members[i], workers[i]
		w.index, w.weight, w.group, w.maxInflight, w.gate = i, m.Weight, m.Group, m.MaxInflight, m.Gate
		w.maxTokens, w.region, w.stages = m.MaxTokensInflight, m.Region, m.Stages
		if !slices.Equal(w.models, m.Models) {
			w.models = slices.Clone(m.Models)
		}
		if w.maxInflight > 0 || w.maxTokens > 0 {
			w.concurrencyLimit = concurrencyLimit{}
		}
	}
	p.policy, p.workers = policy, workers
	p.usePoliciesLocked()
	if changed {
		p.inflightPrefixes.reserveRoom(len(members))
		p.learned.sorted = make([]float64, 0, len(members))
		for q := range quantities {
			p.refreshLocked(q)
		}
	}
	p.capEjectionsLocked()
	p.publishLearnedLocked()
}

// matchLocked sets workers to those of the members: present workers, or new ones. The others are removed. It reports
// whether a worker is new or removed.
func (p *Pool) matchLocked(workers []*Worker, members []Member) (changed bool) {
	type handle struct {
		id  string
		ref any
	}
	var present map[handle]*Worker // built if the order differs
	find := func(i int) *Worker {
		m := &members[i]
		if i < len(p.workers) && p.workers[i].id == m.ID && p.workers[i].ref == m.Ref {
			return p.workers[i]
		}
		if present == nil {
			present = make(map[handle]*Worker, len(p.workers))
			for _, w := range p.workers {
				present[handle{w.id, w.ref}] = w
			}
		}
		return present[handle{m.ID, m.Ref}]
	}
	for _, w := range p.workers {
		w.removed = true
	}
	for i := range members {
		w := find(i)
		if w == nil {
			m := &members[i]
			w = &Worker{id: m.ID, idHash: HashText(m.ID), ref: m.Ref, column: p.inflightPrefixes.takeColumn()}
			w.learned[prefillRate].limits, w.learned[tokenTime].limits = rateLimits, timeLimits
			w.silences.lastByte = new(atomic.Int64)
			changed = true
		}
		w.removed, workers[i] = false, w
	}
	for _, w := range p.workers {
		if w.removed {
			p.releaseColumnLocked(w)
			changed = true
		}
	}
	return changed
}

// releaseColumnLocked gives back the column of a removed worker once it has no more bookings
// with a chain.
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

// Observe sets the observed state of the worker with that ID and Ref, if the pool has it. A
// worker that was down and is up may have restarted: the pool assumes an empty cache and
// drops its learned concurrency limit and its success ratio.
func (p *Pool) Observe(id string, ref any, s Status) {
	p.mu.Lock()
	defer p.unlockChanged()
	w := p.findLocked(id, ref)
	if w == nil {
		return
	}
	p.observeLocked(w, s)
	p.capEjectionsLocked()
}

// ObserveAll is Observe for several workers, by their Ref. The ejection cap is applied once.
func (p *Pool) ObserveAll(all map[any]Status) {
	p.mu.Lock()
	defer p.unlockChanged()
	for _, w := range p.workers {
		if s, ok := all[w.ref]; ok {
			p.observeLocked(w, s)
		}
	}
	p.capEjectionsLocked()
}

// observeLocked sets the observed state of a worker.
func (p *Pool) observeLocked(w *Worker, s Status) {
	if s.Up && !w.status.Up {
		p.forgetCacheLocked(w)
		w.concurrencyLimit, w.slots, w.credit = concurrencyLimit{}, 0, [sources]credit{}
		w.success = successRatio{}
		p.levelRecentLocked(w)
	}
	w.recordLoadLocked(s)
	w.status = s
	if w.column < modelWorkers {
		p.caches.setCapacity(w.column, s.CacheTokens)
	}
}

// WorkerView is the state of one worker for metrics, readiness and the admin API.
type WorkerView struct {
	ID                string
	Ref               any
	Weight, Group     int
	Stages            Stages // 0 in a pool without a hand-over
	Up, Saturated     bool
	Inflight          int   // of this gateway
	OthersInflight    int   // of other gateways, as estimated
	MaxInflight       int   // configured bound; 0 is no bound
	ConcurrencyLimit  int   // limit in force on requests in flight, configured or learned; 0 is none
	LimitLearned      bool  // ConcurrencyLimit is learned
	TokensInflight    int64 // prompts, cached or not, and expected output
	MaxTokensInflight int64 // configured bound; 0 is no bound
	PendingTokens     int64
	OutputTokens      int64
	Waiting           int
	KVUsage           float64
	Stale             bool          // Waiting and KVUsage are too old to count
	Backoff           time.Duration // rest of its backoff; 0 without one
	Open              time.Duration // rest of its open state or of the unreachable server's pause; 0 without one
	EjectionDenied    bool          // its breaker is not closed, and the ejection cap keeps it in rotation
	HungAt            time.Time     // when DetectHangs found that it hangs; zero if it does not
	Unanswered        bool          // set by DetectHangs: a request is overdue without a proven hang, and may go to a peer
	LastByteAt        time.Time     // when it last sent a part of an answer; zero if it never did
	// share of its usual load during slow start or with EjectionDenied, 0.1 to 1; otherwise 1
	Share        float64
	SuccessRatio float64 // share of its recent requests that succeeded, 0 to 1
	WeightLoss   float64 // share of Weight that is not in force, by HealthWeight
	SlowRatio    float64 // median of its last comparisons with its peers' streams; 0 if there are too few
	Samples      int     // streams of the last five minutes, at most 64
	Rate         float64 // prefill rate, tokens/s; the median of its peers before its first sample
	// recent share of the predicted cached tokens that the worker had, 0 to 1, by the source of the
	// prediction: the worker's cache events, and the model of its cache. Cached tokens that events should
	// have shown count as predicted too.
	EventsCredit, HistoryCredit float64
	LookupCredit                float64 // the same for look-ups in LMCache's controller
	HistoryTokens               int64   // in the gateway's model of the worker's cache
}

// EffectiveWeight returns the weight by which requests are divided.
func (v *WorkerView) EffectiveWeight() float64 { return float64(v.Weight) * (1 - v.WeightLoss) }

// InRotation reports whether the pool sends requests to the worker: it is up, has weight, and
// is not open. Backoff, saturation and a full worker do not end rotation: meanwhile its
// requests wait or go to other workers.
func (v *WorkerView) InRotation() bool { return v.Up && v.Weight > 0 && v.Open == 0 }

// Snapshot returns the state of all members at now, in their order.
func (p *Pool) Snapshot(now time.Time) []WorkerView {
	p.mu.Lock()
	defer p.mu.Unlock()
	views := make([]WorkerView, len(p.workers))
	for i, w := range p.workers {
		p.endDuePrefillsLocked(w, now)
		w.pace.prune(now)
		saturated, stale := p.metricsLocked(w, now)
		views[i] = WorkerView{
			ID:                w.id,
			Ref:               w.ref,
			Weight:            w.weight,
			Group:             w.group,
			Stages:            w.stages,
			Up:                w.status.Up,
			Saturated:         saturated,
			Stale:             stale,
			Inflight:          w.inflight,
			OthersInflight:    p.othersLoadLocked(w, now).requests,
			MaxInflight:       w.maxInflight,
			ConcurrencyLimit:  w.concurrencyLimitLocked(),
			LimitLearned:      w.concurrencyLimitLocked() > w.maxInflight,
			TokensInflight:    w.tokens,
			MaxTokensInflight: w.maxTokens,
			PendingTokens:     w.pending,
			OutputTokens:      w.output,
			Waiting:           w.status.Waiting,
			KVUsage:           w.status.KVUsage,
			Backoff:           max(0, w.backoffUntil.Sub(now)),
			Open:              max(0, w.openUntilLocked().Sub(now)),
			EjectionDenied:    w.ejectionDenied,
			HungAt:            w.silences.hang.found,
			Unanswered:        w.silences.hang.unanswered,
			LastByteAt:        w.silences.lastByteAt(),
			Share:             w.shareLocked(now),
			SuccessRatio:      w.success.value(now),
			WeightLoss:        1 - p.healthWeight.share(w.success.value(now)),
			SlowRatio:         w.pace.slowRatio(),
			Samples:           len(w.pace.samples),
			Rate:              w.value[prefillRate],
			EventsCredit:      w.credit[fromEvents].trust(),
			HistoryCredit:     w.credit[fromHistory].trust(),
			LookupCredit:      w.credit[fromLookup].trust(),
			HistoryTokens:     p.caches.tokensOf(w.column),
		}
	}
	return views
}
