package tokenizer

import "slices"

// merge is the result of joining two tokens.
type merge struct {
	rank int32 // lower ranks are joined first
	id   uint32
}

func pair(a, b uint32) uint64 { return uint64(a)<<32 | uint64(b) }

// symbol is a token in a piece that is being merged. Symbols are a doubly linked list by index.
type symbol struct {
	id         uint32
	prev, next int32
	gone       bool
}

// candidate is a pair of neighbours that can be joined.
type candidate struct {
	merge
	at    int32 // of the left symbol
	right uint32
	left  uint32
}

// merger merges pieces; it reuses its memory.
type merger struct {
	symbols []symbol
	heap    []candidate
}

// shortPiece is the length in bytes up to which all pairs are compared for each merge: with few
// pairs that is faster than a heap.
const shortPiece = 24

func (t *Tokenizer) appendPiece(dst []uint32, m *merger, piece []byte) []uint32 {
	if len(piece) == 1 {
		return append(dst, t.bytes[piece[0]])
	}
	if t.whole {
		if id, ok := t.pieces[string(piece)]; ok {
			return append(dst, id)
		}
	}
	if len(piece) <= shortPiece {
		return t.appendShort(dst, piece)
	}
	return t.appendLong(dst, m, piece)
}

// appendShort merges the pair of lowest rank, the leftmost of several, until none is left.
func (t *Tokenizer) appendShort(dst []uint32, piece []byte) []uint32 {
	from := len(dst)
	for _, b := range piece {
		dst = append(dst, t.bytes[b])
	}
	ids := dst[from:]
	var scratch [shortPiece]merge
	pairs := scratch[:len(ids)-1] // pairs[i] joins ids[i] and ids[i+1]
	for i := range pairs {
		pairs[i] = t.mergeOf(ids[i], ids[i+1])
	}
	for len(pairs) > 0 {
		best := 0
		for i := range pairs {
			if pairs[i].rank < pairs[best].rank {
				best = i
			}
		}
		if pairs[best].rank == noRank {
			break
		}
		ids[best] = pairs[best].id
		ids = slices.Delete(ids, best+1, best+2)
		pairs = slices.Delete(pairs, best, best+1)
		if best < len(pairs) {
			pairs[best] = t.mergeOf(ids[best], ids[best+1])
		}
		if best > 0 {
			pairs[best-1] = t.mergeOf(ids[best-1], ids[best])
		}
	}
	return dst[:from+len(ids)]
}

// noRank is that of a pair that cannot be joined.
const noRank = 1<<31 - 1

func (t *Tokenizer) mergeOf(a, b uint32) merge {
	if m, ok := t.merges[pair(a, b)]; ok {
		return m
	}
	return merge{rank: noRank}
}

// appendLong is appendShort with a heap: its time grows little faster than the length of the piece.
func (t *Tokenizer) appendLong(dst []uint32, m *merger, piece []byte) []uint32 {
	m.symbols, m.heap = m.symbols[:0], m.heap[:0]
	for i, b := range piece {
		m.symbols = append(m.symbols, symbol{id: t.bytes[b], prev: int32(i) - 1, next: int32(i) + 1})
	}
	m.symbols[len(piece)-1].next = -1
	for i := range len(piece) - 1 {
		t.push(m, int32(i))
	}
	for len(m.heap) > 0 {
		c := m.pop()
		left := &m.symbols[c.at]
		if left.gone || left.id != c.left || left.next < 0 || m.symbols[left.next].id != c.right {
			continue // one of the two symbols has changed since the push
		}
		right := &m.symbols[left.next]
		right.gone = true
		left.id, left.next = c.id, right.next
		if left.next >= 0 {
			m.symbols[left.next].prev = c.at
			t.push(m, c.at)
		}
		if left.prev >= 0 {
			t.push(m, left.prev)
		}
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		dst = append(dst, m.symbols[i].id)
	}
	return dst
}

// push adds a symbol and its next one to the heap, if they can be joined.
func (t *Tokenizer) push(m *merger, at int32) {
	left := &m.symbols[at]
	right := m.symbols[left.next].id
	joined, ok := t.merges[pair(left.id, right)]
	if !ok {
		return
	}
	m.heap = append(m.heap, candidate{joined, at, right, left.id})
	for i := len(m.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !m.heap[i].before(&m.heap[parent]) {
			break
		}
		m.heap[i], m.heap[parent] = m.heap[parent], m.heap[i]
		i = parent
	}
}

func (m *merger) pop() candidate {
	top, last := m.heap[0], len(m.heap)-1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && m.heap[child+1].before(&m.heap[child]) {
			child++
		}
		if !m.heap[child].before(&m.heap[i]) {
			return top
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}

// before orders candidates by rank, then from the left.
func (c *candidate) before(d *candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}
