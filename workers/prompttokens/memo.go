package prompttokens

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"

	"tierway/openai/prompt"
	"tierway/routing/kvindex"
)

const (
	// sharedMargin is subtracted from the common tokens of two prompts at the last common block of their
	// chains. The next block differs, so at most 511 bytes of the shared text are behind the block, and each
	// is at most one token. The block's end may cut a word, which is shorter than 129 bytes in natural text
	// and code.
	sharedMargin = 640

	nodeBytes  = 80  // of an element of memo.nodes, with the map's spare room
	entryBytes = 192 // of an entry without its slices
)

// memo maps the blocks of prompts to the tokens that they begin with. It is safe for concurrent
// use. Its size is bounded: the least recently used prompts are removed first.
type memo struct {
	budget int64 // bytes

	mu     sync.Mutex
	nodes  map[uint64]node
	recent list.List // of *entry, most recently used first
	bytes  int64     // of the entries
}

// entry is one prompt. Its tokens are immutable.
type entry struct {
	tokens []uint32
	blocks []uint64 // the keys of its nodes; some may belong to a later entry
	nodes  int      // how many of them belong to it
	at     *list.Element
	keys   atomic.Pointer[blockKeys]
}

func (e *entry) size() int64 {
	// Keys for blocks of 16 tokens, the smallest usual size, take an eighth of the tokens.
	return entryBytes + 4*int64(len(e.tokens)) + int64(len(e.tokens))/2 + 8*int64(len(e.blocks))
}

// node has the known tokens of the prompts with one block in their chains.
type node struct {
	of     *entry   // the last prompt with the block
	tokens int      // number of the entry's leading tokens with which all these prompts begin; 0: unknown
	exact  bool     // tokens ends with the message that the block ends
	whole  int      // the prompt that the block ends is so many tokens of the entry, then suffix; 0: unknown
	suffix []uint32 // tokens that begin the answer
}

func newMemo(budget int64) *memo { return &memo{budget: budget, nodes: make(map[uint64]node)} }

// find returns the node of a whole prompt, or of its longest known beginning. n.of is nil if none is
// known.
func (m *memo) find(chain []prompt.Block, seed uint64) (n node, whole bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(chain) - 1; i >= 0; i-- {
		n := m.nodes[mix(chain[i].Hash, seed)]
		whole := n.whole > 0 && i == len(chain)-1
		if whole || n.tokens > 0 {
			m.recent.MoveToFront(n.of.at)
			return n, whole
		}
	}
	return node{}, false
}

// findExact returns the tokens up to the end of a message, and the index of the block that ends
// it; -1 if there is none. The prompt's own last block does not count.
func (m *memo) findExact(blocks []uint64) (tokens []uint32, at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at = len(blocks) - 2; at >= 0; at-- {
		if n := m.nodes[blocks[at]]; n.exact {
			return n.of.tokens[:n.tokens], at
		}
	}
	return nil, -1
}

// put adds a prompt: the keys of its blocks, and its tokens. suffix are the last tokens, which begin the
// answer. exact means that each longer chat begins with the tokens before suffix. consistent is false if
// the prompt contradicts an earlier one, which is then no longer used for it.
func (m *memo) put(blocks []uint64, tokens, suffix []uint32, exact bool) (consistent bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &entry{tokens: slices.Clone(tokens[:len(tokens)-len(suffix)]), blocks: slices.Clone(blocks)}
	e.at = m.recent.PushFront(e)
	m.bytes += e.size()
	last := len(blocks) - 1
	consistent = m.inheritLocked(e)
	n := node{of: e, whole: len(e.tokens), suffix: suffix, exact: exact}
	if exact {
		n.tokens = len(e.tokens)
	}
	m.nodes[blocks[last]] = n
	e.nodes = len(blocks)
	m.evictLocked()
	return consistent
}

// inheritLocked assigns the nodes of an entry's blocks to it. They keep their known tokens as far as the
// entry has the same.
func (m *memo) inheritLocked(e *entry) (consistent bool) {
	consistent = true
	var compared *entry
	shared, deepest := 0, len(e.blocks)-1 // shared: tokens with which e and compared begin
	for i := len(e.blocks) - 1; i >= 0; i-- {
		n, known := m.nodes[e.blocks[i]]
		if !known {
			m.nodes[e.blocks[i]] = node{of: e}
			deepest = i - 1
			continue
		}
		if n.of != compared {
			compared, shared = n.of, commonPrefix(n.of.tokens, e.tokens)
		}
		if n.tokens > shared {
			consistent = consistent && !n.exact
			n.tokens, n.exact = 0, false
		}
		if n.whole > shared {
			n.whole, n.suffix = 0, nil
		}
		// The next block is not shared: the common beginning is little longer than this block.
		if i == deepest && i < len(e.blocks)-1 && n.tokens == 0 {
			n.tokens = max(shared-sharedMargin, 0)
		}
		m.releaseLocked(n.of)
		n.of = e
		m.nodes[e.blocks[i]] = n
	}
	return consistent
}

// prove records that prompts with a block begin with these tokens, which end with the message that the
// block ends. It returns false if the last prompt with the block does not begin with them.
func (m *memo) prove(block uint64, tokens []uint32) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[block]
	if !ok || commonPrefix(n.of.tokens, tokens) < len(tokens) {
		return false
	}
	n.tokens, n.exact = len(tokens), true
	m.nodes[block] = n
	return true
}

// proved reports whether the tokens up to the end of a block's message are known.
func (m *memo) proved(block uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[block].exact
}

func (m *memo) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.nodes)
	m.recent.Init()
	m.bytes = 0
}

func (m *memo) size() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes + nodeBytes*int64(len(m.nodes))
}

// releaseLocked removes one node of an entry. An entry without nodes is removed.
func (m *memo) releaseLocked(e *entry) {
	if e.nodes--; e.nodes == 0 {
		m.recent.Remove(e.at)
		m.bytes -= e.size()
	}
}

func (m *memo) evictLocked() {
	for m.bytes+nodeBytes*int64(len(m.nodes)) > m.budget && m.recent.Len() > 0 {
		e := m.recent.Back().Value.(*entry)
		for _, key := range e.blocks {
			if m.nodes[key].of == e {
				delete(m.nodes, key)
			}
		}
		m.recent.Remove(e.at)
		m.bytes -= e.size()
	}
}

// commonPrefix returns the number of leading tokens that a and b have in common.
func commonPrefix(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// identity is the identity of blocks besides their tokens, in the form of kvevents.ExtraKey.
type identity struct {
	first uint64 // of the first block
	each  uint64 // of the later ones
}

// appendKeys appends the keys of tokens behind a block, or of the first ones of a prompt.
func (id identity) appendKeys(keys []uint64, parent uint64, size int, tokens []uint32, first bool) []uint64 {
	var extras []uint64
	if first {
		extras = []uint64{id.first}
	}
	return kvindex.AppendKeys(keys, parent, size, tokens, extras, id.each)
}

// blockKeys are the keys of an entry's full blocks.
type blockKeys struct {
	size int
	keys []uint64
}

// blockKeys returns the keys of the entry's full blocks. All requests that find an entry have one
// identity, because it is part of their chain and of their seed.
func (e *entry) blockKeys(size int, id identity) []uint64 {
	k := e.keys.Load()
	if k == nil || k.size != size {
		keys := make([]uint64, 0, len(e.tokens)/size)
		k = &blockKeys{size, id.appendKeys(keys, kvindex.Root("", size), size, e.tokens, true)}
		e.keys.Store(k)
	}
	return k.keys
}

// appendKeys appends the keys of the blocks of a known beginning, or of a whole prompt without its last
// token.
func (n *node) appendKeys(dst []uint64, size int, id identity, whole bool) []uint64 {
	own, total := n.tokens, n.tokens
	if whole {
		own, total = n.whole, n.whole+len(n.suffix)-1
	}
	full := min(own, total) / size
	keys := n.of.blockKeys(size, id)[:full]
	dst = append(dst, keys...)
	if total/size == full {
		return dst
	}
	rest := append(append(make([]uint32, 0, total-full*size+1), n.of.tokens[full*size:own]...), n.suffix...)
	parent := kvindex.Root("", size)
	if full > 0 {
		parent = keys[full-1]
	}
	return id.appendKeys(dst, parent, size, rest[:total-full*size], full == 0)
}
