package kvindex

// chunkBlocks is the number of blocks that are allocated at a time.
const chunkBlocks = 512

// root is the place before the first block of each prompt. It is also the head of the order of leaves.
const root = 0

// block is the block of one hash: the numbers of copies in full-attention groups, by medium, and in
// each sliding-window group. A block without copies is kept while it has children, so that their
// place in a prompt stays known.
type block struct {
	hash, key uint64
	full      [mediums]uint8
	sliding   [maxSliding]uint8

	parent       uint32 // place of the block before it; its own place while it is free
	children     uint32
	older, newer uint32 // neighbours in the order of leaves; newer links free places
	entered      uint32 // number of its entry in the worker's aging; 0: none
}

func (b *block) empty() bool { return b.full == [mediums]uint8{} && b.sliding == [maxSliding]uint8{} }

// tree is the blocks of one worker, each behind its parent. Its leaves are in the order of their
// last store, because a block may be dropped only if no other one is behind it. The parent of a
// block never changes, so there is no cycle.
type tree struct {
	byHash map[uint64]uint32 // places by the engine's hash
	chunks []*[chunkBlocks]block
	used   uint32 // places that were ever taken, with root
	free   uint32 // last place that became free; root if there is none
	count  int    // blocks
}

func newTree() tree {
	return tree{byHash: map[uint64]uint32{}, chunks: []*[chunkBlocks]block{new([chunkBlocks]block)}, used: 1}
}

func (t *tree) at(place uint32) *block { return &t.chunks[place/chunkBlocks][place%chunkBlocks] }

// add enters a block behind its parent, as the newest leaf.
func (t *tree) add(hash, key uint64, parent uint32) uint32 {
	place := t.take()
	*t.at(place) = block{hash: hash, key: key, parent: parent}
	if p := t.at(parent); parent != root && p.children == 0 {
		t.unlink(p)
	}
	t.at(parent).children++
	t.linkBefore(root, place)
	t.byHash[hash] = place
	t.count++
	return place
}

// take returns a place for a block.
func (t *tree) take() uint32 {
	if place := t.free; place != root {
		t.free = t.at(place).newer
		return place
	}
	if int(t.used) == len(t.chunks)*chunkBlocks {
		t.chunks = append(t.chunks, new([chunkBlocks]block))
	}
	t.used++
	return t.used - 1
}

// touch makes a leaf the newest one. It has no effect on another block.
func (t *tree) touch(place uint32) {
	if b := t.at(place); b.children == 0 {
		t.unlink(b)
		t.linkBefore(root, place)
	}
}

// oldest is the least recently stored leaf; root if there is no block.
func (t *tree) oldest() uint32 { return t.at(root).newer }

// remove removes a leaf. A parent without other children takes its place in the order, or is removed
// too if it has no copies.
func (t *tree) remove(place uint32) {
	for {
		b := t.at(place)
		parent := b.parent
		p := t.at(parent)
		p.children--
		leaf := parent != root && p.children == 0
		if leaf {
			t.linkBefore(place, parent)
		}
		t.unlink(b)
		if t.byHash[b.hash] == place {
			delete(t.byHash, b.hash)
		}
		*b = block{parent: place, newer: t.free}
		t.free = place
		t.count--
		if !leaf || !p.empty() {
			return
		}
		place = parent
	}
}

// linkBefore enters a leaf in the order, as the next older one of another; of root: as the newest.
func (t *tree) linkBefore(next, place uint32) {
	n, b := t.at(next), t.at(place)
	b.older, b.newer = n.older, next
	t.at(n.older).newer = place
	n.older = place
}

func (t *tree) unlink(b *block) {
	t.at(b.older).newer, t.at(b.newer).older = b.newer, b.older
}

// compacted returns a copy without free places.
func (t *tree) compacted() tree {
	c := tree{byHash: make(map[uint64]uint32, len(t.byHash)), count: t.count}
	moved := make([]uint32, t.used)
	for place := range t.used {
		if b := t.at(place); place == root || b.parent != place {
			moved[place] = c.take()
			*c.at(moved[place]) = *b
		}
	}
	for place := range c.used {
		b := c.at(place)
		b.parent, b.older, b.newer = moved[b.parent], moved[b.older], moved[b.newer]
	}
	for hash, place := range t.byHash {
		c.byHash[hash] = moved[place]
	}
	return c
}
