package routing

import (
	"testing"
	"time"
)

// TestPromptsAreRepeatedAfterADroppedEntry: other gateways do not know the blocks of the dropped entry, although they
// were used at the time of the drop.
func TestPromptsAreRepeatedAfterADroppedEntry(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	w, prompt := &Worker{idHash: 1}, []promptBlock{{2, 64}, {3, 64}}
	j := journal{on: true, text: make([]byte, maxJournal)}
	j.addPrompt(w, prompt[:1], 0, 0, now)
	if j.text = nil; j.dropped != 1 {
		t.Fatalf("%d entries were dropped", j.dropped)
	}
	j.addPrompt(w, prompt, 1, now.UnixMilli(), now.Add(time.Second))
	r := messageReader{text: j.text}
	if kind, worker, before, blocks := r.byte(), r.uint64(), r.uint64(), r.count(2); kind != entryPrompt || worker != 1 ||
		before != 0 || blocks != 2 {
		t.Errorf("the next entry has kind %d, worker %d, %d blocks after %d", kind, worker, blocks, before)
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
	if err := own.SetPeers(now, 1, other.AppendLoad(nil, now)); err != nil {
		t.Error(err)
	}
	if v := own.Snapshot(now)[0]; v.PeerInflight != 2 {
		t.Errorf("%d requests in flight on the other gateway, want 2", v.PeerInflight)
	}
}
