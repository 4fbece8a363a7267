package routing

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// turn sends a request, which takes a second to its first token, and returns its lease after its end.
func turn(t *testing.T, p *Pool, r Request, cached int64) *Lease {
	t.Helper()
	l := book(t, p, r)
	l.Answered(r.Now.Add(time.Second), nil)
	l.Release(Result{At: r.Now.Add(2 * time.Second), PromptTokens: r.PromptTokens, CachedTokens: cached, OutputTokens: 10})
	return l
}

// TestEventsThatMissCachedTokensGiveWayToTheHistory: keys that never match predict nothing, and nothing
// is never too much.
func TestEventsThatMissCachedTokensGiveWayToTheHistory(t *testing.T) {
	p := kvPool(Member{}, Member{})
	now := start
	chats := func(requests int, shown int64) (exact, homes int) {
		for i := range requests {
			now = now.Add(2 * time.Second)
			blocks := prompt(i%20, 100, 20)
			r := Request{Now: now, Blocks: blocks, Prefix: blocks[0].Hash, PromptTokens: 10_000, OutputTokens: 10, Stream: true}
			home := -1
			if e := p.caches.byHash[blocks[19].Hash]; e.holders != 0 {
				home = int(p.caches.blocks[e.first].column)
			}
			for w := range 2 {
				c := CachedPrefix{Ref: w}
				if w == home {
					c.Tokens = shown
				}
				r.Cached = append(r.Cached, c)
			}
			l := book(t, p, r)
			cached := int64(0)
			if l.Worker().index == home {
				cached, homes = 9984, homes+1
			}
			if l.exact {
				exact++
			}
			l.Answered(now.Add(time.Second), nil)
			l.Release(Result{At: now.Add(1500 * time.Millisecond), PromptTokens: 10_000, CachedTokens: cached, OutputTokens: 10})
		}
		return exact, homes
	}
	chats(100, 0)
	if exact, homes := chats(100, 0); exact > 0 || homes < 100 {
		t.Errorf("of 100 choices %d follow wrong events, and %d return to their cache", exact, homes)
	}
	for i, v := range p.Snapshot(now) {
		if v.EventsCredit >= leastTrust || v.HistoryCredit < 0.99 {
			t.Errorf("w%d: the credit of the events is %v, that of the history %v", i, v.EventsCredit, v.HistoryCredit)
		}
	}
	chats(100, 9984) // the keys match after a reload
	if exact, homes := chats(100, 9984); exact < 100 || homes < 100 {
		t.Errorf("of 100 choices %d follow right events, and %d return to their cache", exact, homes)
	}
}

func TestShortPromptsLoseTheirCredit(t *testing.T) {
	var short, long, mixed credit
	for range 20 {
		short.learn(900, 0, 0)
	}
	if n := short.trust(); n >= leastTrust {
		t.Errorf("after 20 wrong predictions of 900 tokens the trust is %v", n)
	}
	long.learn(1_000_000, 0, 0)
	if n := long.trust(); n < 0.6 || n > 0.7 {
		t.Errorf("after one wrong prediction of a long prompt the trust is %v", n)
	}
	for range 30 {
		mixed.learn(5000, 5000, 5000)
	}
	if s, n := mixed.share(), mixed.trust(); s != 1 || n > 0.65 {
		t.Errorf("half of the cached tokens are predicted: a share of %v of them, and a trust of %v", s, n)
	}
}

// TestEventsAreNotChargedForWhatTheyCouldNotShow states when a prefix that only the history knows says
// nothing about the events.
func TestEventsAreNotChargedForWhatTheyCouldNotShow(t *testing.T) {
	blocks := prompt(1, 100, 20)
	for name, c := range map[string]struct {
		first   int // blocks of the first request
		event   CachedPrefix
		wait    time.Duration // from the first request's first event to the second request
		lookup  time.Duration // from the look-up to the request
		cached  int64         // of the second request
		charged bool
		before  func(*testing.T, *Pool, *Request) // runs before the second request
	}{
		"nothing is shown":          {wait: time.Minute, cached: 9984, charged: true},
		"nothing is cached":         {wait: time.Minute},
		"all is shown":              {wait: time.Minute, cached: 9984, event: CachedPrefix{Tokens: 9984}},
		"a block is missing":        {wait: time.Minute, cached: 9984, event: CachedPrefix{Tokens: 9984 - 128}},
		"a half is shown":           {wait: time.Minute, cached: 9984, event: CachedPrefix{Tokens: 5000}, charged: true},
		"only a half is cached":     {wait: time.Minute, cached: 5000, event: CachedPrefix{Tokens: 5000}},
		"both are wrong":            {wait: time.Minute, cached: 5000},
		"the events are on the way": {wait: 900 * time.Millisecond, cached: 9984},
		"stored after the look-up":  {wait: 4 * time.Second, lookup: 4 * time.Second, cached: 9984},
		"stored before the look-up": {wait: 4 * time.Second, lookup: 2 * time.Second, cached: 9984, charged: true},
		"only the beginning could be looked up": {wait: time.Minute, cached: 9984,
			event: CachedPrefix{Tokens: 9744 + 128, More: true}},
		"the prompt is in flight": {wait: time.Minute, cached: 9984, before: func(t *testing.T, p *Pool, r *Request) {
			book(t, p, *r)
		}},
		"a part is in flight up to a landmark before its end": {first: 12, wait: time.Minute, cached: 6000,
			before: func(t *testing.T, p *Pool, r *Request) {
				other := *r
				other.Blocks = prompt(1, 12, 20)
				book(t, p, other)
			}},
		"more than in flight is cached": {wait: time.Minute, cached: 9984, charged: true,
			before: func(t *testing.T, p *Pool, r *Request) {
				other := *r
				other.Blocks = prompt(1, 10, 20)
				book(t, p, other)
			}},
		"another gateway's prompt": {wait: time.Minute, cached: 9984, before: func(_ *testing.T, _ *Pool, r *Request) {
			r.Blocks = prompt(2, 100, 20)
		}},
		"the request fails": {wait: time.Minute, before: func(t *testing.T, p *Pool, r *Request) {
			l := book(t, p, *r)
			l.Release(Result{At: r.Now, Err: errors.New("cancelled")})
		}},
	} {
		p := kvPool(Member{})
		r := Request{Now: start, Blocks: blocks, PromptTokens: 10_000, OutputTokens: 10, Stream: true}
		first := r
		if c.first > 0 {
			first.Blocks, first.PromptTokens = blocks[:c.first], int64(500*c.first)
		}
		turn(t, p, first, 16)
		r.Now = start.Add(time.Second + c.wait)
		r.CachedAt, r.Cached = r.Now.Add(-c.lookup), []CachedPrefix{c.event}
		r.Cached[0].Ref = 0
		if c.before != nil {
			c.before(t, p, &r)
		}
		turn(t, p, r, c.cached)
		if got := p.workers[0].credit[fromEvents].missed > 0; got != c.charged {
			t.Errorf("%s: charged %t", name, got)
		}
	}
}

// lruEngine is an engine with a cache that can be read as it was at an earlier time.
type lruEngine struct {
	changes map[uint64][]time.Time // of a block: stored, removed, stored …
	queue   []*engineRun
}

type engineRun struct {
	lease              *Lease
	blocks             []Block
	started, firstAt   time.Time
	endsAt             time.Time
	cached             int64
	answered, released bool
}

const engineBlock = 400 // tokens

// prefix returns the leading tokens that were cached at that time.
func (e *lruEngine) prefix(blocks []Block, at time.Time) int64 {
	n := 0
	for n < len(blocks) {
		changes := e.changes[blocks[n].Hash]
		before := 0
		for before < len(changes) && !changes[before].After(at) {
			before++
		}
		if before%2 == 0 {
			break
		}
		n++
	}
	return int64(n) * engineBlock
}

func (e *lruEngine) set(blocks []Block, cached bool, at time.Time) {
	for _, b := range blocks {
		if c := e.changes[b.Hash]; len(c)%2 == 1 != cached {
			e.changes[b.Hash] = append(c, at)
		}
	}
}

// run runs the engine, one prefill at a time, up to that time.
func (e *lruEngine) run(until time.Time) {
	free := start
	for _, q := range e.queue {
		if q.firstAt.IsZero() {
			q.started = q.lease.bookedAt
			if free.After(q.started) {
				q.started = free
			}
			if q.started.After(until) {
				return
			}
			q.cached = e.prefix(q.blocks, q.started)
			q.firstAt = q.started.Add(time.Duration(100+engineBlock*int64(len(q.blocks))-q.cached) * time.Millisecond / 4)
		}
		free = q.firstAt
		if !q.answered && !q.firstAt.After(until) {
			q.answered = true
			e.set(q.blocks, true, q.firstAt)
			q.lease.Answered(q.firstAt, nil)
		}
		if !q.answered {
			return
		}
		if end := q.firstAt.Add(q.endsAt.Sub(q.lease.bookedAt)); !q.released && !end.After(until) {
			q.released = true
			q.lease.Release(Result{At: end, PromptTokens: int64(len(q.blocks)) * engineBlock, CachedTokens: q.cached,
				OutputTokens: 10})
		}
	}
	e.queue = slices.DeleteFunc(e.queue, func(q *engineRun) bool { return q.released })
}

// TestRightEventsAreNeverChargedForMissedTokens: with waits in the queue, late events, evictions that
// the history does not know, and prompts in flight.
func TestRightEventsAreNeverChargedForMissedTokens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := kvPool(Member{}, Member{})
		engines := []*lruEngine{{changes: map[uint64][]time.Time{}}, {changes: map[uint64][]time.Time{}}}
		delay := time.Duration(rapid.IntRange(0, 990).Draw(rt, "event delay ms")) * time.Millisecond
		now := start.Add(10 * time.Second)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "pause ms")) * time.Millisecond)
			for _, e := range engines {
				e.run(now)
			}
			chat, n := rapid.IntRange(0, 2).Draw(rt, "chat"), rapid.IntRange(1, 14).Draw(rt, "blocks")
			if rapid.IntRange(0, 3).Draw(rt, "evict") == 0 {
				e := engines[rapid.IntRange(0, 1).Draw(rt, "engine")]
				for branch := range 14 { // an engine evicts no block before the blocks behind it
					e.set(prompt(chat, branch, 14)[n-1:], false, now)
				}
				continue
			}
			blocks := prompt(chat, rapid.IntRange(1, 12).Draw(rt, "branch"), n)
			lookup := now.Add(-time.Duration(rapid.IntRange(0, 4900).Draw(rt, "wait ms")) * time.Millisecond)
			r := Request{Now: now, CachedAt: lookup, Blocks: blocks, PromptTokens: int64(len(blocks)) * engineBlock,
				OutputTokens: 10, Stream: true}
			for i, e := range engines {
				r.Cached = append(r.Cached, CachedPrefix{Ref: i, Tokens: e.prefix(blocks, lookup.Add(-delay))})
			}
			l, err := p.Acquire(&r)
			if err != nil {
				rt.Fatal(err)
			}
			answer := time.Duration(rapid.IntRange(1, 4000).Draw(rt, "answer ms")) * time.Millisecond
			e := engines[l.Worker().index]
			e.queue = append(e.queue, &engineRun{lease: &l, blocks: blocks, endsAt: now.Add(answer)})
		}
		for i, w := range p.workers {
			if c := w.credit[fromEvents]; c.missed != 0 {
				rt.Fatalf("the right events of w%d are charged for %v missed tokens", i, c.missed)
			}
		}
	})
}

// TestCountsOfEventsAreNotScaled: as long as events decide, the cached tokens that they show count as they are.
func TestCountsOfEventsAreNotScaled(t *testing.T) {
	p := kvPool(Member{}, Member{})
	r := Request{Now: start, Blocks: prompt(1, 100, 20), PromptTokens: 10_000, OutputTokens: 10, Stream: true}
	r.Cached = []CachedPrefix{{Ref: 0, Tokens: 9600}}
	for _, cached := range []int64{9600, 4800, 4800} {
		w := turn(t, p, r, cached).Worker()
		r.Now = r.Now.Add(time.Minute)
		if n := w.credit[fromEvents].trust(); n < leastTrust || w.index != 0 {
			t.Fatalf("w%d has a trust of %v", w.index, n)
		}
	}
	if l := book(t, p, r); !l.exact || l.Overlap() != 9600 || l.Worker().credit[fromEvents].share() > 0.9 {
		t.Errorf("%d cached tokens are expected, exact %v, with a share of %v", l.Overlap(), l.exact,
			l.Worker().credit[fromEvents].share())
	}
}

// TestAPoolIsBusyWithoutAnIdleWorker: workers that take no requests do not count.
func TestAPoolIsBusyWithoutAnIdleWorker(t *testing.T) {
	p := kvPool(Member{}, Member{})
	r := Request{Now: start, PromptTokens: 10, OutputTokens: 10}
	for i, busy := range []bool{false, false, true} {
		if p.Busy(start) != busy {
			t.Errorf("with %d requests in flight: busy is %v", i, !busy)
		}
		if i < 2 {
			book(t, p, r)
		}
	}
}
