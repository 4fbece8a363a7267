package engines

import (
	"container/list"
	"sync"

	"tierway/routing"
)

// blockTokens is the size of a cache's block: vLLM's on most platforms.
const blockTokens = 16

// prefixCache remembers which prefixes were computed, in blocks: a block's hash is
// chained over all blocks before it, so that a block is only found behind its own
// prefix. The block that was unused longest goes first.
type prefixCache struct {
	mu       sync.Mutex
	capacity int // blocks
	size     int // tokens of a block
	blocks   map[uint64]*list.Element
	recent   list.List // of uint64, most recently used first
}

func newPrefixCache(capacity, size int) *prefixCache {
	return &prefixCache{capacity: capacity, size: size, blocks: make(map[uint64]*list.Element)}
}

// chain returns the hashes of the full blocks of ids.
func (c *prefixCache) chain(ids []uint32) []uint64 {
	hashes := make([]uint64, 0, len(ids)/c.size)
	h := uint64(0)
	for len(ids) >= c.size {
		for _, id := range ids[:c.size] {
			h = routing.Draw(h ^ uint64(id))
		}
		hashes = append(hashes, h)
		ids = ids[c.size:]
	}
	return hashes
}

// match returns how many leading tokens of ids need no computing. The last token
// always does: its output is what the answer starts from.
func (c *prefixCache) match(ids []uint32) int {
	if c.capacity == 0 || len(ids) == 0 {
		return 0
	}
	chain := c.chain(ids[:len(ids)-1])
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(chain) && c.blocks[chain[n]] != nil {
		n++
	}
	c.touchLocked(chain[:n])
	return n * c.size
}

// add enters the full blocks of ids.
func (c *prefixCache) add(ids []uint32) {
	if c.capacity == 0 {
		return
	}
	chain := c.chain(ids)
	chain = chain[:min(len(chain), c.capacity)]
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range chain {
		if c.blocks[h] == nil {
			c.blocks[h] = c.recent.PushFront(h)
		}
	}
	c.touchLocked(chain)
	for c.recent.Len() > c.capacity {
		delete(c.blocks, c.recent.Remove(c.recent.Back()).(uint64))
	}
}

// touchLocked goes from the end to the start: a block without its prefix is worth
// nothing, so the end of a chain must go first.
func (c *prefixCache) touchLocked(chain []uint64) {
	for i := len(chain) - 1; i >= 0; i-- {
		c.recent.MoveToFront(c.blocks[chain[i]])
	}
}
