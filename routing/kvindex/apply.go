package kvindex

import (
	"cmp"
	"math"

	"tierway/workers/kvevents"
)

// Apply applies the events of one batch. Stores of full-attention groups come first, because only they
// have the tokens for the hashes of the other groups. Look-ups during Apply find the state after any
// part of the batch.
func (w *Worker) Apply(batch *kvevents.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	from := 0
	for i := range batch.Events { // a removal before a store belongs to an earlier copy
		if e := &batch.Events[i]; e.Kind == kvevents.Cleared && !w.removed {
			w.applyRun(batch.Events[from:i])
			w.clear()
			from = i + 1
		}
	}
	w.applyRun(batch.Events[from:])
	w.compact()
}

func (w *Worker) applyRun(events []kvevents.Event) {
	for i := range events {
		switch e := &events[i]; {
		case w.removed:
			return
		case e.Kind == kvevents.Removed:
			w.remove(e)
		case e.Other:
			w.remember(e)
			w.counts.Unusable += len(e.Hashes)
		case !e.Sliding:
			w.store(e)
		}
	}
	for i := range events {
		if e := &events[i]; e.Kind == kvevents.Stored && e.Sliding {
			w.storeSliding(e)
		}
	}
}

// store applies a store of a full-attention group.
func (w *Worker) store(e *kvevents.Event) {
	defer w.age(e)
	if len(e.Tokens) == 0 {
		w.copyBlocks(e)
		return
	}
	if e.Medium == kvevents.GPU || w.blockSize == 0 { // LMCache stores larger blocks in CPU memory
		w.blockSize = e.BlockSize
	}
	if e.Medium != kvevents.GPU {
		w.offloadSize = e.BlockSize
	}
	parent, key := uint32(root), Root(w.namespace, e.BlockSize)
	if e.HasParent {
		place, ok := w.tree.byHash[e.Parent]
		switch {
		case ok:
			parent, key = place, w.tree.at(place).key
		case e.Parent != 0: // some engines send 0 for no parent
			w.counts.Unknown += len(e.Hashes)
			return
		}
	}
	w.storeBehind(parent, key, e)
}

// storeBehind stores the blocks of an event behind a block with a key.
func (w *Worker) storeBehind(parent uint32, key uint64, e *kvevents.Event) {
	reused := true
	for i, hash := range e.Hashes {
		if !w.pause() {
			return
		}
		extra := uint64(0)
		if e.Extra != nil {
			extra = e.Extra[i]
		}
		key = next(key, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize], extra)
		place, known := w.tree.byHash[hash]
		former, resettled := place, known && w.tree.at(place).key != key
		known = known && !resettled
		// An engine computes the blocks of an event from the first missing one on. Known blocks at its
		// beginning were reused: no removal will match them, so they are no further copies. The last
		// block of an event is always computed.
		reused = reused && known && w.tree.at(place).full[e.Medium] > 0
		if !known {
			place = w.tree.add(hash, key, parent)
		}
		if resettled { // its children, and the parent of the new block may be one, keep their places
			w.counts.Resettled++
			w.disown(former)
		}
		if !reused || i == len(e.Hashes)-1 {
			w.addCopy(place, e)
		}
		if !known && !w.makeRoom(place) {
			w.counts.Evicted += len(e.Hashes) - i - 1
			return
		}
		parent = place
	}
}

// disown removes all copies of a block after its hash was stored with other tokens. The block stays
// if it has children.
func (w *Worker) disown(place uint32) {
	b := w.tree.at(place)
	if b.full[kvevents.GPU] > 0 {
		w.onGPU--
	}
	w.index.entries.forget(b.key, w.id)
	b.full, b.sliding = [mediums]uint8{}, [maxSliding]uint8{}
	if b.children == 0 {
		w.tree.remove(place)
	}
}

// copyBlocks applies a store of blocks that were copied to another medium, without their tokens.
func (w *Worker) copyBlocks(e *kvevents.Event) {
	for _, hash := range e.Hashes {
		if !w.pause() {
			return
		}
		if place, ok := w.tree.byHash[hash]; ok {
			w.addCopy(place, e)
		} else {
			w.counts.Unknown++
		}
	}
}

// addCopy adds a copy of a block in the medium of an event.
func (w *Worker) addCopy(place uint32, e *kvevents.Event) {
	b, m := w.tree.at(place), e.Medium
	if w.ages(m) {
		w.aging.stored += int64(cmp.Or(e.BlockSize, w.blockSize))
	}
	w.counts.Stored++
	w.tree.touch(place)
	if b.full[m] == 0 && m == kvevents.GPU {
		w.onGPU++
	}
	if b.full[m] < math.MaxUint8 {
		b.full[m]++
	}
	x := w.index.entries.get(b.key)
	x.holders[m] |= 1 << w.id
	w.index.entries.put(b.key, x)
}

// storeSliding applies a store of a sliding-window group. Its blocks have the hashes of the
// full-attention group.
func (w *Worker) storeSliding(e *kvevents.Event) {
	g := w.remember(e)
	if g == unusable {
		w.counts.Unusable += len(e.Hashes)
		return
	}
	for _, hash := range e.Hashes {
		if !w.pause() {
			return
		}
		place, ok := w.tree.byHash[hash]
		if !ok {
			w.counts.Unknown++
			continue
		}
		b := w.tree.at(place)
		if b.sliding[g] < math.MaxUint8 {
			b.sliding[g]++
		}
		x := w.index.entries.get(b.key)
		if x.sliding == nil {
			x.sliding = new([maxSliding]uint64)
		}
		x.sliding[g] |= 1 << w.id
		w.index.entries.put(b.key, x)
	}
}

// remove applies a removal. The event states the group's number and not its kind.
func (w *Worker) remove(e *kvevents.Event) {
	g, special := w.placeOf(e.Group)
	if special && g == unusable {
		return
	}
	for _, hash := range e.Hashes {
		if !w.pause() {
			return
		}
		place, ok := w.tree.byHash[hash]
		if !ok || !w.removeCopy(place, e.Medium, g) {
			w.counts.Unknown++
			continue
		}
		w.counts.Removed++
	}
}

// removeCopy removes one copy of a block: in a sliding-window group, or in a medium if g is unusable.
// It reports whether the block had one.
func (w *Worker) removeCopy(place uint32, m kvevents.Medium, g int) bool {
	b := w.tree.at(place)
	copies := &b.full[m]
	if g != unusable {
		copies = &b.sliding[g]
	}
	if *copies == 0 {
		return false
	}
	if g == unusable {
		w.aging.removes[m] = true
	}
	if *copies--; *copies > 0 {
		return true
	}
	x := w.index.entries.get(b.key)
	switch {
	case g == unusable:
		x.holders[m] &^= 1 << w.id
		if m == kvevents.GPU {
			w.onGPU--
		}
	case x.sliding != nil:
		x.sliding[g] &^= 1 << w.id
	}
	w.index.entries.put(b.key, x)
	if b.empty() && b.children == 0 {
		w.tree.remove(place)
	}
	return true
}
