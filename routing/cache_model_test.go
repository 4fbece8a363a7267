package routing

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// plainCache is an LRU cache without any cleverness: the latest use is last.
type plainCache struct {
	capacity int64
	blocks   []plainBlock
}

type plainBlock struct {
	hash   uint64
	tokens int64
	answer int64
	leaf   bool
	at     int64
}

func (c *plainCache) use(prompt []promptBlock, at int64) {
	for i := len(prompt) - 1; i >= 0; i-- {
		b := plainBlock{hash: prompt[i].hash}
		if k := c.find(b.hash); k >= 0 {
			b = c.blocks[k]
			c.blocks = slices.Delete(c.blocks, k, k+1)
		}
		b.tokens, b.leaf, b.at = int64(prompt[i].tokens), i == len(prompt)-1, at
		if !b.leaf {
			b.answer = 0
		}
		c.blocks = append(c.blocks, b)
	}
	c.evict()
}

func (c *plainCache) find(hash uint64) int {
	return slices.IndexFunc(c.blocks, func(b plainBlock) bool { return b.hash == hash })
}

func (c *plainCache) tokens(since int64) (n int64) {
	for _, b := range c.blocks {
		if b.at >= since {
			n += b.tokens + b.answer
		}
	}
	return n
}

func (c *plainCache) evict() {
	for c.tokens(0) > c.capacity || int64(len(c.blocks)) > c.capacity/leastBlock+1 {
		c.blocks = c.blocks[1:]
	}
}

// overlap is the cached prefix of a prompt, with the answer that most likely follows it.
func (c *plainCache) overlap(blocks []Block, prompt int64) int64 {
	n, k := 0, -1
	for n < len(blocks) && c.find(blocks[n].Hash) >= 0 {
		k = c.find(blocks[n].Hash)
		n++
	}
	if n == 0 {
		return 0
	}
	tokens := tokensUpTo(blocks[n-1].End, blocks[len(blocks)-1].End, prompt)
	if n < len(blocks) && c.blocks[k].leaf {
		tokens = min(prompt, tokens+c.blocks[k].answer)
	}
	return tokens
}

func TestCacheModelIsALRUCacheOfTheWorkersSize(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const workers = 3
		var c cacheModel
		var plain [workers]plainCache
		now := start
		var ws []View
		var all []*Worker
		for i := range workers {
			plain[i].capacity = rapid.Int64Range(100, 3000).Draw(rt, "capacity")
			c.setCapacity(i, plain[i].capacity)
			ws, all = append(ws, View{Index: i}), append(all, &Worker{column: i})
		}
		draw := func() ([]Block, int64) {
			blocks := prompt(rapid.IntRange(1, 3).Draw(rt, "chat"), rapid.IntRange(0, 9).Draw(rt, "branch"),
				rapid.IntRange(1, 20).Draw(rt, "blocks"))
			return blocks, rapid.Int64Range(1, 2000).Draw(rt, "tokens")
		}
		rt.Repeat(map[string]func(*rapid.T){
			"time": func(rt *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(rt, "s")) * time.Second) },
			"record": func(rt *rapid.T) {
				blocks, tokens := draw()
				at := rapid.IntRange(0, workers-1).Draw(rt, "worker")
				c.record(appendPromptBlocks(nil, blocks, tokens), 0, at, now)
				plain[at].use(appendPromptBlocks(nil, blocks, tokens), now.UnixMilli())
			},
			"answer": func(rt *rapid.T) {
				blocks, _ := draw()
				at, hash := rapid.IntRange(0, workers-1).Draw(rt, "worker"), blocks[len(blocks)-1].Hash
				answer := rapid.Int64Range(0, 300).Draw(rt, "answer")
				c.recordAnswer(hash, answer, at)
				if k := plain[at].find(hash); k >= 0 && plain[at].blocks[k].leaf {
					plain[at].blocks[k].answer = answer
					plain[at].evict()
				}
			},
			"forget": func(rt *rapid.T) {
				at := rapid.IntRange(0, workers-1).Draw(rt, "worker")
				c.forgetWorker(at)
				plain[at].blocks = nil
			},
			"resize": func(rt *rapid.T) {
				at := rapid.IntRange(0, workers-1).Draw(rt, "worker")
				plain[at].capacity = rapid.Int64Range(100, 3000).Draw(rt, "capacity")
				c.setCapacity(at, plain[at].capacity)
				plain[at].evict()
			},
			"": func(rt *rapid.T) {
				blocks, tokens := draw()
				for i := range ws {
					ws[i].predicted = [sources]int64{}
				}
				c.predict(&Request{Now: now, Blocks: blocks}, tokens, ws, all)
				since := now.Add(-time.Duration(rapid.IntRange(0, 200).Draw(rt, "age")) * time.Second).UnixMilli()
				for i := range ws {
					if want := plain[i].overlap(blocks, tokens); ws[i].predicted[fromHistory] != want {
						rt.Fatalf("worker %d has %d tokens of the prompt, not %d", i, want, ws[i].predicted[fromHistory])
					}
					want := min(1, float64(plain[i].tokens(since))/float64(plain[i].capacity))
					if got := c.workingSet(i, since); got != want {
						rt.Fatalf("the working set of worker %d is %v of its cache, not %v", i, want, got)
					}
				}
			},
		})
		for i := range ws {
			c.forgetWorker(i)
			if l := c.lists[i]; l.tokens != 0 || l.working != 0 || l.newest != 0 || l.edge != 0 {
				rt.Fatalf("an empty list is %+v", l)
			}
		}
		if len(c.byHash) != 0 {
			rt.Fatalf("%d blocks are left", len(c.byHash))
		}
	})
}

func TestEmptyMessagesDoNotFillTheMemory(t *testing.T) {
	var c cacheModel
	c.setCapacity(0, 100_000)
	for i := range 100 {
		c.record(appendPromptBlocks(nil, prompt(i, 0, 4000), 100), 0, 0, start)
	}
	if n := c.lists[0].blocks; n > 100_000/leastBlock+1 || len(c.byHash) != n {
		t.Errorf("%d blocks for 100,000 tokens", n)
	}
}

func TestUnknownSizeKeepsTheKnownOne(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	p.Observe("a", nil, Status{Up: true, CacheTokens: 1 << 20})
	p.Observe("a", nil, Status{Up: true})
	if n := p.caches.lists[0].capacity; n != 1<<20 {
		t.Errorf("the cache has %d tokens", n)
	}
}

func TestAnswerBelongsToTheConversationThatContinues(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	blocks := prompt(1, 100, 30)
	turn := func(n int, tokens int64) *Lease {
		l, err := p.Acquire(&Request{Now: start, Blocks: blocks[:n], PromptTokens: tokens, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		l.Answered(start, nil)
		l.Release(Result{At: start, OutputTokens: 200})
		return &l
	}
	turn(10, 1000)
	if l := turn(30, 3000); l.overlap != 1200 {
		t.Errorf("%d tokens are cached: the prompt's 1,000 and the answer's 200 should be", l.overlap)
	}
	if l := turn(10, 1000); l.overlap != 1000 {
		t.Errorf("%d tokens of a repeated prompt are cached", l.overlap)
	}
	noChains(t, p)
}

func TestRecordedChainsMissLessThanANinth(t *testing.T) {
	for d := 0; d < 4096; d = nextLandmark(d, 1<<20, chainLandmarkLog) {
		if next := nextLandmark(d, 1<<20, chainLandmarkLog); next <= d || float64(next-1-d) >= float64(next)/9 {
			t.Errorf("after landmark %d comes %d", d, next)
		}
	}
	if n := len(AppendChain(nil, make([]Block, 4096))); n != 81 {
		t.Errorf("of 4,096 blocks %d are recorded", n)
	}
	if n := len(AppendChain(nil, make([]Block, 1))); n != 1 {
		t.Errorf("of one block %d are recorded", n)
	}
}

// chat returns the chain of a chat's first turns, each with one message of that many characters.
// Blocks are as the gateway makes them: 512 characters, and one that ends with the message.
func chat(seed, turns int, characters int64) []Block {
	var blocks []Block
	hash, end := uint64(seed+1), int64(0)
	for range turns {
		for left := characters; left > 0; left -= 512 {
			hash = Mix(hash + 1)
			end += min(left, 512)
			blocks = append(blocks, Block{Hash: hash, End: end})
		}
		hash, end = Mix(hash+2), end+16
		blocks = append(blocks, Block{Hash: hash, End: end})
	}
	return blocks
}

// answer sends a stream that begins and ends well.
func answer(t *testing.T, p *Pool, r Request) *Lease {
	t.Helper()
	l, err := p.Acquire(&r)
	if err != nil {
		t.Fatal(err)
	}
	l.Answered(r.Now, nil)
	l.Release(Result{})
	return &l
}

func TestNextTurnOverlapsWithTheEarlierPrompt(t *testing.T) {
	for _, characters := range []int64{40, 400, 2000, 8000, 30000, 70000} { // up to 17,000 tokens a turn
		p := poolOf(Member{ID: "a", Weight: 1})
		worst := 1.0
		for turn := range 20 {
			blocks := chat(1, turn+1, characters)
			tokens := blocks[len(blocks)-1].End / 4
			l := answer(t, p, Request{Now: start.Add(time.Duration(turn) * time.Minute), Blocks: blocks, PromptTokens: tokens,
				Stream: true})
			if turn == 0 {
				continue
			}
			earlier := float64(tokens) * float64(turn) / float64(turn+1)
			worst = min(worst, float64(tokens-l.prefill)/earlier)
			if l.prefill < 1 || float64(l.prefill) < float64(tokens)-earlier-1 {
				t.Errorf("of turn %d only %d tokens were booked", turn+1, l.prefill)
			}
		}
		if worst < 0.999 {
			t.Errorf("with %d characters a turn %.3f of an earlier prompt is found", characters, worst)
		}
		noChains(t, p)
	}
}

func TestWhenAPromptEntersTheModelOfTheCache(t *testing.T) {
	broke := errors.New("broke")
	for name, c := range map[string]struct {
		stream bool
		end    func(l *Lease)
		want   bool
	}{
		"a stream that began": {true, func(l *Lease) { l.Answered(start, nil) }, true},
		"at no known time":    {true, func(l *Lease) { l.Answered(time.Time{}, nil) }, true},
		"a stream that broke off": {true, func(l *Lease) { l.Answered(start, nil); l.Release(Result{Err: broke}) },
			true},
		"a stream that failed":            {true, func(l *Lease) { l.Answered(start, broke); l.Release(Result{}) }, false},
		"a stream that was whole at once": {true, func(l *Lease) { l.Release(Result{}) }, true},
		"in flight and not answered":      {true, func(l *Lease) { l.Unbook(); l.Release(Result{}) }, false},
		"the client left":                 {true, func(l *Lease) { l.Release(Result{Err: ErrExcluded}) }, false},
		"a whole answer's beginning":      {false, func(l *Lease) { l.Answered(start, nil); l.Unbook() }, false},
		"a whole answer":                  {false, func(l *Lease) { l.Answered(start, nil); l.Release(Result{}) }, true},
		"a whole answer released at once": {false, func(l *Lease) { l.Release(Result{}) }, true},
		"a whole answer that broke off": {false, func(l *Lease) { l.Answered(start, nil); l.Release(Result{Err: broke}) },
			false},
		"a whole answer that failed": {false, func(l *Lease) { l.Answered(start, broke); l.Release(Result{}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(Member{ID: "a", Weight: 1})
			r := Request{Now: start, Blocks: prompt(1, 100, 30), PromptTokens: 1000, Stream: c.stream}
			l, err := p.Acquire(&r)
			if err != nil {
				t.Fatal(err)
			}
			c.end(&l)
			l.Unbook()
			again, err := p.Acquire(&r)
			if err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int64{true: 1, false: 1000}[c.want]; again.prefill != want {
				t.Errorf("%d tokens were booked, want %d", again.prefill, want)
			}
		})
	}
}

func TestRestartClearsTheModelOfTheCache(t *testing.T) {
	ref, other := new(int), new(int)
	r := Request{Now: start, Blocks: prompt(1, 100, 30), PromptTokens: 1000, Stream: true}
	for name, c := range map[string]struct {
		what func(p *Pool)
		want int64 // booked on a
	}{
		"nothing happened":  {func(*Pool) {}, 1},
		"seen up again":     {func(p *Pool) { p.Observe("a", ref, Status{Up: true, Waiting: 3}) }, 1},
		"down and up":       {func(p *Pool) { p.Observe("a", ref, Status{}); p.Observe("a", ref, Status{Up: true}) }, 1000},
		"the other one was": {func(p *Pool) { p.Observe("b", ref, Status{}); p.Observe("b", ref, Status{Up: true}) }, 1},
		"a reload": {func(p *Pool) {
			p.Configure(last{}, []Member{{ID: "b", Weight: 9, Ref: ref}, {ID: "a", Weight: 1, Ref: ref}})
		}, 1},
		"another engine": {func(p *Pool) { p.Configure(last{}, []Member{{ID: "a", Weight: 1, Ref: other}}) }, 1000},
		"removed and back": {func(p *Pool) {
			p.Configure(last{}, nil)
			p.Configure(last{}, []Member{{ID: "a", Weight: 1, Ref: ref}})
		}, 1000},
		"five minutes have passed": {func(p *Pool) {
			answer(t, p, Request{Now: start.Add(5 * time.Minute), Blocks: prompt(2, 0, 30), Stream: true})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(Member{ID: "b", Weight: 1, Ref: ref}, Member{ID: "a", Weight: 1, Ref: ref})
			p.Configure(last{}, []Member{{ID: "b", Weight: 1, Ref: ref}, {ID: "a", Weight: 1, Ref: ref}})
			if l := answer(t, p, r); l.Worker().ID() != "a" {
				t.Fatal("the prompt is not on a")
			}
			c.what(p)
			for _, w := range p.workers {
				p.Observe(w.id, w.ref, Status{Up: true})
			}
			if l := answer(t, p, r); l.Worker().ID() != "a" || l.prefill != c.want {
				t.Errorf("%d tokens were booked on %s, want %d on a", l.prefill, l.Worker().ID(), c.want)
			}
		})
	}
}

// seen is a policy that picks the first worker and records the overlaps of all.
type seen struct{ overlaps []int64 }

func (*seen) Name() string { return "seen" }
func (s *seen) Pick(_ *Request, ws []View) (int, Reason) {
	s.overlaps = s.overlaps[:0]
	for i := range ws {
		s.overlaps = append(s.overlaps, ws[i].Overlap)
	}
	return 0, "seen"
}

func TestEachWorkerHasItsOwnModel(t *testing.T) {
	const workers = modelWorkers + 2
	var members []Member
	for i := range workers {
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
	}
	p := poolOf(members...)
	s := &seen{}
	p.Configure(s, members)
	full := prompt(1, 100, 16)
	want := make([]int64, workers)
	for i := range workers {
		r := Request{Now: start, Blocks: full[:1+i%16], PromptTokens: 100, Stream: true}
		w := p.workers[i]
		if l, err := p.Acquire(&r, p.workers[:i]...); err != nil || l.Worker() != w {
			t.Fatalf("not on %s: %v", w.ID(), err)
		} else {
			l.Answered(start, nil)
			l.Release(Result{})
		}
		if i < modelWorkers { // those beyond have none
			want[i] = int64(1+i%16) * 100
		}
	}
	l, err := p.Acquire(&Request{Now: start, Blocks: full, PromptTokens: 1600, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.overlaps) != fmt.Sprint(want) {
		t.Errorf("the model has\n%v, not\n%v", s.overlaps, want)
	}
	l.Release(Result{})
}
