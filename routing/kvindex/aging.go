package kvindex

import "tierway/workers/kvevents"

// aging bounds the blocks of media from which the engine publishes no removals: LMCache states what it stores in CPU
// memory, and not what it evicts. Such a block is dropped once limit tokens were stored in these media after it or a
// block behind it, because a cache of that size has evicted it by then.
type aging struct {
	limit   int64         // tokens; 0: blocks are kept
	stored  int64         // tokens stored in these media so far
	removes [mediums]bool // media of which the engine has published a removal
	queue   []aged        // in the order in which they are dropped; an entry that its block replaced has no effect
	first   uint32        // number of the first entry of queue, from 1 on
}

// aged is an entry of the queue.
type aged struct {
	hash uint64
	at   int64 // value of stored
}

// touchShare is the share of the limit by which a block may be dropped too early: the blocks before a new one are
// entered again only if they are older than that.
const touchShare = 8

// SetAging sets the size of the engine's cache in slower media, in tokens. It applies to media from which the
// engine publishes no removals. 0 keeps their blocks.
func (w *Worker) SetAging(tokens int) {
	w.index.mu.Lock()
	defer w.index.mu.Unlock()
	w.aging.limit = int64(max(0, tokens))
}

// ages reports whether blocks of a medium are dropped by age.
func (w *Worker) ages(m kvevents.Medium) bool { return m != kvevents.GPU && !w.aging.removes[m] }

// age enters the blocks of a store in a slower medium, and the older ones before them, and drops blocks. The last
// block of a prompt is dropped first: without the ones before it, it would match no prompt.
func (w *Worker) age(e *kvevents.Event) {
	if !w.ages(e.Medium) {
		return
	}
	a, before := &w.aging, uint32(root)
	for i := len(e.Hashes) - 1; i >= 0; i-- {
		if place, ok := w.tree.byHash[e.Hashes[i]]; ok {
			w.enter(place)
			before = w.tree.at(place).parent
		}
	}
	for ; before != root && w.pause(); before = w.tree.at(before).parent {
		if at, ok := a.enteredAt(w.tree.at(before)); ok && a.stored-at <= a.limit/touchShare {
			break
		}
		w.enter(before)
	}
	w.expire()
}

// enteredAt returns the value of stored at a block's entry, if it has one.
func (a *aging) enteredAt(b *block) (at int64, ok bool) {
	i := b.entered - a.first
	if b.entered == 0 || int(i) >= len(a.queue) || a.queue[i].hash != b.hash {
		return 0, false
	}
	return a.queue[i].at, true
}

// enter enters a block as the last one to be dropped.
func (w *Worker) enter(place uint32) {
	a, b := &w.aging, w.tree.at(place)
	if len(a.queue) == 0 {
		a.first = max(1, a.first)
	}
	b.entered = a.first + uint32(len(a.queue))
	a.queue = append(a.queue, aged{b.hash, a.stored})
}

// expire drops the blocks that are too old.
func (w *Worker) expire() {
	a := &w.aging
	for a.limit > 0 && len(a.queue) > 0 && a.stored-a.queue[0].at >= a.limit && w.pause() {
		number := a.first
		place, ok := w.tree.byHash[a.queue[0].hash]
		a.queue, a.first = a.queue[1:], a.first+1
		if ok && w.tree.at(place).entered == number {
			w.dropAged(place)
		}
	}
}

// dropAged removes the copies of a block in the media that age.
func (w *Worker) dropAged(place uint32) {
	b := w.tree.at(place)
	x := w.index.entries.get(b.key)
	for m := range b.full {
		if w.ages(kvevents.Medium(m)) && b.full[m] > 0 {
			b.full[m] = 0
			x.holders[m] &^= 1 << w.id
			w.counts.Aged++
		}
	}
	w.index.entries.put(b.key, x)
	if b.empty() && b.children == 0 {
		w.tree.remove(place)
	}
}
