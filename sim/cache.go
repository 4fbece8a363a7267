package sim

import "tierway/routing"

// cache is an engine's prefix cache. It holds a bounded number of blocks and evicts the least
// recently used one.
type cache struct {
	lruList
	most int
	at   map[uint64]*entry
}

// lruList is the order of use of the blocks.
type lruList struct {
	first, last *entry // the least and the most recently used
}

// entry is a block in that order.
type entry struct {
	hash       uint64
	prev, next *entry
}

func newCache(blocks int) *cache { return &cache{most: blocks, at: map[uint64]*entry{}} }

// hits returns how many leading blocks of the chain are cached.
func (c *cache) hits(chain []routing.Block) int {
	for i := range chain {
		if c.at[chain[i].Hash] == nil {
			return i
		}
	}
	return len(chain)
}

// store marks the blocks as used, in their order, and adds the new ones.
func (c *cache) store(chain []routing.Block) {
	for i := range chain {
		e := c.at[chain[i].Hash]
		switch {
		case e != nil:
			c.unlink(e)
		case c.most <= 0:
			return
		case len(c.at) >= c.most:
			e = c.first
			c.unlink(e)
			delete(c.at, e.hash)
		default:
			e = &entry{}
		}
		e.hash = chain[i].Hash
		c.at[e.hash] = e
		c.push(e)
	}
}

func (c *lruList) push(e *entry) {
	e.prev, e.next = c.last, nil
	if c.last == nil {
		c.first = e
	} else {
		c.last.next = e
	}
	c.last = e
}

func (c *lruList) unlink(e *entry) {
	if e.prev == nil {
		c.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		c.last = e.prev
	} else {
		e.next.prev = e.prev
	}
}
