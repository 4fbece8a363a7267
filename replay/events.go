package replay

import (
	"cmp"
	"container/heap"
	"time"
)

// events are functions to be called at moments of recorded time, the next one first.
type events struct {
	heap eventHeap
	seq  uint64
}

// event is called before the events of the same moment that were planned after it.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

func (e *events) plan(at time.Duration, do func()) {
	e.seq++
	heap.Push(&e.heap, event{at, e.seq, do})
}

// next calls the first event; there must be one.
func (e *events) next() { heap.Pop(&e.heap).(event).do() }

// until calls all events up to a moment.
func (e *events) until(at time.Duration) {
	for len(e.heap) > 0 && e.heap[0].at <= at {
		e.next()
	}
}

// eventHeap implements heap.Interface.
type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].seq, h[j].seq)) < 0
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = event{} // releases what it holds
	*h = (*h)[:last]
	return e
}
