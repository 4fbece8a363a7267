package kvindex

import (
	"testing"

	"pgregory.net/rapid"

	"tierway/workers/kvevents"
)

// checkTree compares the links of a tree with each other.
func checkTree(t *rapid.T, tr *tree) {
	children, leaves, blocks := map[uint32]uint32{}, map[uint32]bool{}, 0
	for place := uint32(1); place < tr.used; place++ {
		if b := tr.at(place); b.parent != place {
			blocks++
			children[b.parent]++
			leaves[place] = b.children == 0
			if b.children == 0 && b.empty() {
				t.Fatalf("the leaf %d has no copies", place)
			}
		}
	}
	for place := range leaves {
		if got := tr.at(place).children; got != children[place] {
			t.Fatalf("block %d counts %d children, and has %d", place, got, children[place])
		}
		if !leaves[place] {
			delete(leaves, place)
		}
	}
	for place := tr.oldest(); place != root; place = tr.at(place).newer {
		if !leaves[place] || tr.at(tr.at(place).newer).older != place {
			t.Fatalf("%d is in the order, and no leaf", place)
		}
		delete(leaves, place)
	}
	if len(leaves) > 0 || blocks != tr.count {
		t.Fatalf("%d leaves are not in the order; %d blocks, and %d are counted", len(leaves), blocks, tr.count)
	}
	for hash, place := range tr.byHash {
		if b := tr.at(place); b.hash != hash || b.parent == place {
			t.Fatalf("the hash %d has no block", hash)
		}
	}
}

// TestAnyEventsKeepTheIndexConsistent: engines that contradict themselves get wrong matches only.
func TestAnyEventsKeepTheIndexConsistent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := New(rapid.IntRange(1, 20).Draw(rt, "blocks") * BlockBytes)
		w, err := x.Add("")
		if err != nil {
			rt.Fatal(err)
		}
		hash := rapid.Uint64Range(0, 6)
		for range rapid.IntRange(1, 40).Draw(rt, "events") {
			e := kvevents.Event{Kind: kvevents.Removed, Hashes: rapid.SliceOfN(hash, 1, 5).Draw(rt, "hashes"), BlockSize: 1,
				Medium: kvevents.Medium(rapid.IntRange(0, 2).Draw(rt, "medium")), Group: rapid.IntRange(0, 2).Draw(rt, "group")}
			switch rapid.IntRange(0, 9).Draw(rt, "kind") {
			case 0, 1, 2, 3, 4:
				e.Kind, e.HasParent, e.Parent = kvevents.Stored, rapid.Bool().Draw(rt, "behind"), hash.Draw(rt, "parent")
				e.Tokens = rapid.SliceOfN(rapid.Uint32Range(0, 2), len(e.Hashes), len(e.Hashes)).Draw(rt, "tokens")
				e.Sliding = e.Group == 1
				e.Other = e.Group == 2
			case 5:
				e.Kind = kvevents.Stored
			case 6:
				x.SetBudget(rapid.IntRange(1, 20).Draw(rt, "blocks") * BlockBytes)
			}
			w.Apply(&kvevents.Batch{Events: []kvevents.Event{e}})
			checkTree(rt, &w.tree)
			onGPU := 0
			for place := uint32(1); place < w.tree.used; place++ {
				if b := w.tree.at(place); b.parent != place && b.full[kvevents.GPU] > 0 {
					onGPU++
				}
			}
			if onGPU != w.OnGPU() {
				rt.Fatalf("%d blocks on the GPU, and %d are counted", onGPU, w.OnGPU())
			}
			compacted := w.tree.compacted()
			if checkTree(rt, &compacted); int(compacted.used) != w.tree.count+1 || compacted.count != w.tree.count {
				rt.Fatalf("%d places for %d blocks", compacted.used, w.tree.count)
			}
		}
		w.Reset()
		if blocks, keys := sizeOf(x); blocks+keys+w.OnGPU() != 0 {
			rt.Fatalf("%d blocks and %d keys are left", blocks, keys)
		}
	})
}

// TestEvictionKeepsTheBeginningsOfPrompts: a system prompt is stored first, and each chat behind it
// needs it.
func TestEvictionKeepsTheBeginningsOfPrompts(t *testing.T) {
	const budget, chats = 100, 200
	x, w := onlyWorker(t, budget*BlockBytes)
	store := func(parent, hash uint64, token uint32) {
		w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, HasParent: parent > 0, Parent: parent,
			BlockSize: size, Hashes: []uint64{hash}, Tokens: []uint32{token, token}}}})
	}
	store(0, 1000, 9)
	for i := range uint32(chats) {
		store(1000, uint64(i)+1, i)
		store(1000, 1, 0) // the first chat goes on
	}
	known := 0
	for i := range uint32(chats) {
		if overlap(x, w, Root("", size), []uint32{9, 9, i, i}, nil) == 2 {
			known++
			if i > 0 && i < chats-(budget-2) {
				t.Errorf("chat %d is known, and later ones are not", i)
			}
		}
	}
	if known != budget-1 {
		t.Errorf("%d chats are known", known)
	}
	if c := w.Counts(); c.Unknown > 0 || c.Evicted == 0 {
		t.Errorf("%+v", c)
	}
}

func TestPromptBeyondTheBudgetKeepsItsBeginning(t *testing.T) {
	x, w := onlyWorker(t, 3*BlockBytes)
	w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, BlockSize: 1, Hashes: []uint64{1, 2, 3, 4, 5},
		Tokens: []uint32{1, 2, 3, 4, 5}}}})
	var m [MaxWorkers]Match
	x.Overlap(AppendKeys(nil, Root("", 1), 1, []uint32{1, 2, 3, 4, 5}, nil, 0), &m)
	if c := w.Counts(); m[w.ID()].Blocks != 3 || c.Evicted != 2 || c.Unknown > 0 {
		t.Errorf("%d blocks, %+v", m[w.ID()].Blocks, c)
	}
}
