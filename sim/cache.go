package sim

import "tierway/routing"

// blockNumbers numbers the blocks of a simulation in the order of their first use, so that slices can be
// indexed by block.
type blockNumbers map[uint64]int32

// count returns how many blocks have a number.
func (b blockNumbers) count() int32 { return int32(len(b)) }

// appendNumbers appends the numbers of the blocks of a chain that numbers does not have yet.
func (b blockNumbers) appendNumbers(numbers []int32, chain []routing.Block) []int32 {
	for _, block := range chain[len(numbers):] {
		number, known := b[block.Hash]
		if !known {
			number = b.count()
			b[block.Hash] = number
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// cache is an engine's prefix cache. It holds a bounded number of blocks and evicts the least
// recently used one.
type cache struct {
	maxBlocks int
	places    []place
	placeOf   []int32 // by the block's number: its place plus one; 0 if it is not cached
	// The least and the most recently used place; -1 while there is none.
	first, last int32
	onChange    func(number int32, stored bool) // nil, or called for each change of the content
}

// place is one place for a block in the order of use.
type place struct{ number, prev, next int32 }

func newCache(blocks int) *cache { return &cache{maxBlocks: blocks, first: -1, last: -1} }

// has reports whether the block is cached.
func (c *cache) has(number int32) bool { return int(number) < len(c.placeOf) && c.placeOf[number] != 0 }

// hits returns how many leading blocks of the chain are cached.
func (c *cache) hits(chain []int32) int {
	for i, number := range chain {
		if !c.has(number) {
			return i
		}
	}
	return len(chain)
}

// store marks the blocks as used, in their order, and adds the new ones.
func (c *cache) store(chain []int32) {
	if c.maxBlocks <= 0 {
		return
	}
	for _, number := range chain {
		if c.has(number) {
			at := c.placeOf[number] - 1
			c.unlink(at)
			c.push(at)
			continue
		}
		c.push(c.add(number))
	}
}

// add gives the block a place that is not yet in the order of use: a new one, or that of the least recently
// used block.
func (c *cache) add(number int32) (at int32) {
	if missing := int(number) + 1 - len(c.placeOf); missing > 0 {
		c.placeOf = append(c.placeOf, make([]int32, missing)...)
	}
	if at = int32(len(c.places)); int(at) < c.maxBlocks {
		c.places = append(c.places, place{})
	} else {
		at = c.first
		c.unlink(at)
		c.placeOf[c.places[at].number] = 0
		c.changed(c.places[at].number, false)
	}
	c.places[at].number, c.placeOf[number] = number, at+1
	c.changed(number, true)
	return at
}

func (c *cache) changed(number int32, stored bool) {
	if c.onChange != nil {
		c.onChange(number, stored)
	}
}

func (c *cache) push(at int32) {
	p := &c.places[at]
	p.prev, p.next = c.last, -1
	if c.last < 0 {
		c.first = at
	} else {
		c.places[c.last].next = at
	}
	c.last = at
}

func (c *cache) unlink(at int32) {
	p := &c.places[at]
	if p.prev < 0 {
		c.first = p.next
	} else {
		c.places[p.prev].next = p.next
	}
	if p.next < 0 {
		c.last = p.prev
	} else {
		c.places[p.next].prev = p.prev
	}
}
