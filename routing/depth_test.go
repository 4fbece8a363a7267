package routing

import (
	"slices"
	"testing"
	"time"
)

// chainOf appends n blocks of that content to a chain.
func chainOf(chain []Block, what uint64, n int) []Block {
	hash, end := uint64(1), int64(0)
	if len(chain) > 0 {
		hash, end = chain[len(chain)-1].Hash, chain[len(chain)-1].End
	}
	chain = slices.Clip(chain)
	for i := range n {
		hash = Mix(hash ^ Mix(what*1000+uint64(i)+1))
		chain = append(chain, Block{Hash: hash, End: end + int64(i+1)*512})
	}
	return chain
}

// ask places a prompt of that chain, of which the worker computes the last blocks.
func (w *policySim) ask(chain []Block, fresh int, whole time.Duration) (int, Reason) {
	const blockTokens, rate = 128, 8000
	return w.send(&Request{
		Blocks: chain, Prefix: chain[0].Hash, PromptTokens: int64(len(chain)) * blockTokens, OutputTokens: 200, Stream: true,
	}, 10*time.Millisecond+time.Duration(fresh)*blockTokens*time.Second/rate, whole)
}

// A chat that grows by two blocks per turn finds its cache after any system prompt, because its key
// is an unchanging part of it. Only the bound moves a turn. It moves more turns if a tenant has more
// traffic than fits one worker but too little to be split, because its chats then share one key.
func TestGrowingChatStaysHome(t *testing.T) {
	for _, c := range []struct {
		name    string
		systems []int     // blocks of each tenant's system prompt
		shares  []float64 // cumulative, of the chats
		least   float64
	}{
		{"no system prompt", nil, nil, 0.95},
		{"one tenant", []int{32}, []float64{1}, 0.95},
		{"three tenants that are split", []int{4, 40, 12}, []float64{0.36, 0.68, 1}, 0.95},
		{"six tenants, most of them in between", []int{4, 12, 40, 7, 20, 9}, []float64{0.22, 0.4, 0.55, 0.7, 0.85, 1}, 0.7},
	} {
		p := mustCHWBL(t, Config{})
		w := newPolicySim(p, 8)
		stayed, home := w.converse(c.systems, c.shares)
		t.Logf("%s: %.1f %% of the turns went where the one before was, %.1f %% home; max/mean requests %.2f; %+v in %s",
			c.name, 100*stayed, 100*home, unfair(w.took), p.Depth(), w.now.Sub(start).Round(time.Minute))
		if stayed < c.least {
			t.Errorf("%s: %.1f %% of the turns went where the one before was", c.name, 100*stayed)
		}
	}
}

// converse runs forty chats of twenty turns at once, with other prompts between them. It returns the
// share of all turns but the first that went to the worker of the turn before, and the share that
// went home.
func (w *policySim) converse(systems []int, shares []float64) (stayed, home float64) {
	const turns, chats, requests = 20, 40, 8000
	type chat struct {
		chain  []Block
		said   uint64
		turn   int
		worker int
		next   time.Time
	}
	said := uint64(1000)
	begin := func() chat {
		said++
		c := chat{said: said, next: w.now.Add(w.rng.exp(20 * time.Second))}
		if len(systems) > 0 {
			at := w.rng.draw(shares)
			c.chain = chainOf(nil, uint64(at+1), systems[at])
		}
		c.chain = chainOf(c.chain, said, 2)
		return c
	}
	open := make([]chat, chats)
	for i := range open {
		open[i] = begin()
		open[i].turn = i % turns
	}
	followed := 0.0
	for range requests {
		c := &open[0]
		for i := range open {
			if open[i].next.Before(c.next) {
				c = &open[i]
			}
		}
		if w.now = c.next; w.rng.below(5) == 0 {
			said++
			w.ask(chainOf(nil, said, 1+w.rng.below(40)), 20, w.rng.exp(3*time.Second))
		}
		worker, reason := w.ask(c.chain, 2, time.Second+w.rng.exp(3*time.Second))
		if c.turn > 0 && w.now.Sub(start) > 5*time.Minute { // by then what is to be split is
			followed++
			if worker == c.worker {
				stayed++
			}
			if reason == ReasonPrefixHome {
				home++
			}
		}
		c.worker = worker
		if c.turn++; c.turn == turns {
			*c = begin()
			continue
		}
		c.chain = chainOf(c.chain, c.said, 2)
		c.next = w.now.Add(time.Second + w.rng.exp(15*time.Second))
	}
	return stayed / followed, home / followed
}

// A thousand chats share a system prompt of 4,096 tokens: the shared part is no key.
func TestSharedSystemPromptUsesAllWorkers(t *testing.T) {
	p := mustCHWBL(t, Config{})
	w := newPolicySim(p, 8)
	system := chainOf(nil, 1, 32)
	chats := make([][]Block, 1000)
	for i := range chats {
		chats[i] = chainOf(system, uint64(i+2), 3)
	}
	for i := range 12_000 {
		if i == 2000 {
			clear(w.took)
		}
		w.now = w.now.Add(w.rng.exp(200 * time.Millisecond))
		at := w.rng.below(len(chats))
		w.ask(chats[at], 3, w.rng.exp(4*time.Second))
		if len(chats[at]) < 60 {
			chats[at] = chainOf(chats[at], uint64(at+2), 2)
		}
	}
	t.Logf("requests by worker %v, max/mean %.2f, %+v", w.took, unfair(w.took), p.Depth())
	fair := 10_000 / 8
	if slices.Max(w.took) > fair*5/4 || slices.Min(w.took) < fair*3/4 {
		t.Errorf("a worker is not within a quarter of its fair share %d: %v", fair, w.took)
	}
	if d := p.Depth(); d.Shared != 32 || d.Changes > 2 {
		t.Errorf("the depth is %+v, want 32 shared blocks", d)
	}
}

// All traffic shares its first block and nothing else.
func TestSharedFirstBlockOverloadsNoWorker(t *testing.T) {
	p := mustCHWBL(t, Config{})
	w := newPolicySim(p, 8)
	first := chainOf(nil, 1, 1)
	for i := range 10_000 {
		w.now = w.now.Add(w.rng.exp(100 * time.Millisecond))
		n := 1 + w.rng.below(60)
		w.ask(chainOf(first, uint64(i+2), n), n, w.rng.exp(2*time.Second))
	}
	t.Logf("max/mean requests %.2f, tokens %.2f; %+v", unfair(w.took), unfair(w.tokens), p.Depth())
	if unfair(w.took) > 1.2 || unfair(w.tokens) > 1.2 {
		t.Errorf("requests %v, tokens %v", w.took, w.tokens)
	}
}

// A steady mix of traffic moves nothing once it is known, whatever share of it has a common prefix.
// A prefix of about half of the traffic may be split first, then count as shared and be joined.
// Nothing else changes twice.
func TestSteadyTrafficKeepsItsDepth(t *testing.T) {
	most := int64(0)
	for _, workers := range []int{2, 3, 8, 16} {
		for _, shared := range []float64{0, 0.3, 0.45, 0.5, 0.55, 0.7, 1, 1 / float64(workers)} {
			p := mustCHWBL(t, Config{})
			w := newPolicySim(p, workers)
			w.rng += rng(workers*1000) + rng(shared*100)
			system, other := chainOf(nil, 1, 12), uint64(100)
			for w.now.Sub(start) < time.Hour {
				w.now = w.now.Add(w.rng.exp(500 * time.Millisecond))
				if other++; w.rng.unit() < shared {
					w.ask(chainOf(system, other, 3), 3, w.rng.exp(2*time.Second))
				} else {
					w.ask(chainOf(nil, other, 1+w.rng.below(20)), 20, w.rng.exp(2*time.Second))
				}
			}
			d := p.Depth()
			most = max(most, d.Changes-int64(d.Splits))
			bound := int64(2)
			if shared > 0.5 && shared < 0.6 {
				bound = 3
			}
			if d.Changes-int64(d.Splits) > bound || d.Splits > 2 {
				t.Errorf("%d workers, %.0f %% shared: %+v in an hour", workers, 100*shared, d)
			}
			if want := map[bool]int{true: 12}[shared > 0.6]; d.Shared != want && (shared < 0.4 || shared > 0.6) {
				t.Errorf("%d workers, %.0f %% shared: %+v", workers, 100*shared, d)
			}
		}
	}
	t.Logf("at most %d changes in an hour beside the first split of a beginning", most)
}

// One tenant of eight workers has 40 % of the traffic under one system prompt, which is too much for
// one worker. Its requests are split after a minute, and are one key again when the tenant has faded.
func TestLargeTenantIsSplitAndJoined(t *testing.T) {
	p := mustCHWBL(t, Config{})
	w := newPolicySim(p, 8)
	system, said := chainOf(nil, 1, 20), uint64(100)
	var split, joined time.Duration
	until := func(end time.Duration, share float64, each func()) (homes map[int]bool) {
		homes = map[int]bool{}
		for w.now.Sub(start) < end {
			w.now = w.now.Add(w.rng.exp(100 * time.Millisecond))
			if said++; w.rng.unit() >= share {
				w.ask(chainOf(nil, said, 5), 5, w.rng.exp(time.Second))
			} else if worker, reason := w.ask(chainOf(system, said, 3), 3, w.rng.exp(time.Second)); reason == ReasonPrefixHome {
				homes[worker] = true
			}
			each()
		}
		return homes
	}
	splits := func() {
		if at := w.now.Sub(start); p.Depth().Splits > 0 && split == 0 {
			split = at
		} else if p.Depth().Splits == 0 && split > 0 && joined == 0 {
			joined = at
		}
	}
	if homes := until(time.Minute, 0.4, splits); len(homes) != 1 || split > 0 {
		t.Errorf("in its first minute the tenant has homes %v", homes)
	}
	until(2*time.Minute, 0.4, splits)
	if homes := until(10*time.Minute, 0.4, splits); len(homes) != 8 || p.Depth().Splits != 1 {
		t.Errorf("after ten minutes the tenant has homes %v, %+v", homes, p.Depth())
	}
	until(20*time.Minute, 0.01, splits)
	t.Logf("split after %s, joined %s after it faded", split.Round(time.Second),
		(joined - 10*time.Minute).Round(time.Second))
	if split < time.Minute || split > 2*time.Minute || joined < 11*time.Minute || joined > 15*time.Minute {
		t.Errorf("split after %s, joined after %s", split, joined)
	}
	if d := p.Depth(); d.Splits != 0 || d.Changes != 2 {
		t.Errorf("in the end %+v", d)
	}
	if homes := until(25*time.Minute, 0.01, splits); len(homes) != 1 {
		t.Errorf("joined again the tenant has homes %v", homes)
	}
}

// A new version of an application has another system prompt, and the depth follows.
func TestDepthFollowsANewSystemPrompt(t *testing.T) {
	p := mustCHWBL(t, Config{})
	w := newPolicySim(p, 8)
	said, followed := uint64(100), time.Duration(0)
	for i, system := range [][]Block{chainOf(nil, 1, 32), chainOf(nil, 2, 20), chainOf(chainOf(nil, 2, 20), 3, 20)} {
		begin := w.now
		for w.now.Sub(begin) < 20*time.Minute {
			w.now = w.now.Add(w.rng.exp(200 * time.Millisecond))
			said++
			w.ask(chainOf(system, said, 4), 4, w.rng.exp(time.Second))
			if took := w.now.Sub(begin); p.Depth().Shared != len(system) {
				followed = max(followed, took)
			}
			if w.now.Sub(begin) < 10*time.Minute {
				clear(w.took)
			}
		}
		// Back to nothing in common, a split while that lasts, the new depth, and the
		// split joined.
		if d := p.Depth(); d.Shared != len(system) || d.Changes > int64(1+4*i) {
			t.Errorf("prompt %d has %d blocks: %+v", i+1, len(system), d)
		}
		if unfair(w.took) > 1.25 {
			t.Errorf("prompt %d: requests by worker %v", i+1, w.took)
		}
	}
	t.Logf("followed within %s, %+v", followed.Round(time.Second), p.Depth())
	if followed > 8*time.Minute {
		t.Errorf("it took %s to follow", followed)
	}
}
