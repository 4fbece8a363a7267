package routing

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// prompt returns a chain of n blocks of 64 characters. Chains of one seed are equal up to the branch.
func prompt(seed, branch, n int) []Block {
	blocks, hash := make([]Block, n), uint64(seed+1)
	for i := range blocks {
		if i == branch {
			hash += 1 << 40
		}
		hash = (hash ^ uint64(i)<<8) * 0x9E3779B97F4A7C15
		blocks[i] = Block{Hash: hash, End: int64(i+1) * 64}
	}
	return blocks
}

// noChains fails unless no chain is in flight in the pool.
func noChains(t *testing.T, p *Pool) {
	t.Helper()
	c := &p.inflightPrefixes
	if len(c.rowsByHash) != 0 || len(c.unused) != len(c.rows) {
		t.Errorf("%d landmarks are in flight, %d of %d rows are unused", len(c.rowsByHash), len(c.unused), len(c.rows))
	}
	for i, n := range c.counts {
		if n != 0 {
			t.Errorf("count %d of the chains is %d", i, n)
		}
	}
}

func TestSamePromptIsPrefilledOnce(t *testing.T) {
	for _, c := range []struct {
		policy Config
		most   int // workers that prefill the prompt
	}{{Config{Name: "chwbl"}, 2}, {Config{Name: "chwbl", Depth: "fixed"}, 2}, {Config{Name: "least_load"}, 4},
		{Config{Name: "kv_aware"}, 1}} {
		var members []Member
		for i := range 4 {
			members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
		}
		p := poolOf(members...)
		policy, err := New(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		p.Configure(policy, members)
		var leases []*Lease
		blocks := prompt(1, 0, 500)
		for i := range 16 {
			l, err := p.Acquire(&Request{
				Now: start.Add(time.Duration(i) * time.Millisecond / 16), Rand: uint64(i) * 0x9E3779B97F4A7C15,
				Prefix: blocks[0].Hash, Blocks: blocks, PromptTokens: 8000, OutputTokens: 256, Stream: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, &l)
		}
		prefilling, booked := 0, int64(0)
		for _, v := range p.Snapshot(start) {
			if v.PendingTokens > 0 {
				prefilling++
				booked += v.PendingTokens
			}
		}
		// Each worker has it once, and one token for each of the others.
		if want := int64(prefilling*8000 + 16 - prefilling); prefilling > c.most || booked != want {
			t.Errorf("%s: %d workers prefill, with %d tokens booked; want at most %d, with %d", c.policy.Name, prefilling,
				booked, c.most, want)
		}
		for i, l := range leases {
			if i%2 == 0 {
				l.Unbook()
			}
			l.Release(Result{})
		}
		noChains(t, p)
	}
}

func TestOverlapIsTheSharedPrefix(t *testing.T) {
	for name, c := range map[string]struct {
		flying, asking []Block
		want           int64 // of 1,000 tokens
	}{
		"nothing in common":           {prompt(1, 0, 20), prompt(2, 0, 20), 0},
		"no chain in flight":          {nil, prompt(1, 0, 20), 0},
		"no chain of its own":         {prompt(1, 0, 20), nil, 0},
		"the same":                    {prompt(1, 0, 20), prompt(1, 0, 20), 1000},
		"the same, no landmark":       {prompt(1, 0, 38), prompt(1, 0, 38), 1000},
		"the chat has grown":          {prompt(1, 100, 5), prompt(1, 100, 20), 250},
		"the longer one is in flight": {prompt(1, 100, 30), prompt(1, 100, 20), 850}, // up to block 17 of 20
		"a branch":                    {prompt(1, 4, 20), prompt(1, 100, 20), 200},
		"a branch between landmarks":  {prompt(1, 12, 20), prompt(1, 100, 20), 550},
		"one block":                   {prompt(1, 100, 1), prompt(1, 100, 1), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(Member{ID: "a", Weight: 1})
			first, err := p.Acquire(&Request{Now: start, Blocks: c.flying, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			second, err := p.Acquire(&Request{Now: start, Blocks: c.asking, PromptTokens: 1000, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			if want := max(1, 1000-c.want); second.prefill != want {
				t.Errorf("booked %d tokens, want %d", second.prefill, want)
			}
			first.Release(Result{})
			second.Release(Result{})
			noChains(t, p)
		})
	}
}

func TestLandmarksMissLessThanAFifth(t *testing.T) {
	count := 0
	for d := 0; d < 4096; d = nextLandmark(d, 1<<20, inflightLandmarkLog) {
		count++
		if next := nextLandmark(d, 1<<20, inflightLandmarkLog); next <= d || float64(next-1-d) >= 0.2*float64(next) {
			t.Errorf("after landmark %d comes %d", d, next)
		}
	}
	if count > 45 {
		t.Errorf("%d landmarks in 4,096 blocks", count)
	}
}

// Chains that repeat a hash or end before they begin are invalid, and the books must survive them.
func TestInvalidChainsLeaveNoBookings(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := poolOf(Member{ID: "a", Weight: 1}, Member{ID: "b", Weight: 1})
		var leases []*Lease
		for range rapid.IntRange(1, 20).Draw(rt, "requests") {
			var blocks []Block
			for range rapid.IntRange(0, 12).Draw(rt, "blocks") {
				blocks = append(blocks, Block{Hash: rapid.Uint64Range(0, 3).Draw(rt, "hash"), End: rapid.Int64().Draw(rt, "end")})
			}
			prompt := rapid.Int64().Draw(rt, "prompt")
			l, err := p.Acquire(&Request{Now: start, Blocks: blocks, PromptTokens: prompt, Stream: true})
			if err != nil {
				rt.Fatal(err)
			}
			if l.prefill < 0 || l.prefill > booked(prompt) {
				rt.Fatalf("of %d tokens %d were booked", prompt, l.prefill)
			}
			if leases = append(leases, &l); rapid.Bool().Draw(rt, "release") {
				leases[0].Release(Result{})
				leases = leases[1:]
			}
		}
		for _, l := range leases {
			l.Release(Result{})
		}
		noChains(t, p)
		wantBooks(t, p, "a 0 0 0, b 0 0 0")
	})
}

func TestReloadsKeepAndGiveBackChains(t *testing.T) {
	blocks := prompt(1, 100, 30)
	p := poolOf(Member{ID: "old", Weight: 1})
	ask := func() *Lease {
		l, err := p.Acquire(&Request{Now: start, Blocks: blocks, PromptTokens: 1000, Stream: true})
		if err != nil {
			t.Fatal(err)
		}
		return &l
	}
	first := ask()
	var members []Member
	for i := range 40 { // far more columns than there were
		members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
	}
	p.Configure(leastLoad{}, append(members, Member{ID: "old", Weight: 1}))
	if again := ask(); again.Worker() != first.Worker() || again.prefill != 1 {
		t.Errorf("after a reload %d tokens were booked on %s", again.prefill, again.Worker().ID())
	} else {
		again.Release(Result{})
	}
	for round := range 100 {
		id := fmt.Sprint("next", round)
		p.Configure(leastLoad{}, []Member{{ID: id, Weight: 1}})
		p.Observe(id, nil, Status{Up: true})
		next := ask()
		if next.prefill != 1000 {
			t.Fatalf("a new worker is taken to have %d tokens of a prompt that it never saw", 1000-next.prefill)
		}
		defer next.Release(Result{})
		if round%2 == 0 {
			next.Release(Result{})
		}
	}
	first.Release(Result{})
	p.Configure(leastLoad{}, nil)
	t.Cleanup(func() {
		noChains(t, p)
		if taken := len(p.inflightPrefixes.columns); taken > 52+41 {
			t.Errorf("%d columns for at most 51 workers at once after 41", taken)
		}
		for column, taken := range p.inflightPrefixes.columns {
			if taken {
				t.Errorf("column %d is taken by no worker", column)
			}
		}
	})
}

func TestPrefillOfUnstreamedAnswersEndsOnTime(t *testing.T) {
	p := poolOf(Member{ID: "a", Weight: 1})
	ask := func(at time.Duration, tokens int64, stream bool) *Lease {
		l, err := p.Acquire(&Request{Now: start.Add(at), PromptTokens: tokens, Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		return &l
	}
	pending := func(at time.Duration, want int64) {
		t.Helper()
		if got := p.Snapshot(start.Add(at))[0].PendingTokens; got != want {
			t.Errorf("at %s %d tokens are pending, want %d", at, got, want)
		}
	}
	first := ask(0, 8000, false)            // due at 1 s
	second := ask(0, 16000, false)          // after it, at 3 s
	stream := ask(0, 500, true)             // until it is answered
	third := ask(2*time.Second, 100, false) // behind all that is left
	pending(2*time.Second, 16600)
	pending(3*time.Second-1, 16600)
	first.Release(Result{})
	second.Answered(start, nil)
	pending(2*time.Second, 600)
	pending(time.Minute, 500)
	stream.Answered(start, nil)
	for _, l := range []*Lease{first, second, stream, third} {
		l.Release(Result{})
	}
	wantBooks(t, p, "a 0 0 0")
	if w := p.workers[0]; len(w.prefillEnds) > 0 {
		t.Error("the worker still waits for a prefill")
	}
}
