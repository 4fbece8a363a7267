package sim

import "tierway/routing"

// cache is an engine's prefix cache: so many blocks, of which the one that was
// longest not touched makes room for a new one.
type cache struct {
	lruList
	most int
	at   map[uint64]*entry
}

// touches is the order in which blocks were touched.
type lruList struct {
	first, last *entry // the longest and the shortest time not touched
}

// entry is a block's place in that order.
type entry struct {
	hash       uint64
	prev, next *entry
}

func newCache(blocks int) *cache { return &cache{most: blocks, at: map[uint64]*entry{}} }

// hits returns how many of the chain's leading blocks are there.
func (c *cache) hits(chain []routing.Block) int {
	for i := range chain {
		if c.at[chain[i].Hash] == nil {
			return i
		}
	}
	return len(chain)
}

// store touches the blocks in their order, and takes in those that are new.
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
