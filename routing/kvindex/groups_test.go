package kvindex

import (
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/workers/kvevents"
)

func TestSlidingGroupsNeedTheirLastWindow(t *testing.T) {
	x, w := onlyWorker(t, 1<<20)
	full := kvevents.Event{Kind: kvevents.Stored, BlockSize: size, Group: 3, Hashes: []uint64{1, 2, 3, 4, 5},
		Tokens: []uint32{1, 1, 2, 2, 3, 3, 4, 4, 5, 5}}
	slides := func(hashes ...uint64) kvevents.Event {
		return kvevents.Event{Kind: kvevents.Stored, Attention: kvevents.Attention{Sliding: true, Window: 4}, Group: 0,
			BlockSize: size, Hashes: hashes, Tokens: full.Tokens}
	}
	removed := func(group int, hash uint64) kvevents.Event {
		return kvevents.Event{Kind: kvevents.Removed, Group: group, Hashes: []uint64{hash}}
	}
	for _, step := range []struct {
		name   string
		events []kvevents.Event
		want   int
	}{
		{"the last window of the prompt", []kvevents.Event{slides(4, 5), full}, 5},
		{"its last block is gone", []kvevents.Event{removed(0, 5)}, 0},
		{"a window in the middle", []kvevents.Event{slides(3)}, 4},
		{"the whole beginning", []kvevents.Event{removed(0, 4), removed(0, 3), slides(1, 2)}, 2},
		{"the full group lacks a block", []kvevents.Event{removed(3, 2)}, 1},
	} {
		w.Apply(&kvevents.Batch{Events: step.events})
		if got := overlap(x, w, Root("", size), full.Tokens, nil); got != step.want {
			t.Errorf("%s: %d blocks instead of %d", step.name, got, step.want)
		}
	}
}

// TestRemovalsOfUnusableGroupsTakeNoCopy: all groups of an engine have the same hashes, and a removal
// does not state the kind of its group.
func TestRemovalsOfUnusableGroupsTakeNoCopy(t *testing.T) {
	prompt := []uint32{1, 1, 2, 2}
	stored := func(group int, a kvevents.Attention) kvevents.Event {
		return kvevents.Event{Kind: kvevents.Stored, Attention: a, Group: group, BlockSize: size, Hashes: []uint64{1, 2},
			Tokens: prompt}
	}
	removed := func(group int) *kvevents.Batch {
		return &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Removed, Group: group, Hashes: []uint64{1, 2}}}}
	}
	x, w := onlyWorker(t, 1<<20)
	events := []kvevents.Event{stored(0, kvevents.Attention{}), stored(1, kvevents.Attention{Other: true})}
	for g := range maxSliding + 1 {
		events = append(events, stored(2+g, kvevents.Attention{Sliding: true, Window: 2 * size}))
	}
	w.Apply(&kvevents.Batch{Events: events})
	for _, group := range []int{1, 2 + maxSliding} {
		w.Apply(removed(group))
		if n := overlap(x, w, Root("", size), prompt, nil); n != 2 {
			t.Errorf("after a removal in group %d: %d of 2 blocks", group, n)
		}
	}
	w.Apply(removed(2))
	if n := overlap(x, w, Root("", size), prompt, nil); n != 0 {
		t.Errorf("%d blocks without a sliding-window group", n)
	}
	w.Reset()
	w.Apply(&kvevents.Batch{Events: []kvevents.Event{stored(1, kvevents.Attention{})}})
	if n := overlap(x, w, Root("", size), prompt, nil); n != 2 {
		t.Errorf("%d blocks of another engine at the address", n)
	}
	if w.Apply(removed(1)); w.Len() != 0 {
		t.Errorf("%d blocks are left", w.Len())
	}
}

// TestOnePassFindsTheLongestPrefixWithItsWindows compares Overlap with the definition, for several
// workers with several groups each.
func TestOnePassFindsTheLongestPrefixWithItsWindows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const blocks = 10
		x, prompt, hashes := New(1<<20), []uint32{}, []uint64{}
		for i := range blocks {
			prompt, hashes = append(prompt, uint32(i), uint32(i)), append(hashes, uint64(i))
		}
		keys := AppendKeys(nil, Root("", size), size, prompt, nil, 0)
		for n := range rapid.IntRange(1, 3).Draw(rt, "workers") {
			w, err := x.Add("")
			if err != nil {
				rt.Fatal(err)
			}
			media := rapid.SliceOfN(rapid.IntRange(0, 2), blocks, blocks).Draw(rt, "media")
			w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, BlockSize: size, Medium: kvevents.Disk,
				Hashes: hashes, Tokens: prompt}}})
			for i, m := range media {
				w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Medium: kvevents.Medium(m),
					Hashes: hashes[i : i+1]}}})
			}
			windows := rapid.SliceOfN(rapid.IntRange(0, 8), 0, 3).Draw(rt, "windows")
			has := make([]map[int]bool, len(windows))
			for g, window := range windows {
				has[g] = map[int]bool{}
				for _, i := range rapid.SliceOfN(rapid.IntRange(0, blocks-1), 1, 12).Draw(rt, "sliding blocks") {
					has[g][i] = true
					w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Group: 1 + g,
						Attention: kvevents.Attention{Sliding: true, Window: window}, Hashes: hashes[i : i+1]}}})
				}
			}
			var want Match
			for length := 1; length <= blocks; length++ {
				fits := true
				for g, window := range windows {
					for i := length - 1; i >= 0 && (length-i-1)*size < window-1; i-- {
						fits = fits && has[g][i]
					}
				}
				if fits {
					want = Match{Blocks: length}
					for _, m := range media[:length] {
						want.ByMedium[m]++
					}
				}
			}
			var got [MaxWorkers]Match
			if x.Overlap(keys, &got); got[n] != want {
				rt.Fatalf("windows %v, blocks %v: %+v, not %+v", windows, has, got[n], want)
			}
		}
	})
}
