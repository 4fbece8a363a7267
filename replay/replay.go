// Package replay repeats the decisions of recorded requests, under the configuration that
// they were made by and under a draft of another one, and sums up the difference. It sends
// nothing and knows no clock and no network: the records hold the time.
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

// Setup is one configuration as a replay decides by it.
type Setup struct {
	Catalog *tiers.Catalog
	Pools   []Pool

	// Rights returns what the caller of a recorded request may use, and whether that
	// is known; nil, or not known: everything.
	Rights func(d *decisions.Decision) (tier, model func(name string) bool, known bool)
}

// Pool is one tier or pool of a Setup.
type Pool struct {
	Name       string
	Policy     routing.Config
	Members    []routing.Member // all but Gate and Ref
	Saturation routing.Saturation
	Context    int64 // tokens of prompt and answer that its model takes; 0 is not known

	// Cost is what an answer costs, in units of the price list; nil where no price is
	// known.
	Cost func(prompt, cached, output int64) float64
}

// Config is what recorded decisions are decided again by.
type Config struct {
	Now   Setup  // that the records were made under
	Draft *Setup // nil checks the records alone: Now decides again
	// CacheTokens is how many tokens of prompts and answers each worker's cache is
	// taken to hold; 0 is 300,000.
	CacheTokens int64
}

// usualCache is the tokens that the KV cache of a 7 to 14 billion parameter model holds
// beside its weights on one data-centre GPU of 80 GB.
const usualCache = 300_000

// reorder is how many records a Replay holds back to put them in the order of their
// picks. Records are written when requests end, so that one which takes minutes
// comes after thousands that began later; at 16 requests a second this covers four
// minutes. What comes later still is decided late, and counted in Late.
const reorder = 4096

// Replay decides recorded requests again, under the configuration that they were
// decided by and under a draft of another one, and sums up the difference. Records
// are added one by one, in any number: it holds a bounded number of them. The same
// records give the same report. It belongs to one goroutine.
//
// Only what the draft changes against Now is changed in a record: so the records
// of an older configuration keep what was in force then.
//
// What a request would have met under the draft is estimated: each worker has a
// load and a cache twice, of the requests as they really were placed and of those
// as the draft places them, each lasting as long as it really did. The difference
// of the two is added to what the record says of the worker. As long as the draft
// has placed every request alike it is none, so that an equal draft decides equally.
type Replay struct {
	now, draft replaySide
	held       events // records to be decided, by the time of their pick
	began      time.Time
	last       time.Duration // of the picks that were decided
	diverged   bool          // the draft has placed a request otherwise
	sums       sums
}

// New returns a replay without records. Its error says what cannot be in the
// configurations.
func New(c Config) (*Replay, error) {
	draft := &c.Now
	if c.Draft != nil {
		draft = c.Draft
	}
	tokens := c.CacheTokens
	if tokens == 0 {
		tokens = usualCache
	}
	r := &Replay{sums: newSums(), last: math.MinInt64}
	if err := r.now.open(&c.Now, &c.Now, tokens); err != nil {
		return nil, fmt.Errorf("replaying: the configuration: %w", err)
	}
	if err := r.draft.open(draft, &c.Now, tokens); err != nil {
		return nil, fmt.Errorf("replaying: the draft: %w", err)
	}
	r.sums.Groups = append([]string{}, draft.Catalog.Classifier().NewGroups(c.Now.Catalog.Classifier())...)
	return r, nil
}

// side is one of the two ways that the requests go.
type replaySide struct {
	setup  *Setup
	chats  *tiers.Chats
	pools  map[string]*sidePool
	events events // what ends

	requests map[string]int64 // by tier
	prompts  map[string]int64 // tokens, by tier
	cost     map[string]float64
	hits     hits
	regret   regret
}

// sidePool is one pool with what the requests of a side have left there.
type sidePool struct {
	*Pool
	was         *Pool          // of that name in Now; nil without one
	samePolicy  bool           // the policy is configured as in was
	policy      routing.Policy // which has seen the requests of this side
	workers     map[string]*workerState
	cacheTokens int64 // tokens of a worker's cache
}

func (s *replaySide) open(setup, now *Setup, tokens int64) error {
	if setup.Catalog == nil {
		return errors.New("there is no catalogue of tiers")
	}
	*s = replaySide{setup: setup, chats: tiers.NewChats(tiers.MaxChats), pools: map[string]*sidePool{},
		requests: map[string]int64{}, prompts: map[string]int64{}, cost: map[string]float64{}}
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
	policy, err := routing.New(setup.Policy)
	if err != nil {
		return nil, fmt.Errorf("the policy of %s: %w", setup.Name, err)
	}
	return &sidePool{Pool: setup, was: was, samePolicy: was != nil && reflect.DeepEqual(was.Policy, setup.Policy),
		policy: policy, workers: map[string]*workerState{}, cacheTokens: tokens}, nil
}

func (s *Setup) pool(name string) *Pool {
	if i := slices.IndexFunc(s.Pools, func(p Pool) bool { return p.Name == name }); i >= 0 {
		return &s.Pools[i]
	}
	return nil
}

// member returns the member of that name and its place; nil and -1 without one.
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

// Add gives the replay one more record, which it keeps for a while and does not
// change.
func (r *Replay) Add(d *decisions.Decision) {
	r.sums.read(d)
	if r.began.IsZero() {
		r.began = d.Time
	}
	at := d.Time.Sub(r.began)
	if a := picked(d); a != nil {
		at += millis(a.AtMs)
	}
	r.held.plan(at, func() { r.decide(d, at) })
	if len(r.held) > reorder {
		r.held.next()
	}
}

// Report decides what is still held back, and sums up.
func (r *Replay) Report() *Report {
	for len(r.held) > 0 {
		r.held.next()
	}
	return r.report()
}

// picked returns the last attempt whose worker a policy chose: the one that the
// answer came of. nil without one.
func picked(d *decisions.Decision) *decisions.Attempt {
	for i := len(d.Attempts) - 1; i >= 0; i-- {
		if d.Attempts[i].Choice != nil {
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

// keep leaves a request that cannot be decided where it was, on both sides.
func (r *Replay) keepOnBothSides(p *pick) {
	for _, s := range []*replaySide{&r.now, &r.draft} {
		if pool := s.pools[p.d.Tier]; pool != nil {
			s.place(pool, p.worker, p.residency)
		}
	}
}
