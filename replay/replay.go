// Package replay repeats the decisions of recorded requests under the configuration that made
// them and under a draft, and sums up the differences. It sends nothing and has no clock and no
// network: the records hold the times.
//
//	r, err := replay.New(replay.Config{Now: inForce, Draft: &draft})
//	r.Add(decision)      // for each record, in the order in which the requests ended
//	report := r.Report() // tiers and workers that change, cache hits, regret and cost
//
// A Replay keeps two sides: the requests as they were really placed, and as the draft places
// them. Each worker has a load and a prefix cache on each side. A recorded pick is decided again
// from its own candidates, changed by the draft and by the difference of the two sides. An equal
// draft therefore reproduces every pick.
//
// A record that cannot be decided again keeps its worker on both sides. Report.Skipped counts
// these records by reason, and Report.Unknown counts decisions that lack some input.
//
// Redecide decides a single recorded pick, as the admin API does to explain a past request.
package replay

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"tierway/decisions"
	"tierway/routing"
	"tierway/tiers"
)

// Setup is one configuration of a replay.
type Setup struct {
	Catalog *tiers.Catalog
	Pools   []Pool

	// Rights returns the permissions of a recorded request's caller, and whether they are
	// known. A nil function, or unknown permissions, allow everything.
	Rights func(d *decisions.Decision) (tier, model func(name string) bool, known bool)
}

// Pool is one tier or pool of a Setup.
type Pool struct {
	Name       string
	Policy     routing.Config
	Rules      []routing.Config                // policies of its rules, as Choice.Rule numbers them
	RuleOf     func(d *decisions.Decision) int // number of the rule that a recorded request meets; nil without rules
	Handover   *Handover                       // nil: each worker computes its prompts itself
	Members    []routing.Member                // all fields except Gate and Ref
	Saturation routing.Saturation
	Context    int64 // tokens of prompt and answer that its model takes; 0: unknown

	// Cost returns the cost of an answer, in units of the price list; nil without a price.
	Cost func(prompt, cached, output int64) float64
}

// Config is the configuration of a replay.
type Config struct {
	Now   Setup  // the configuration that made the records
	Draft *Setup // nil checks the records alone: Now decides again
	// CacheTokens is the assumed capacity of each worker's cache, in tokens of prompts and
	// answers; 0: 300,000.
	CacheTokens int64
}

// defaultCacheTokens is how many tokens the KV cache of a 7 to 14 billion parameter model holds beside
// its weights on one data-centre GPU of 80 GB.
const defaultCacheTokens = 300_000

// maxBuffered is how many records a Replay buffers to sort them by the time of their picks. Records
// are written when requests end, so that a request of minutes comes after thousands that
// started later. At 16 requests/s this covers four minutes. Later records are decided out of
// order and counted in Late.
const maxBuffered = 4096

// Replay decides recorded requests again, under the configuration that made them and under a
// draft, and sums up the differences. Records are added one by one; it buffers a bounded number
// of them. The same records give the same report. It belongs to one goroutine.
//
// Only the draft's changes against Now are applied to a record: records of an older
// configuration keep what was in force then.
//
// The state that a request would have met under the draft is estimated. Each worker has a load
// and a cache on two sides: for the requests as they were really placed, and as the draft
// places them, each with its real duration. The difference of the two sides is added to the
// recorded state of the worker. It is zero while the draft has placed every request alike, so
// that an equal draft decides equally.
type Replay struct {
	now, draft replaySide
	buffered   events // records, by the time of their pick
	began      time.Time
	last       time.Duration // latest pick that was decided
	diverged   bool          // the draft has placed a request differently
	sums       sums
}

// New returns a replay without records. The error says what is invalid in the configurations.
func New(c Config) (*Replay, error) {
	draft := &c.Now
	if c.Draft != nil {
		draft = c.Draft
	}
	tokens := c.CacheTokens
	if tokens == 0 {
		tokens = defaultCacheTokens
	}
	r := &Replay{sums: sums{generations: map[int64]bool{}, skipped: map[string]int{}, reasons: map[string]int{},
		tiers: map[[2]string]*moves{}, workers: map[[3]string]*moves{}}, last: math.MinInt64}
	if err := r.now.open(&c.Now, &c.Now, tokens); err != nil {
		return nil, fmt.Errorf("replaying under the configuration in force: %w", err)
	}
	if err := r.draft.open(draft, &c.Now, tokens); err != nil {
		return nil, fmt.Errorf("replaying under the draft: %w", err)
	}
	r.sums.Groups = append([]string{}, draft.Catalog.Classifier().NewGroups(c.Now.Catalog.Classifier())...)
	return r, nil
}

// replaySide is one of the two placements of the requests: the real one or the draft's.
type replaySide struct {
	setup  *Setup
	chats  *tiers.Chats
	recent *tiers.RecentScores // nil: the thresholds of classifier.share are those of the records
	pools  map[string]*sidePool
	events events // ends of requests

	requests map[string]int64 // by tier
	prompts  map[string]int64 // tokens, by tier
	cost     map[string]float64
	hits     hits
	regret   regret
}

// sidePool is one pool of a side, with the state that the side's requests have left.
type sidePool struct {
	*Pool
	was         *Pool          // the pool of that name in Now; nil without one
	samePolicy  bool           // the policy is configured as in was
	policy      routing.Policy // has seen the requests of this side
	handover    *routing.Handover
	workers     map[string]*workerState
	cacheTokens int64 // capacity of a worker's cache
}

func (s *replaySide) open(setup, now *Setup, tokens int64) error {
	if setup.Catalog == nil {
		return errors.New("the setup has no catalogue of tiers")
	}
	*s = replaySide{setup: setup, chats: tiers.NewChats(tiers.MaxChats), pools: map[string]*sidePool{},
		requests: map[string]int64{}, prompts: map[string]int64{}, cost: map[string]float64{}}
	if !setup.Catalog.Classifier().HasSameThresholds(now.Catalog.Classifier()) {
		s.recent = tiers.NewRecentScores(tiers.MaxScoreWindows)
	}
	for i := range setup.Pools {
		p, err := openPool(&setup.Pools[i], now.pool(setup.Pools[i].Name), tokens)
		if err != nil {
			return err
		}
		s.pools[p.Name] = p
	}
	return nil
}

func openPool(setup, was *Pool, tokens int64) (*sidePool, error) {
	policy, err := routing.Compose(setup.Policy, setup.Rules)
	if err != nil {
		return nil, fmt.Errorf("the policy of %s: %w", setup.Name, err)
	}
	handover, err := setup.Handover.open()
	if err != nil {
		return nil, fmt.Errorf("the prefill policy of %s: %w", setup.Name, err)
	}
	return &sidePool{Pool: setup, was: was, handover: handover,
		samePolicy: was != nil && reflect.DeepEqual(was.Policy, setup.Policy) && reflect.DeepEqual(was.Rules, setup.Rules),
		policy:     policy, workers: map[string]*workerState{}, cacheTokens: tokens}, nil
}

func (s *Setup) pool(name string) *Pool {
	if i := slices.IndexFunc(s.Pools, func(p Pool) bool { return p.Name == name }); i >= 0 {
		return &s.Pools[i]
	}
	return nil
}

// Chooses reports whether a policy of the pool made the choice.
func (p *Pool) Chooses(c *routing.Choice) bool {
	if c.Rule > 0 && c.Rule <= len(p.Rules) {
		return p.Rules[c.Rule-1].Includes(c.Policy)
	}
	return p.Policy.Includes(c.Policy)
}

// member returns the member with that ID and its index; nil and -1 without one.
func (p *Pool) member(id string) (*routing.Member, int) {
	if p == nil {
		return nil, -1
	}
	at := slices.IndexFunc(p.Members, func(m routing.Member) bool { return m.ID == id })
	if at < 0 {
		return nil, -1
	}
	return &p.Members[at], at
}

// Add gives the replay one more record, which it buffers for a while and does not change.
func (r *Replay) Add(d *decisions.Decision) {
	r.sums.countRecord(d)
	if r.began.IsZero() {
		r.began = d.Time
	}
	at := d.Time.Sub(r.began)
	if a := picked(d); a != nil {
		at += millis(a.AtMs)
	}
	r.buffered.plan(at, func() { r.decide(d, at) })
	if len(r.buffered) > maxBuffered {
		r.buffered.next()
	}
}

// Report decides the buffered records and returns the sums.
func (r *Replay) Report() *Report {
	for r.Step() {
		continue
	}
	return r.report()
}

// Step decides one of the records that wait for others to be in order, and reports whether there was one. Under a
// draft with thousands of workers a record takes 0.1 s, so a caller with a time limit calls Step before Report.
func (r *Replay) Step() bool {
	if len(r.buffered) == 0 {
		return false
	}
	r.buffered.next()
	return true
}

// picked returns the last attempt in the request's tier whose worker a policy chose, which produced
// the answer; nil without one.
func picked(d *decisions.Decision) *decisions.Attempt {
	for i := len(d.Attempts) - 1; i >= 0; i-- {
		if d.Attempts[i].Choice != nil && d.Attempts[i].Tier == "" {
			return &d.Attempts[i]
		}
	}
	return nil
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func (r *Replay) decide(d *decisions.Decision, at time.Duration) {
	if at < r.last {
		r.sums.Late++
	}
	r.last = max(r.last, at)
	for _, s := range []*replaySide{&r.now, &r.draft} {
		s.events.until(at)
	}
	tier, ok := r.tierOf(d)
	a := picked(d)
	if a == nil {
		if ok && tier != "" {
			r.sums.skip(reasonWithoutWorker(d))
		}
		return
	}
	switch p := newPick(d, a, tier, at); {
	case !ok:
		r.keepOnBothSides(p)
	case tier == "":
		r.countRefusal(p)
	default:
		r.decideWorker(p)
	}
}

// reasonWithoutWorker returns why the worker of a record without a choice is not decided again.
func reasonWithoutWorker(d *decisions.Decision) string {
	if d.Limit != "" {
		return SkippedLimited
	}
	return SkippedUnplaced
}

// keepOnBothSides leaves a request that cannot be decided at its real worker, on both sides.
func (r *Replay) keepOnBothSides(p *pick) {
	for _, s := range []*replaySide{&r.now, &r.draft} {
		if pool := s.pools[p.d.Tier]; pool != nil {
			s.placeRequest(pool, p.worker, p.prefiller, p.residency)
		}
	}
}
