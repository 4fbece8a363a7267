package routing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// serve sends a request, which is answered at once, and returns its worker.
func (g *gatewayPools) serve(t interface{ Fatal(...any) }, i int, r Request) string {
	l, err := g.pools[i].Acquire(&r)
	if err != nil {
		t.Fatal(err)
	}
	l.Answered(r.Now.Add(100*time.Millisecond), nil)
	l.Release(Result{At: r.Now.Add(200 * time.Millisecond), PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens})
	return l.worker.id
}

// overlaps returns the cached tokens of a prompt by worker, as a pool predicts them.
func overlaps(t interface{ Fatal(...any) }, p *Pool, r Request) (all []int64) {
	for _, v := range viewsOf(t, p, &r) {
		all = append(all, v.Overlap)
	}
	return all
}

// chatRequest is a request of some turns of a chat.
func chatRequest(now time.Time, seed, turns int) Request {
	blocks := chat(seed, turns, 2000)
	return Request{Now: now, Rand: Mix(uint64(seed*100 + turns)), Blocks: blocks, Prefix: blocks[0].Hash, Stream: true,
		PromptTokens: int64(500 * turns), OutputTokens: 30}
}

// TestGatewaysKnowTheSameCaches: whatever each of three gateways serves, after an exchange all predict the same
// cached tokens on each worker. One of them may join late.
func TestGatewaysKnowTheSameCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGatewayPools(t, 3, 3, Config{Name: "random"})
		joined := 2 // gateways
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Second)
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				if joined == 3 {
					continue
				}
				joined = 3
				for _, p := range g.pools { // as the gateways do when they see a new one
					p.RepeatJournal(now)
				}
			case 1, 2:
				i := rapid.IntRange(0, joined-1).Draw(t, "sender")
				all := g.pools
				g.pools = g.pools[:joined]
				g.exchange(t, i, now)
				g.pools = all
			default:
				g.serve(t, rapid.IntRange(0, joined-1).Draw(t, "gateway"),
					chatRequest(now, rapid.IntRange(0, 4).Draw(t, "chat"), rapid.IntRange(1, 6).Draw(t, "turns")))
			}
		}
		// Chats that go on become known to a gateway that joined late.
		for _, p := range g.pools {
			p.RepeatJournal(now)
		}
		for seed := range 5 {
			now = now.Add(time.Second)
			g.serve(t, seed%3, chatRequest(now, seed, 7))
		}
		now = now.Add(time.Second)
		g.exchangeAll(t, now)
		for seed := range 5 {
			want := overlaps(t, g.pools[0], chatRequest(now, seed, 7))
			if slices.Max(want) == 0 {
				t.Fatal("a chat is cached nowhere")
			}
			for i, p := range g.pools[1:joined] {
				if got := overlaps(t, p, chatRequest(now, seed, 7)); joined < 3 && !slices.Equal(got, want) ||
					slices.Max(got) != slices.Max(want) {
					t.Fatalf("chat %d: gateway 0 predicts %v, gateway %d %v", seed, want, i+1, got)
				}
			}
		}
	})
}

// TestJournalHasOnlyNewBlocks: each turn of a long chat costs as many bytes as it adds, and after a gateway has
// joined the next turn is written from its beginning once.
func TestJournalHasOnlyNewBlocks(t *testing.T) {
	g := newGatewayPools(t, 2, 1, Config{Name: "least_load"})
	p, now := g.pools[0], start
	p.RepeatJournal(now)
	length := func(turns int) int {
		now = now.Add(time.Second)
		g.serve(t, 0, chatRequest(now, 1, turns))
		text := p.TakeJournal(nil)
		if err := g.pools[1].ApplyJournal(now, text); err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	length(50)
	if next := length(51); next > 200 {
		t.Errorf("one more turn of 50 takes %d bytes", next)
	}
	p.RepeatJournal(now.Add(time.Millisecond))
	if whole := length(52); whole < 52*9 {
		t.Errorf("after a gateway has joined, a chat of 52 turns takes %d bytes", whole)
	}
	if next := length(53); next > 200 {
		t.Errorf("the turn after that takes %d bytes", next)
	}
	got, want := overlaps(t, g.pools[1], chatRequest(now, 1, 53)), overlaps(t, p, chatRequest(now, 1, 53))
	if !slices.Equal(got, want) {
		t.Errorf("the other gateway predicts %v, want %v", got, want)
	}
}

// TestJournalIsBounded: what does not fit is counted and not published, and later entries do not refer to it.
func TestJournalIsBounded(t *testing.T) {
	g := newGatewayPools(t, 2, 1, Config{Name: "least_load"})
	p := g.pools[0]
	p.RepeatJournal(start.Add(-time.Hour))
	for i := range 3000 {
		g.serve(t, 0, chatRequest(start.Add(time.Duration(i)*time.Millisecond), i, 3))
	}
	text := p.TakeJournal(nil)
	if len(text) > maxJournal+1 || p.JournalDropped() == 0 {
		t.Fatalf("%d bytes wait and %d entries were dropped", len(text), p.JournalDropped())
	}
	if err := g.pools[1].ApplyJournal(start, text); err != nil {
		t.Fatal(err)
	}
	// The last chat was dropped; its next turn is written from the beginning.
	now := start.Add(time.Minute)
	g.serve(t, 0, chatRequest(now, 2999, 4))
	if err := g.pools[1].ApplyJournal(now, p.TakeJournal(nil)); err != nil {
		t.Fatal(err)
	}
	if got := overlaps(t, g.pools[1], chatRequest(now, 2999, 4)); got[0] != 2000 {
		t.Errorf("the other gateway predicts %v of 2000 tokens", got)
	}
}

// TestEventsReplaceTheJournal: caches with events, which each gateway reads itself, are not published.
func TestEventsReplaceTheJournal(t *testing.T) {
	p := kvPool(Member{})
	p.RecordJournal(true)
	r := chatRequest(start, 1, 3)
	r.Cached = []CachedPrefix{{Ref: p.workers[0].ref, Tokens: 0}}
	l := book(t, p, r)
	l.Answered(start, nil)
	l.Release(Result{At: start, PromptTokens: 1500, OutputTokens: 30})
	if text := p.TakeJournal(nil); len(text) > 0 {
		t.Errorf("a journal of %d bytes", len(text))
	}
}

// TestKeysFollowTheTrafficOfAllGateways: a key that is hot only in the traffic of all gateways together is split in
// each of them, so that they place its requests alike.
func TestKeysFollowTheTrafficOfAllGateways(t *testing.T) {
	g := newGatewayPools(t, 3, 8, Config{Name: "chwbl"})
	now := start
	for i := range 6000 {
		now = now.Add(50 * time.Millisecond)
		tenant := i % 3 // each has a third of the traffic, and one gateway sees one tenant only
		blocks := chainOf(chainOf(nil, uint64(tenant+1), 6), uint64(1000+i), 2)
		r := Request{Now: now, Rand: Mix(uint64(i)), Blocks: blocks, Prefix: blocks[5].Hash, PromptTokens: 400,
			OutputTokens: 1, Stream: true}
		g.serve(t, tenant, r)
		g.exchange(t, i%3, now)
	}
	depth := func(p *Pool) int { return p.policy.(Adaptive).Depth().Splits }
	for i, p := range g.pools {
		if got := depth(p); got != 3 {
			t.Errorf("gateway %d has split %d keys, want 3", i, got)
		}
	}
	for i := range 200 {
		blocks := chainOf(chainOf(nil, uint64(i%3+1), 6), uint64(100_000+i), 2)
		r := Request{Now: now, Rand: 1, Blocks: blocks, Prefix: blocks[5].Hash, PromptTokens: 400, Stream: true}
		first := ""
		for k, p := range g.pools {
			o, err := p.Preview(&r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if k == 0 {
				first = o.Worker
			} else if o.Worker != first {
				t.Fatalf("chat %d: gateway 0 places it on %s, gateway %d on %s", i, first, k, o.Worker)
			}
		}
	}
}

// TestUnreadableJournalsAreErrors and change nothing that comes after the fault.
func TestUnreadableJournalsAreErrors(t *testing.T) {
	g := newGatewayPools(t, 2, 1, Config{Name: "least_load"})
	g.serve(t, 0, chatRequest(start, 1, 3))
	good := g.pools[0].TakeJournal(nil)
	for name, bad := range map[string][]byte{
		"empty": {}, "another version": append([]byte{journalVersion + 1}, good[1:]...), "cut": good[:len(good)-1],
		"unknown kind": {journalVersion, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		if err := g.pools[1].ApplyJournal(start, bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzApplyJournal: any text is applied or an error; the model stays within its bounds and consistent.
func FuzzApplyJournal(f *testing.F) {
	g := newGatewayPools(f, 2, 2, Config{Name: "consistent_hash"})
	g.serve(f, 0, chatRequest(start, 1, 3))
	g.serve(f, 0, chatRequest(start.Add(time.Second), 1, 4))
	f.Add(g.pools[0].TakeJournal(nil))
	for _, hashes := range [][]uint64{{7, 7}, {7, 8, 7}, {8, 7}, {7, 8}} { // no hash of a real prompt occurs twice
		var j journal
		j.on = true
		for _, known := range []int{0, len(hashes)} {
			var blocks []promptBlock
			for _, h := range append(hashes, 9)[:len(hashes)+known/len(hashes)] {
				blocks = append(blocks, promptBlock{h, 10})
			}
			j.addPrompt(g.pools[0].workers[0], blocks, known)
		}
		f.Add(append([]byte{journalVersion}, j.text...))
	}
	f.Add([]byte{journalVersion, entryPin, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		g := newGatewayPools(t, 1, 2, Config{Name: "consistent_hash"})
		p := g.pools[0]
		_ = p.ApplyJournal(start, text) // both results are right for some text
		_ = p.ApplyJournal(start, text)
		if err := checkModel(p.caches); err != nil {
			t.Errorf("%x: %v", text, err)
		}
		g.serve(t, 0, chatRequest(start, 1, 3))
	})
}

// checkModel returns an error if the lists of a model contradict its blocks.
func checkModel(c *cacheModel) error {
	for column := range c.lists {
		l, tokens, blocks := &c.lists[column], int64(0), 0
		for n := l.oldest; n != 0; n = c.blocks[n].newer {
			b := &c.blocks[n]
			tokens, blocks = tokens+int64(b.tokens), blocks+1
			if before := b.before; before != 0 && c.find(c.blocks[before].hash, column) != before {
				return fmt.Errorf("block %d of column %d follows block %d, which is gone", n, column, before)
			}
			for steps, at := 0, b.before; at != 0; at = c.blocks[at].before {
				if steps++; steps > l.blocks {
					return fmt.Errorf("the blocks before block %d of column %d are a cycle", n, column)
				}
			}
		}
		if tokens != l.tokens || blocks != l.blocks || l.capacity > 0 && tokens > l.capacity {
			return fmt.Errorf("column %d has %d tokens in %d blocks, and counts %d in %d", column, tokens, blocks, l.tokens,
				l.blocks)
		}
	}
	return nil
}

// TestGatewaysWithoutRedisAgreeOnKeys: each of three gateways learns the keys of chwbl from a third of the same
// traffic, with hot and cold tenants. They place at least 95 % of new chats alike; with depth fixed, all.
func TestGatewaysWithoutRedisAgreeOnKeys(t *testing.T) {
	for depth, least := range map[string]float64{"adaptive": 0.95, "fixed": 1} {
		g := newGatewayPools(t, 3, 8, Config{Name: "chwbl", Depth: depth})
		now := start
		shares := []float64{0.35, 0.25, 0.1, 0.08, 0.07, 0.05, 0.05, 0.05} // of eight tenants
		request := func(i int) Request {
			tenant, u := 0, Unit(Mix(uint64(i)*3+1))
			for ; tenant < len(shares)-1 && u >= shares[tenant]; tenant++ {
				u -= shares[tenant]
			}
			system := chainOf(nil, uint64(tenant+1), 4+tenant)
			blocks := chainOf(chainOf(system, uint64(100+i%400), 1), uint64(10_000+i), 1+i%3)
			return Request{Now: now, Rand: Mix(uint64(i)), Blocks: blocks, Prefix: blocks[len(system)].Hash, PromptTokens: 400,
				OutputTokens: 1, Stream: true}
		}
		for i := range 30_000 {
			now = now.Add(20 * time.Millisecond)
			g.serve(t, int(Mix(uint64(i))%3), request(i))
		}
		same, chats := 0, 1000
		for i := range chats {
			r := request(100_000 + i)
			homes := map[string]bool{}
			for _, p := range g.pools {
				o, err := p.Preview(&r, nil)
				if err != nil {
					t.Fatal(err)
				}
				homes[o.Worker] = true
			}
			if len(homes) == 1 {
				same++
			}
		}
		if float64(same) < least*float64(chats) {
			t.Errorf("depth %s: %d of %d new chats have one worker in all gateways, want %v", depth, same, chats, least)
		}
		t.Logf("depth %s: %d of %d", depth, same, chats)
	}
}
