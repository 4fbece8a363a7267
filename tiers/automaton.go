package tiers

import "slices"

// literalBytes is what of a literal is looked for. Longer ones are hardly rarer,
// and their states cost memory: about 250 bytes each.
const literalBytes = 12

// automaton finds literals in one pass over a text, by Aho and Corasick's
// construction: one look into a table for each byte, however many literals
// there are. It is immutable.
type automaton struct {
	class [256]uint8 // of a byte, without regard to ASCII case
	width uint32     // number of classes
	next  []uint32   // by state plus class; a state is a multiple of width, plus loud if it ends a literal
	ends  [][]int32  // by state / width: whose literals end there
}

// loud marks a state that ends a literal.
const accepting = 1 << 31

// literal is a text to be found for its owner.
type literal struct {
	text  string // folded as in literals, not empty
	owner int32
}

// newAutomaton compiles literals.
func newAutomaton(all []literal) *automaton {
	a := &automaton{width: 1} // class 0 is all bytes that are in no literal
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

// trie makes the tree of all literals: its edges, 0 where there is none, to numbers of
// states, and whose literals end in each state.
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

// link fills in where each state goes on a byte that does not continue its
// literal: to the longest end of it that begins another. Then it turns the numbers of
// states into states.
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

// overlap is how far the halves of a text reach into each other, so that every literal
// is whole in one of them.
const overlap = literalBytes

// find tells s of every literal in text: whose it is and where it ends, in
// ascending order within each half of the text. A byte's state waits for the one
// before it, and the processor does not for two halves at once, which takes half
// the time.
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

// rest goes on from i to end in one half.
func (a *automaton) scanRest(text []byte, i, end int, state uint32, half int, s *search) {
	for ; i < end; i++ {
		if state = a.next[state+uint32(a.class[text[i]])]; state >= accepting {
			state = a.reportHits(state, text, i+1, half, s)
		}
	}
}

// tell tells s of the literals that a loud state ends, and returns the state without its mark.
func (a *automaton) reportHits(state uint32, text []byte, end, half int, s *search) uint32 {
	state -= accepting
	for _, owner := range a.ends[state/a.width] {
		s.addWindow(owner, half, text, end)
	}
	return state
}
