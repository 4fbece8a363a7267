package kvindex

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"tierway/workers/kvevents"
)

// engine is a model of an engine's cache: each block has a hash of the engine's own, the tokens
// of the prompt up to its end, and copies by medium.
type engine struct {
	worker *Worker
	seed   uint64
	blocks map[uint64]*modelBlock
}

type modelBlock struct {
	prefix []uint32
	copies [3]int
}

const size = 2 // tokens of a block in these tests

// hashOf is the engine's hash of a prefix; engines of different seeds have different hashes.
func (e *engine) hashOf(prefix []uint32) uint64 {
	h := e.seed
	for _, t := range prefix {
		h = mix(h, uint64(t))
	}
	return h
}

// store makes the events of a prompt as an engine does: of the blocks that it does not have.
func (e *engine) store(prompt []uint32) []kvevents.Event {
	done := 0
	for ; done+size <= len(prompt); done += size {
		if b := e.blocks[e.hashOf(prompt[:done+size])]; b == nil || b.copies[kvevents.GPU] == 0 {
			break
		}
	}
	event := kvevents.Event{Kind: kvevents.Stored, BlockSize: size}
	if done > 0 {
		event.Parent, event.HasParent = e.hashOf(prompt[:done]), true
	}
	for at := done; at+size <= len(prompt); at += size {
		hash := e.hashOf(prompt[:at+size])
		event.Hashes, event.Tokens = append(event.Hashes, hash), append(event.Tokens, prompt[at:at+size]...)
		if e.blocks[hash] == nil {
			e.blocks[hash] = &modelBlock{prefix: slices.Clone(prompt[:at+size])}
		}
		e.blocks[hash].copies[kvevents.GPU]++
	}
	if len(event.Hashes) == 0 {
		return nil
	}
	return []kvevents.Event{event}
}

// again makes the event of a block that the engine computes once more behind cached ones, such as the
// last one of a prompt that fills its blocks exactly.
func (e *engine) again(hash uint64) []kvevents.Event {
	b := e.blocks[hash]
	event := kvevents.Event{Kind: kvevents.Stored, BlockSize: size, Hashes: []uint64{hash},
		Tokens: b.prefix[len(b.prefix)-size:]}
	if rest := b.prefix[:len(b.prefix)-size]; len(rest) > 0 {
		event.Parent, event.HasParent = e.hashOf(rest), true
	}
	b.copies[kvevents.GPU]++
	return []kvevents.Event{event}
}

// offload makes the event of a copy in another medium.
func (e *engine) offload(hash uint64, m kvevents.Medium) []kvevents.Event {
	e.blocks[hash].copies[m]++
	return []kvevents.Event{{Kind: kvevents.Stored, Hashes: []uint64{hash}, Medium: m}}
}

func (e *engine) remove(hash uint64, m kvevents.Medium) []kvevents.Event {
	b := e.blocks[hash]
	if b.copies[m] == 0 {
		return nil
	}
	b.copies[m]--
	if b.copies == [3]int{} {
		delete(e.blocks, hash)
	}
	return []kvevents.Event{{Kind: kvevents.Removed, Hashes: []uint64{hash}, Medium: m}}
}

// cached is the prefix of a prompt that the engine has.
func (e *engine) cached(prompt []uint32) (m Match) {
	for at := size; at <= len(prompt); at += size {
		b := e.blocks[e.hashOf(prompt[:at])]
		if b == nil {
			break
		}
		m.Blocks++
		for medium, n := range b.copies {
			if n > 0 {
				m.ByMedium[medium]++
				break
			}
		}
	}
	return m
}

func (e *engine) hashes() []uint64 {
	all := make([]uint64, 0, len(e.blocks))
	for h := range e.blocks {
		all = append(all, h)
	}
	slices.Sort(all)
	return all
}

func TestIndexIsWhatTheEnginesHave(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		x := New(1 << 30)
		engines := make([]*engine, rapid.IntRange(1, 4).Draw(rt, "workers"))
		for i := range engines {
			w, err := x.Add("")
			if err != nil {
				rt.Fatal(err)
			}
			engines[i] = &engine{worker: w, seed: uint64(i), blocks: map[uint64]*modelBlock{}}
		}
		prompts := rapid.SliceOfN(rapid.SliceOfN(rapid.Uint32Range(1, 2), 0, 12), 1, 6).Draw(rt, "prompts")
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			e := rapid.SampledFrom(engines).Draw(rt, "engine")
			var events []kvevents.Event
			hashes := e.hashes()
			step := rapid.IntRange(0, 9).Draw(rt, "step")
			if len(hashes) == 0 {
				step = 0
			}
			switch {
			case step < 4:
				events = e.store(rapid.SampledFrom(prompts).Draw(rt, "prompt"))
			case step < 8:
				h := rapid.SampledFrom(hashes).Draw(rt, "block")
				m := kvevents.Medium(rapid.IntRange(0, 2).Draw(rt, "medium"))
				switch step {
				case 4:
					if prefix := e.blocks[h].prefix; e.cached(prefix).ByMedium[kvevents.GPU] == len(prefix)/size {
						events = e.again(h)
					}
				case 5:
					events = e.offload(h, m)
				default:
					events = e.remove(h, m)
				}
			case step == 8:
				events, e.blocks = []kvevents.Event{{Kind: kvevents.Cleared}}, map[uint64]*modelBlock{}
			default:
				e.worker.Reset()
				e.blocks = map[uint64]*modelBlock{}
			}
			e.worker.Apply(&kvevents.Batch{Events: events})
			for _, p := range prompts {
				var m [MaxWorkers]Match
				x.Overlap(AppendKeys(nil, Root("", size), size, p, nil, 0), &m)
				for _, e := range engines {
					if want := e.cached(p); m[e.worker.ID()] != want {
						rt.Fatalf("worker %d, prompt %v: %+v, and the engine has %+v", e.worker.ID(), p, m[e.worker.ID()], want)
					}
				}
			}
		}
		for _, e := range engines {
			e.worker.Remove()
		}
		if blocks, keys := sizeOf(x); blocks != 0 || keys != 0 {
			rt.Errorf("%d blocks and %d keys are left", blocks, keys)
		}
	})
}

// onlyWorker is a worker of an index of its own.
func onlyWorker(t testing.TB, budget int) (*Index, *Worker) {
	x := New(budget)
	w, err := x.Add("")
	if err != nil {
		t.Fatal(err)
	}
	return x, w
}

func overlap(x *Index, w *Worker, root uint64, tokens []uint32, extras []uint64) int {
	var m [MaxWorkers]Match
	x.Overlap(AppendKeys(nil, root, size, tokens, extras, 0), &m)
	return m[w.ID()].Blocks
}

func TestBlocksBehindAMissingOneAreComputedAgain(t *testing.T) {
	x, w := onlyWorker(t, 1<<20)
	all := kvevents.Event{Kind: kvevents.Stored, BlockSize: size, Hashes: []uint64{1, 2, 3},
		Tokens: []uint32{1, 2, 3, 4, 5, 6}}
	removed := func(hash uint64) kvevents.Event {
		return kvevents.Event{Kind: kvevents.Removed, Hashes: []uint64{hash}}
	}
	w.Apply(&kvevents.Batch{Events: []kvevents.Event{all, removed(1)}})
	w.Apply(&kvevents.Batch{Events: []kvevents.Event{all, removed(2)}})
	if n := overlap(x, w, Root("", size), []uint32{1, 2, 3, 4, 5, 6}, nil); n != 3 {
		t.Errorf("%d of 3 blocks", n)
	}
}

func TestBlockAfterAnUnknownOneIsNoBeginning(t *testing.T) {
	x, w := onlyWorker(t, 1<<20)
	w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Parent: 99, HasParent: true, BlockSize: size,
		Hashes: []uint64{1}, Tokens: []uint32{5, 6}}}})
	if n := overlap(x, w, Root("", size), []uint32{5, 6}, nil); n != 0 || w.Counts().Unknown != 1 {
		t.Errorf("%d blocks, %+v", n, w.Counts())
	}
}

func TestParentZeroIsTheRootUnlessABlockHasThatHash(t *testing.T) {
	zero := func(hash uint64, tokens ...uint32) *kvevents.Batch {
		return &kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, HasParent: true, BlockSize: size,
			Hashes: []uint64{hash}, Tokens: tokens}}}
	}
	x, w := onlyWorker(t, 1<<20)
	w.Apply(zero(0, 1, 2))
	w.Apply(zero(7, 3, 4))
	if n := overlap(x, w, Root("", size), []uint32{1, 2, 3, 4}, nil); n != 2 {
		t.Errorf("%d blocks", n)
	}
}

func TestPromptsOfAnotherModelSizeOrSaltDoNotMatch(t *testing.T) {
	x, w := onlyWorker(t, 1<<20)
	salt := []uint64{kvevents.ExtraKey("tenant-a"), 0}
	w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, BlockSize: size, Hashes: []uint64{1, 2},
		Tokens: []uint32{1, 2, 3, 4}, Extra: salt}}})
	for name, c := range map[string]struct {
		root   uint64
		extras []uint64
		want   int
	}{
		"the same":         {Root("", size), salt, 2},
		"no salt":          {Root("", size), nil, 0},
		"another salt":     {Root("", size), []uint64{kvevents.ExtraKey("tenant-b")}, 0},
		"another model":    {Root("other", size), salt, 0},
		"another block":    {Root("", 4), salt, 0},
		"the salt behind":  {Root("", size), []uint64{0, salt[0]}, 0},
		"the salt further": {Root("", size), []uint64{salt[0], salt[0]}, 1},
	} {
		if got := overlap(x, w, c.root, []uint32{1, 2, 3, 4}, c.extras); got != c.want {
			t.Errorf("%s: %d blocks", name, got)
		}
	}
}

func TestBudgetBoundsEachWorkerWhateverItPublishes(t *testing.T) {
	x, w := onlyWorker(t, 100*BlockBytes)
	for i := range uint64(10_000) {
		w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, BlockSize: 1, Hashes: []uint64{i},
			Tokens: []uint32{uint32(i)}}}})
		if i%3 == 0 {
			w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Removed, Hashes: []uint64{i}}}})
		}
	}
	if blocks, keys := sizeOf(x); blocks > 100 || keys > 100 || w.tree.used > 102 {
		t.Errorf("%d blocks, %d keys, %d places", blocks, keys, w.tree.used)
	}
	if w.Counts().Evicted == 0 {
		t.Error("no block was evicted")
	}
}

func TestAnIndexHasUpToItsWorkersAndReusesTheirPlaces(t *testing.T) {
	x := New(1 << 20)
	var last *Worker
	for range MaxWorkers {
		w, err := x.Add("")
		if err != nil {
			t.Fatal(err)
		}
		last = w
	}
	if _, err := x.Add(""); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	last.Remove()
	last.Remove()
	last.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, BlockSize: 1, Hashes: []uint64{1},
		Tokens: []uint32{1}}}})
	w, err := x.Add("")
	if err != nil || w.ID() != last.ID() {
		t.Fatalf("%+v, %v", w, err)
	}
	if blocks, keys := sizeOf(x); blocks != 0 || keys != 0 {
		t.Errorf("a removed worker has %d blocks, %d keys", blocks, keys)
	}
}

func TestStoresAndLookupsRunConcurrently(t *testing.T) {
	x := New(1 << 20)
	var all sync.WaitGroup
	for i := range 4 {
		w, err := x.Add("")
		if err != nil {
			t.Fatal(err)
		}
		e := &engine{worker: w, seed: uint64(i), blocks: map[uint64]*modelBlock{}}
		all.Go(func() {
			for n := range uint32(300) {
				w.Apply(&kvevents.Batch{Events: e.store([]uint32{n % 7, 1, 2, n, n, n})})
			}
			w.Remove()
		})
		all.Go(func() {
			var m [MaxWorkers]Match
			for n := range uint32(300) {
				x.Overlap(AppendKeys(nil, Root("", size), size, []uint32{n % 7, 1, 2, n}, nil, 0), &m)
				sizeOf(x)
				w.Len()
			}
		})
	}
	all.Wait()
	if blocks, keys := sizeOf(x); blocks != 0 || keys != 0 {
		t.Errorf("%d blocks, %d keys", blocks, keys)
	}
}

func TestLargerBlocksInAnotherMediumLeaveTheBlockSize(t *testing.T) {
	x, w := onlyWorker(t, 1<<20)
	store := func(m kvevents.Medium, size int, hash uint64) {
		w.Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Medium: m, BlockSize: size,
			Hashes: []uint64{hash}, Tokens: make([]uint32, size)}}})
	}
	store(kvevents.CPU, 8*size, 1)
	if n := w.BlockSize(); n != 8*size {
		t.Errorf("%d tokens before a block on the GPU", n)
	}
	store(kvevents.GPU, size, 2)
	store(kvevents.CPU, 8*size, 3)
	if n := w.BlockSize(); n != size {
		t.Errorf("%d tokens after it", n)
	}
	if got := overlap(x, w, Root("", size), make([]uint32, size), nil); got != 1 {
		t.Errorf("%d blocks", got)
	}
}

// sizeOf returns the number of blocks of all workers, and of different keys.
func sizeOf(x *Index) (blocks, keys int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, w := range x.workers {
		if w != nil {
			blocks += w.tree.count
		}
	}
	for i := range x.entries {
		keys += len(x.entries[i].m)
	}
	return blocks, keys
}
