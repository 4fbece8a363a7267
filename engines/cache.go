package engines

import (
	"container/list"
	"sync"

	"tierway/routing"
)

// blockTokens is the size of a cache block: vLLM's default on most platforms.
const blockTokens = 16

// prefixCache stores computed prefixes in blocks. A block's hash covers all blocks before it, so a
// block is found only behind its own prefix. The least recently used block is evicted first.
type prefixCache struct {
	mu       sync.Mutex
	capacity int // in blocks
	size     int // tokens per block
	blocks   map[uint64]*list.Element
	recent   list.List // of uint64, most recently used first
	changed  func(cacheChange)
	offload  *prefixCache // a further cache of the same prompts, see LMCache; nil: none
}

func newPrefixCache(capacity, size int) *prefixCache {
	return &prefixCache{capacity: capacity, size: size, blocks: make(map[uint64]*list.Element),
		changed: func(cacheChange) {}}
}

// chain returns the hashes of the full blocks of ids. Prompts with different salts share none.
func (c *prefixCache) chain(salt string, ids []uint32) []uint64 {
	hashes := make([]uint64, 0, len(ids)/c.size)
	h := hashIDs(0, appendIDs(nil, salt))
	for len(ids) >= c.size {
		for _, id := range ids[:c.size] {
			h = routing.Draw(h ^ uint64(id))
		}
		hashes = append(hashes, h)
		ids = ids[c.size:]
	}
	return hashes
}

// match returns the number of leading tokens of ids that are cached. The last token is always
// computed: its output begins the answer.
func (c *prefixCache) match(salt string, ids []uint32) (tokens int) {
	if c.offload != nil {
		tokens = c.offload.match(salt, ids)
	}
	if c.capacity == 0 || len(ids) == 0 {
		return tokens
	}
	chain := c.chain(salt, ids[:len(ids)-1])
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(chain) && c.blocks[chain[n]] != nil {
		n++
	}
	c.touchLocked(chain[:n])
	return max(tokens, n*c.size)
}

// has reports whether a block is cached.
func (c *prefixCache) has(hash uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocks[hash] != nil
}

// len returns the number of blocks.
func (c *prefixCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}

// add adds the full blocks of ids.
func (c *prefixCache) add(salt string, ids []uint32) {
	if c.offload != nil {
		c.offload.add(salt, ids)
	}
	if c.capacity == 0 {
		return
	}
	chain := c.chain(salt, ids)
	chain = chain[:min(len(chain), c.capacity)]
	c.mu.Lock()
	defer c.mu.Unlock()
	first := len(chain) // of the new blocks: what lacks a block lacks all behind it
	for i, h := range chain {
		if c.blocks[h] == nil {
			c.blocks[h] = c.recent.PushFront(h)
			first = min(first, i)
		}
	}
	c.touchLocked(chain)
	change := cacheChange{stored: chain[first:], tokens: ids[first*c.size : len(chain)*c.size], salt: salt}
	for c.recent.Len() > c.capacity {
		h := c.recent.Remove(c.recent.Back()).(uint64)
		delete(c.blocks, h)
		change.removed = append(change.removed, h)
	}
	if first > 0 && first < len(chain) {
		change.parent, change.hasParent = chain[first-1], true
	}
	if len(change.stored)+len(change.removed) > 0 {
		c.changed(change)
	}
}

// clear removes all blocks, one by one in the events.
func (c *prefixCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var change cacheChange
	for c.recent.Len() > 0 {
		h := c.recent.Remove(c.recent.Back()).(uint64)
		delete(c.blocks, h)
		change.removed = append(change.removed, h)
	}
	if len(change.removed) > 0 {
		c.changed(change)
	}
}

// touchLocked marks blocks as used from the last to the first: a block without its prefix is
// useless, so the end of a chain must be evicted first.
func (c *prefixCache) touchLocked(chain []uint64) {
	for i := len(chain) - 1; i >= 0; i-- {
		c.recent.MoveToFront(c.blocks[chain[i]])
	}
}
