package spool

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// RingConfig describes a Ring.
type RingConfig[T any] struct {
	// Consume receives the values in batches, in the order of Add. It must not keep the slice, wait, or call the Ring.
	// Calls do not overlap.
	Consume func(batch []T)
	Size    int           // values that may wait, at least 2
	Batch   int           // maximum of values in one batch
	Delay   time.Duration // time for which Run lets a value wait for others, unless half of the ring is full
}

// Ring passes values from producers to one consumer. It loses none: a producer that finds it full passes a batch on
// itself. Producers take no lock otherwise, so they do not wait for each other. It is safe for concurrent use.
type Ring[T any] struct {
	config RingConfig[T]
	slots  []ringSlot[T] // value n is in slot n modulo their number
	some   chan struct{} // holds one if a value waits
	half   chan struct{} // holds one if half of the slots have been filled
	next   atomic.Int64  // number of the next value

	turn  sync.Mutex // guards the rest, and is held during Consume
	first int64      // number of the first value that was not consumed
	batch []T
}

// ringSlot holds one value. Its turn is n if value n may be written into it, and n+1 once it has been.
type ringSlot[T any] struct {
	turn  atomic.Int64
	value T
}

// NewRing returns an empty Ring.
func NewRing[T any](c RingConfig[T]) *Ring[T] {
	r := &Ring[T]{config: c, slots: make([]ringSlot[T], c.Size), some: make(chan struct{}, 1),
		half: make(chan struct{}, 1), batch: make([]T, 0, c.Batch)}
	for i := range r.slots {
		r.slots[i].turn.Store(int64(i))
	}
	return r
}

// Add adds a value, which must not change afterwards.
func (r *Ring[T]) Add(v T) {
	for {
		n := r.next.Load()
		slot := r.slot(n)
		turn := slot.turn.Load()
		if turn == n && r.next.CompareAndSwap(n, n+1) {
			slot.value = v
			slot.turn.Store(n + 1)
			signal(r.some)
			if (n+1)%int64(len(r.slots)/2) == 0 {
				signal(r.half)
			}
			return
		}
		if turn < n { // the slot has the value of the previous round
			r.makeRoom()
		}
	}
}

// makeRoom passes a batch on, unless another goroutine has done so meanwhile.
func (r *Ring[T]) makeRoom() {
	r.turn.Lock()
	defer r.turn.Unlock()
	n := r.next.Load()
	if r.slot(n).turn.Load() >= n {
		return
	}
	if !r.takeBatch() {
		runtime.Gosched() // a producer has the first number, and will write the value next
		return
	}
	r.config.Consume(r.batch)
	clear(r.batch)
}

func (r *Ring[T]) slot(n int64) *ringSlot[T] { return &r.slots[n%int64(len(r.slots))] }

// Run passes values on until ctx ends, and then those that remain.
func (r *Ring[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.some:
			gather(r.config.Delay, r.half, ctx.Done())
			r.Flush()
		}
	}
	r.Flush()
}

// Flush returns when all values that were added before the call are consumed.
func (r *Ring[T]) Flush() {
	r.turn.Lock()
	defer r.turn.Unlock()
	for end := r.next.Load(); r.first < end; {
		if !r.takeBatch() {
			runtime.Gosched() // a producer has its number, and will write the value next
			continue
		}
		r.config.Consume(r.batch)
		clear(r.batch)
	}
}

// takeBatch moves the first values to the batch, and reports whether there were any.
func (r *Ring[T]) takeBatch() bool {
	r.batch = r.batch[:0]
	for len(r.batch) < r.config.Batch {
		slot := r.slot(r.first)
		if slot.turn.Load() != r.first+1 {
			break
		}
		r.batch = append(r.batch, slot.value)
		var none T
		slot.value = none
		slot.turn.Store(r.first + int64(len(r.slots)))
		r.first++
	}
	return len(r.batch) > 0
}
