package tiers

import "slices"

// literalBytes is how many bytes of a literal are searched. Longer ones are hardly rarer, and
// their states cost about 250 bytes of memory each.
const literalBytes = 12

// automaton finds literals in one pass over a text (Aho and Corasick): one table lookup per
// byte, however many literals there are. It is immutable.
type automaton struct {
	class [256]uint8 // of a byte, ASCII case folded
	width uint32     // number of classes
	// by state plus class; a state is a multiple of width, plus accepting if a literal ends in
	// it
	next []uint32
	ends [][]int32 // by state / width: the owners of the literals that end there
}

// accepting marks a state in which a literal ends.
const accepting = 1 << 31

// literal is a text to search for its owner.
type literal struct {
	text  string // folded as in literals, not empty
	owner int32
}

func newAutomaton(expressions []expression) *automaton {
	var all []literal
	for i, e := range expressions {
		for _, text := range e.needs {
			all = append(all, literal{text: text, owner: int32(i)})
		}
	}
	a := &automaton{width: 1} // class 0: all bytes that occur in no literal
	for _, l := range all {
		for i := range min(len(l.text), literalBytes) {
			if c := l.text[i]; a.class[c] == 0 {
				a.class[c] = uint8(a.width)
				a.width++
			}
		}
	}
	for c := 'A'; c <= 'Z'; c++ {
		a.class[c] = a.class[c+'a'-'A']
	}
	a.trie(all)
	a.link()
	return a
}

// trie builds the tree of all literals. Each state gets its edges (the number of the next state, 0
// for no edge) and the owners of the literals that end in it.
func (a *automaton) trie(all []literal) {
	a.next, a.ends = make([]uint32, a.width), make([][]int32, 1)
	for _, l := range all {
		s := uint32(0)
		for i := range min(len(l.text), literalBytes) {
			edge := s*a.width + uint32(a.class[l.text[i]])
			if a.next[edge] == 0 {
				a.next[edge] = uint32(len(a.ends))
				a.next, a.ends = append(a.next, make([]uint32, a.width)...), append(a.ends, nil)
			}
			s = a.next[edge]
		}
		a.ends[s] = append(a.ends[s], l.owner)
	}
}

// link sets the transitions of each state for bytes that do not continue its literal: to the
// longest suffix that starts another literal. It then turns the numbers of states into states.
func (a *automaton) link() {
	back, queue := make([]uint32, len(a.ends)), []uint32{0}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for c := range a.width {
			edge, other := s*a.width+c, uint32(0)
			if s > 0 {
				other = a.next[back[s]*a.width+c]
			}
			if to := a.next[edge]; to > 0 {
				back[to] = other
				a.ends[to] = append(a.ends[to], a.ends[other]...)
				queue = append(queue, to)
			} else {
				a.next[edge] = other
			}
		}
	}
	for i, s := range a.next {
		if a.next[i] = s * a.width; len(a.ends[s]) > 0 {
			a.next[i] |= accepting
		}
	}
	for s := range a.ends {
		slices.Sort(a.ends[s])
		a.ends[s] = slices.Compact(a.ends[s])
	}
}

// overlap is how far the halves of a text overlap, so that each literal is whole in one of
// them.
const overlap = literalBytes

// findLiterals reports each literal in text to s: its owner and its end, in ascending order
// within each half of the text. The next state depends on the previous one; two independent
// halves let the processor work on both, which takes half the time.
func (a *automaton) findLiterals(text []byte, s *search) {
	n := len(text)
	if n < 8*overlap {
		a.scanRest(text, 0, n, 0, 0, s)
		return
	}
	end := (n + overlap) / 2
	i, j := 0, n-end
	var p, q uint32
	next := a.next
	for i < end && j < n {
		p, q = next[p+uint32(a.class[text[i]])], next[q+uint32(a.class[text[j]])]
		i, j = i+1, j+1
		if p >= accepting {
			p = a.reportHits(p, text, i, 0, s)
		}
		if q >= accepting {
			q = a.reportHits(q, text, j, 1, s)
		}
	}
	a.scanRest(text, i, end, p, 0, s)
	a.scanRest(text, j, n, q, 1, s)
}

// scanRest continues from i to end in one half.
func (a *automaton) scanRest(text []byte, i, end int, state uint32, half int, s *search) {
	for ; i < end; i++ {
		if state = a.next[state+uint32(a.class[text[i]])]; state >= accepting {
			state = a.reportHits(state, text, i+1, half, s)
		}
	}
}

// reportHits reports the literals of an accepting state to s and returns the state without its
// mark.
func (a *automaton) reportHits(state uint32, text []byte, end, half int, s *search) uint32 {
	state -= accepting
	for _, owner := range a.ends[state/a.width] {
		s.addWindow(owner, half, text, end)
	}
	return state
}
