package sim

import "time"

// event is a function that is called at a moment of virtual time.
type event struct {
	at  time.Duration
	seq uint64 // order of planning: at the same moment, the event planned first is called first
	do  func()
}

func (e *event) before(other *event) bool {
	return e.at < other.at || e.at == other.at && e.seq < other.seq
}

// events is a binary heap, the next event first.
type events struct {
	heap []event
	seq  uint64
}

func (h *events) plan(at time.Duration, do func()) {
	h.seq++
	h.heap = append(h.heap, event{at, h.seq, do})
	i := len(h.heap) - 1
	for up := (i - 1) / 2; i > 0 && h.heap[i].before(&h.heap[up]); up = (i - 1) / 2 {
		h.heap[i], h.heap[up] = h.heap[up], h.heap[i]
		i = up
	}
}

// next removes and returns the first event. There must be one.
func (h *events) next() event {
	first, last := h.heap[0], len(h.heap)-1
	h.heap[0] = h.heap[last]
	h.heap[last] = event{} // drop its references
	h.heap = h.heap[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if h.heap[down].before(&h.heap[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
		i = least
	}
}
