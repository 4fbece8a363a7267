package routing

import (
	"fmt"
	"testing"
	"time"
)

// chatSim is a pool in virtual time: each worker prefills one prompt after the other, and answers end
// at their predicted time.
type chatSim struct {
	t      *testing.T
	pool   *Pool
	now    time.Time
	rand   uint64
	busy   map[*Worker]time.Time // until when it prefills
	flying []chatSimRequest
}

type chatSimRequest struct {
	lease       *Lease
	first, last time.Time
	chat        *simulatedChat
}

// simulatedChat is a chat that grows by one turn after each answer.
type simulatedChat struct {
	seed, turns  int
	next         time.Time
	home         *Worker
	stayed, went int
	booked, new  int64 // of the turns that stayed
}

const (
	townRate = 8000
	turnText = 8000 // characters, so 2,000 tokens a turn
)

func (w *chatSim) ask(blocks []Block, tokens int64, c *simulatedChat) *Lease {
	w.rand = w.rand*6364136223846793005 + 1442695040888963407
	l, err := w.pool.Acquire(&Request{
		Now: w.now, Rand: Mix(w.rand), Prefix: blocks[0].Hash, Blocks: blocks, Model: 1,
		PromptTokens: tokens, OutputTokens: w.pool.Learned().OutputTokens(0), Stream: true,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	first := w.now
	if busy := w.busy[l.worker]; busy.After(first) {
		first = busy
	}
	first = first.Add(firstStep + seconds(float64(l.prefill)/townRate))
	w.busy[l.worker] = first
	w.flying = append(w.flying, chatSimRequest{&l, first, first.Add(4 * time.Second), c})
	return &l
}

// pass advances the time to now and handles the events that are due.
func (w *chatSim) pass(now time.Time) {
	w.now = now
	rest := w.flying[:0]
	for _, f := range w.flying {
		if !now.Before(f.first) {
			f.lease.Answered(f.first, nil)
		}
		if now.Before(f.last) {
			rest = append(rest, f)
			continue
		}
		f.lease.Release(Result{At: f.last, OutputTokens: 160})
		if f.chat != nil {
			f.chat.next = f.last.Add(10 * time.Second)
		}
	}
	w.flying = rest
}

// turn sends the chat's next turn.
func (w *chatSim) turn(c *simulatedChat) {
	c.turns++
	blocks := chat(c.seed, c.turns, turnText)
	tokens := int64(2000 * c.turns)
	l := w.ask(blocks, tokens, c)
	if c.home == l.worker {
		c.stayed++
		c.booked += l.prefill
		c.new += 2000 - 160 // the answer is cached too
	} else if c.home != nil {
		c.went++
	}
	c.home, c.next = l.worker, w.now.Add(time.Hour)
}

// A chat of twenty turns costs its home two thousand tokens per turn, not forty thousand. It stays
// there under a load that keeps all workers busy, with the default bounds on requests and tokens.
func TestGrowingChatStaysWithItsCache(t *testing.T) {
	const workers, chats = 8, 40
	for _, depth := range []string{"adaptive", depthFixed} {
		t.Run(depth, func(t *testing.T) {
			var members []Member
			for i := range workers {
				members = append(members, Member{ID: fmt.Sprint("w", i), Weight: 1})
			}
			policy, err := New(Config{Name: "chwbl", Depth: depth})
			if err != nil {
				t.Fatal(err)
			}
			w := &chatSim{t: t, pool: poolOf(members...), rand: 1, busy: map[*Worker]time.Time{}}
			w.pool.Configure(policy, members)
			var all []*simulatedChat
			for i := range chats {
				all = append(all, &simulatedChat{seed: i + 1, next: start.Add(time.Minute + time.Duration(i)*500*time.Millisecond)})
			}
			for i := range 400 * 10 { // ten prompts of others a second, for 400 seconds
				w.pass(start.Add(time.Duration(i) * 100 * time.Millisecond))
				w.ask(prompt(1_000_000+i, 0, 16), 2000, nil)
				for _, c := range all {
					if c.turns < 20 && !w.now.Before(c.next) {
						w.turn(c)
					}
				}
			}
			stayed, went, booked, grown := 0, 0, int64(0), int64(0)
			for _, c := range all {
				if c.turns != 20 {
					t.Fatalf("a chat had %d turns", c.turns)
				}
				stayed, went, booked, grown = stayed+c.stayed, went+c.went, booked+c.booked, grown+c.new
			}
			if float64(stayed) < 0.95*float64(stayed+went) {
				t.Errorf("%d of %d turns stayed with their chat's cache", stayed, stayed+went)
			}
			if ratio := float64(booked) / float64(grown); ratio > 1.1 || ratio < 0.95 {
				t.Errorf("those that stayed booked %d tokens and brought %d", booked, grown)
			}
			w.pass(w.now.Add(time.Hour))
			noChains(t, w.pool)
		})
	}
}
