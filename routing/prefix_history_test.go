package routing

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHistoryIsExactWhileItHasRoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type key struct {
			hash   uint64
			column int
		}
		var c prefixHistory
		marked := map[key]int64{} // the latest period
		now := start
		drawKey := func(rt *rapid.T) key {
			return key{rapid.Uint64Range(0, 6).Draw(rt, "hash"), rapid.SampledFrom([]int{0, 1, 63}).Draw(rt, "column")}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"time": func(rt *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(rt, "s")) * time.Second) },
			"mark": func(rt *rapid.T) {
				k, at := drawKey(rt), now.Add(-time.Duration(rapid.IntRange(0, 500).Draw(rt, "ago"))*time.Second)
				c.record([]uint64{k.hash}, k.column, at)
				marked[k] = max(marked[k], at.Unix()/historyPeriod)
			},
			"forget": func(rt *rapid.T) {
				column := drawKey(rt).column
				c.forgetWorker(column)
				for k := range marked {
					if k.column == column {
						delete(marked, k)
					}
				}
			},
			"": func(rt *rapid.T) {
				if c.sets == nil {
					return
				}
				for hash := range uint64(7) {
					want := uint64(0)
					for k, p := range marked {
						if k.hash == hash && now.Unix()/historyPeriod-p <= 1 {
							want |= 1 << k.column
						}
					}
					if got := c.workersWith(hash, now.Unix()); got != want {
						rt.Fatalf("%b have block %d, want %b", got, hash, want)
					}
				}
			},
		})
	})
}

func TestHistoryLastsTwoAndAHalfToFiveMinutes(t *testing.T) {
	for from := range time.Duration(historyPeriod) {
		var c prefixHistory
		at := start.Add(from * time.Second)
		c.record([]uint64{7}, 5, at)
		if got := c.workersWith(7, at.Add(historyPeriod*time.Second).Unix()); got != 1<<5 {
			t.Errorf("marked at %d s it is gone after %d", from, historyPeriod)
		}
		if got := c.workersWith(7, at.Add(2*historyPeriod*time.Second).Unix()); got != 0 {
			t.Errorf("marked at %d s it is still there after %d", from, 2*historyPeriod)
		}
	}
}

func TestHistoryIsBoundedAndForgetsTheOldest(t *testing.T) {
	var c prefixHistory
	hashes := make([]uint64, 1000)
	for i := range 400 { // six times what it holds
		for k := range hashes {
			hashes[k] = Mix(uint64(i*len(hashes) + k))
		}
		c.record(hashes, i%historyWorkers, start.Add(time.Duration(i)*time.Second/8))
	}
	if len(c.sets) != historySets {
		t.Errorf("the memory has %d sets", len(c.sets))
	}
	kept := func(batch int) (n int) {
		for k := range hashes {
			if c.workersWith(Mix(uint64(batch*len(hashes)+k)), start.Add(time.Minute).Unix()) != 0 {
				n++
			}
		}
		return n
	}
	if newest, old := kept(390), kept(200); newest < 990 || old > 10 {
		t.Errorf("of a thousand new blocks it has %d, of a thousand old ones %d", newest, old)
	}
}

func TestRememberedLandmarksMissLessThanANinth(t *testing.T) {
	for d := 0; d < 4096; d = nextLandmark(d, 1<<20, historyLandmarkLog) {
		if next := nextLandmark(d, 1<<20, historyLandmarkLog); next <= d || float64(next-1-d) >= float64(next)/9 {
			t.Errorf("after landmark %d comes %d", d, next)
		}
	}
	if n := len(AppendChain(nil, make([]Block, 4096))); n != historyLandmarks {
		t.Errorf("of 4,096 blocks %d are remembered, want %d", n, historyLandmarks)
	}
	if n := len(AppendChain(nil, make([]Block, 1))); n != 1 {
		t.Errorf("of one block %d are remembered", n)
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
		if worst < 11.0/12 || characters < 30000 && worst < 0.999 {
			t.Errorf("with %d characters a turn %.3f of an earlier prompt is found", characters, worst)
		}
		noChains(t, p)
	}
}

func TestWhenAPromptEntersTheHistory(t *testing.T) {
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

func TestRestartClearsTheHistory(t *testing.T) {
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
			answer(t, p, Request{Now: start.Add(2 * historyPeriod * time.Second), Blocks: prompt(2, 0, 30), Stream: true})
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

func TestEachWorkerHasItsOwnHistory(t *testing.T) {
	const workers = historyWorkers + 2
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
		if i < historyWorkers { // those beyond have none
			want[i] = int64(1+i%16) * 100
		}
	}
	l, err := p.Acquire(&Request{Now: start, Blocks: full, PromptTokens: 1600, Stream: true})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(s.overlaps) != fmt.Sprint(want) {
		t.Errorf("the history has\n%v, not\n%v", s.overlaps, want)
	}
	l.Release(Result{})
}

func TestGapsInTheHistoryHideNothing(t *testing.T) {
	for lost := range historyMisses + 1 {
		p := poolOf(Member{ID: "a", Weight: 1})
		r := Request{Now: start, Blocks: prompt(1, 100, 30), PromptTokens: 1000, Stream: true}
		answer(t, p, r)
		for _, b := range r.Blocks[:lost] {
			clear(p.history.set(b.Hash)[:])
		}
		want := int64(1)
		if lost == historyMisses { // then most of it is lost
			want = 1000
		}
		if l := answer(t, p, r); l.prefill != want {
			t.Errorf("with %d blocks lost %d tokens were booked, want %d", lost, l.prefill, want)
		}
	}
}
