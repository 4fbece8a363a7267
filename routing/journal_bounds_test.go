package routing

import (
	"testing"
	"time"
)

// TestPromptsAreRepeatedAfterADroppedEntry: the next turn of its chat is written from the first missing block on,
// although the first event came after the drop. Other chats are not repeated.
func TestPromptsAreRepeatedAfterADroppedEntry(t *testing.T) {
	g := newGatewayPools(t, 2, 1, Config{Name: "least_load"})
	p, now := g.pools[0], start
	g.serve(t, 0, chatRequest(now, 1, 20))
	p.TakeJournal(nil)
	p.journal.text = make([]byte, maxJournal)
	g.serve(t, 0, chatRequest(now, 2, 20))
	if p.journal.text = nil; p.JournalDropped() == 0 {
		t.Fatal("nothing was dropped")
	}
	length := func(seed int) int {
		now = now.Add(time.Minute)
		g.serve(t, 0, chatRequest(now, seed, 21))
		return len(p.TakeJournal(nil))
	}
	if whole, next := length(2), length(1); whole < 20*9 || next > 200 {
		t.Errorf("after a drop the chat takes %d bytes and another one %d", whole, next)
	}
}

// TestPromptInFlightIsRepeatedAfterAJoin: it was written before the gateway joined, and answered afterwards.
func TestPromptInFlightIsRepeatedAfterAJoin(t *testing.T) {
	g := newGatewayPools(t, 2, 1, Config{Name: "least_load"})
	p := g.pools[0]
	r := chatRequest(start, 1, 20)
	l, err := p.Acquire(&r)
	if err != nil {
		t.Fatal(err)
	}
	p.TakeJournal(nil)
	p.RepeatJournal(start)
	l.Answered(start.Add(time.Second), nil)
	l.Release(Result{At: start.Add(2 * time.Second), PromptTokens: r.PromptTokens, OutputTokens: 30})
	p.TakeJournal(nil)
	now := start.Add(time.Minute)
	g.serve(t, 0, chatRequest(now, 1, 21))
	if err := g.pools[1].ApplyJournal(now, p.TakeJournal(nil)); err != nil {
		t.Fatal(err)
	}
	if got := overlaps(t, g.pools[1], chatRequest(now, 1, 21)); got[0] != 21*500 {
		t.Errorf("the gateway that joined predicts %v of %d tokens", got, 21*500)
	}
}

// TestJournalReturnsToNewBlocksAfterABurst: chats that did not fit are written once, and then only their new blocks.
func TestJournalReturnsToNewBlocksAfterABurst(t *testing.T) {
	g := newGatewayPools(t, 1, 1, Config{Name: "least_load"})
	p, now := g.pools[0], start
	p.Observe("w0", nil, Status{Up: true, CacheTokens: 1 << 30}) // of all chats
	round := func(turns int) (bytes int) {
		for seed := range 400 { // 100 whole chats take more than one journal holds
			now = now.Add(time.Millisecond)
			g.serve(t, 0, chatRequest(now, seed, turns))
			if seed%100 == 99 {
				bytes += len(p.TakeJournal(nil))
			}
		}
		return bytes
	}
	p.RepeatJournal(now)
	whole := round(20)
	for turns := 21; turns <= 24; turns++ {
		round(turns)
	}
	dropped := p.JournalDropped()
	if after := round(25); dropped == 0 || p.JournalDropped() != dropped || after > whole/4 {
		t.Errorf("%d entries were dropped, later %d; a round takes %d bytes, the first one took %d", dropped,
			p.JournalDropped(), after, whole)
	}
}

// TestTheLargestLoadIsReadByOtherGateways: two requests of the most tokens that can be booked exceed the bound of one
// number in a message.
func TestTheLargestLoadIsReadByOtherGateways(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	members := []Member{{ID: "a", Weight: 1}}
	own, other := NewPool(leastLoad{}, members), NewPool(leastLoad{}, members)
	for _, p := range []*Pool{own, other} {
		p.Observe("a", nil, Status{Up: true})
	}
	for range 2 {
		r := Request{Now: now, PromptTokens: 1 << 50, OutputTokens: 1 << 50, Stream: true}
		if _, err := other.Acquire(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := own.SetOtherGateways(now, 1, other.AppendLoad(nil, now)); err != nil {
		t.Error(err)
	}
	if v := own.Snapshot(now)[0]; v.OthersInflight != 2 {
		t.Errorf("%d requests in flight on the other gateway, want 2", v.OthersInflight)
	}
}
