package openai

import "slices"

// shortPiece is up to how many bytes a piece is merged by looking at all its
// parts for each merge: below it that is faster than keeping them in order.
const shortPiece = 96

// merger counts the tokens of pieces, one after the other: a piece begins as
// its bytes, and the two neighbours that together are the token of the lowest
// rank, the leftmost of equals, become one part until no two are a token. Its
// memory serves all pieces of a text.
type merger struct {
	ranks *rankTable
	// Of a short piece, in order: where part i begins, and the rank of part i
	// together with part i+1.
	starts [shortPiece + 1]uint8
	pairs  [shortPiece]uint32
	// Of a long one: parts by where they begin, and the pairs in order.
	parts []mergePart
	queue []uint64
}

// mergePart is a part of a long piece and its neighbours, by where they begin.
type mergePart struct {
	before, after uint32
	pair          uint32 // the rank of this part together with the one after
}

// count returns how many tokens a piece is.
func (m *merger) count(piece []byte) int {
	switch {
	case m.ranks.of(piece) != noRank:
		return 1
	case len(piece) <= shortPiece:
		return m.short(piece)
	}
	return m.long(piece)
}

// short merges a piece of at most shortPiece bytes.
func (m *merger) short(piece []byte) int {
	n := len(piece)
	starts, pairs := m.starts[:n+1], m.pairs[:n]
	for i := range pairs {
		starts[i], pairs[i] = uint8(i), noRank
		if i+2 <= n {
			pairs[i] = m.ranks.of(piece[i : i+2])
		}
	}
	starts[n] = uint8(n)
	for {
		lowest, at := uint32(noRank), 0
		for i, rank := range pairs {
			if rank < lowest {
				lowest, at = rank, i
			}
		}
		if lowest == noRank {
			return len(pairs)
		}
		copy(starts[at+1:], starts[at+2:])
		copy(pairs[at+1:], pairs[at+2:])
		starts, pairs = starts[:len(starts)-1], pairs[:len(pairs)-1]
		// Behind part i stand starts[i+1] and, when it is not the last, starts[i+2].
		for i := max(at-1, 0); i <= at; i++ {
			pairs[i] = noRank
			if i+2 < len(starts) {
				pairs[i] = m.ranks.of(piece[starts[i]:starts[i+2]])
			}
		}
	}
}

// long merges a piece of any size with its pairs in a heap, so that a merge
// costs the logarithm of the size. An entry of the heap is a rank and below it
// the place: equal ranks come from left to right. An entry whose part has
// another pair by now is stepped over; no part ever has the same pair twice,
// because a pair only grows.
func (m *merger) long(piece []byte) int {
	end := uint32(len(piece)) // no piece has 4 GiB
	m.parts, m.queue = slices.Grow(m.parts[:0], len(piece)), slices.Grow(m.queue[:0], len(piece))
	for i := range end {
		m.parts = append(m.parts, mergePart{before: i - 1, after: i + 1, pair: noRank})
	}
	for i := range end - 1 {
		m.pair(piece, i)
	}
	n := len(piece)
	for len(m.queue) > 0 {
		top := m.pop()
		at := uint32(top)
		part := &m.parts[at]
		if part.pair != uint32(top>>32) {
			continue
		}
		gone := &m.parts[part.after]
		gone.pair = noRank
		part.after = gone.after
		n--
		if part.after < end {
			m.parts[part.after].before = at
		}
		m.pair(piece, at)
		if at > 0 {
			m.pair(piece, part.before)
		}
	}
	return n
}

// pair looks up what the part at a place and the one after it are together.
func (m *merger) pair(piece []byte, at uint32) {
	part := &m.parts[at]
	part.pair = noRank
	if part.after == uint32(len(piece)) {
		return
	}
	part.pair = m.ranks.of(piece[at:m.parts[part.after].after])
	if part.pair != noRank {
		m.push(uint64(part.pair)<<32 | uint64(at))
	}
}

// push adds an entry to the heap.
func (m *merger) push(entry uint64) {
	m.queue = append(m.queue, entry)
	q, i := m.queue, len(m.queue)-1
	for i > 0 {
		up := (i - 1) / 2
		if q[up] <= entry {
			break
		}
		q[i], i = q[up], up
	}
	q[i] = entry
}

// pop takes the lowest entry off the heap, which is not empty.
func (m *merger) pop() uint64 {
	q := m.queue
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	m.queue = q
	for i := 0; len(q) > 0; {
		down := 2*i + 1
		if down+1 < len(q) && q[down+1] < q[down] {
			down++
		}
		if down >= len(q) || q[down] >= last {
			q[i] = last
			break
		}
		q[i], i = q[down], down
	}
	return top
}
