// Package spool writes in the background, so that no producer ever waits for a disk,
// a database, a terminal or the reader of a pipe. What waits is bounded; what does
// not fit is dropped and counted. A Spool passes values in batches, a Writer passes
// lines of text.
package spool

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Config describes a Spool.
type Config[T any] struct {
	// Write writes a batch and returns how many of its values can never be written.
	// After an error the whole batch waits and is written again, so Write has to
	// recognise values that it has written before. It must not keep the slice.
	// Calls do not overlap.
	Write func(ctx context.Context, batch []T) (lost int, err error)
	Max   int           // values that wait; when there are more, the oldest is dropped
	Batch int           // values in one batch
	Delay time.Duration // how long a value waits for others, unless a batch is full
}

const (
	// After an error the batch is written again after the first pause, then after
	// twice that, up to the last: short enough that values go out within two seconds
	// of the end of an outage.
	firstPause = 100 * time.Millisecond
	lastPause  = 800 * time.Millisecond
	// lastFlush bounds how long values are written after the end of Run's context.
	lastFlush = 5 * time.Second
	// chunk is how many values one allocation holds. A list of chunks grows without
	// copying a value, so that no producer waits for the copy of a long queue.
	chunk = 64
)

// Spool passes values from producers, which never wait, to Config.Write. It is safe
// for concurrent use.
type Spool[T any] struct {
	config Config[T]
	some   chan struct{} // holds one when a value waits
	full   chan struct{} // holds one when a batch waits
	turn   chan struct{} // holds one; the goroutine that has taken it may write
	batch  []T           // of the goroutine that may write

	mu sync.Mutex // guards the rest
	// Value n of all that were ever added is at n modulo chunk in its chunk; the first
	// chunk has the oldest that waits.
	chunks  []*[chunk]T
	first   int64 // the oldest value that waits
	next    int64
	writing int64 // values below it are being written
	doomed  int64 // values that were dropped while they were being written
	written int64
	dropped int64
	err     error
}

// Stats is what a Spool has done so far.
type Stats struct {
	Waiting int
	Written int64
	Dropped int64 // values that are lost: because too many waited, or because Write said so
	Err     error // of the last batch; nil if it was written
}

// New returns an empty Spool. Values are written by Run and Flush.
func New[T any](c Config[T]) *Spool[T] {
	s := &Spool[T]{config: c, some: make(chan struct{}, 1), full: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	signal(s.turn)
	return s
}

// Add takes a value. It never waits.
func (s *Spool[T]) Add(v T) {
	s.mu.Lock()
	if s.next-s.first == int64(s.config.Max) {
		s.dropOldestLocked()
	}
	if s.next/chunk-s.first/chunk == int64(len(s.chunks)) {
		s.chunks = append(s.chunks, new([chunk]T))
	}
	*s.atLocked(s.next) = v
	s.next++
	full := s.next-max(s.first, s.writing) >= int64(s.config.Batch) && s.err == nil
	s.mu.Unlock()
	signal(s.some)
	if full {
		signal(s.full)
	}
}

// atLocked returns the place of a value that waits.
func (s *Spool[T]) atLocked(n int64) *T { return &s.chunks[n/chunk-s.first/chunk][n%chunk] }

// dropOldestLocked makes room for a value.
func (s *Spool[T]) dropOldestLocked() {
	if s.first < s.writing {
		s.doomed++ // whether it is lost is known when the write has ended
	} else {
		s.dropped++
	}
	s.forgetLocked(s.first + 1)
}

// forgetLocked removes the values below n.
func (s *Spool[T]) forgetLocked(n int64) {
	var none T
	for s.first < n {
		*s.atLocked(s.first) = none
		if s.first++; s.first%chunk == 0 {
			s.chunks = slices.Delete(s.chunks, 0, 1)
		}
	}
}

// Stats returns what the Spool has done so far.
func (s *Spool[T]) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Waiting: int(s.next - s.first), Written: s.written, Dropped: s.dropped, Err: s.err}
}

// Run writes values as they come. When ctx has ended it writes what is left, for at
// most five seconds, and returns.
func (s *Spool[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.some:
			s.gather(ctx)
			s.insist(ctx, lastPause)
		}
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer done()
	s.insist(last, firstPause)
}

// gather waits for more values, at most for the delay.
func (s *Spool[T]) gather(ctx context.Context) {
	if s.config.Delay <= 0 {
		return
	}
	timer := time.NewTimer(s.config.Delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.full:
	case <-timer.C:
	}
}

// insist writes what waits, again and again until it is written or ctx ends.
func (s *Spool[T]) insist(ctx context.Context, longest time.Duration) {
	for pause := firstPause; s.Flush(ctx) != nil; pause = min(2*pause, longest) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// Flush writes the values that wait when it is called. It returns the error of Write
// or of ctx; what is not written waits.
func (s *Spool[T]) Flush(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("writing what waits: %w", ctx.Err())
	case <-s.turn:
	}
	defer signal(s.turn)
	// Values that come meanwhile wait for their own turn: else each would be a batch
	// of its own.
	s.mu.Lock()
	until := s.next
	s.mu.Unlock()
	for s.take(until) {
		lost, err := s.config.Write(ctx, s.batch)
		if s.settleBatch(int64(lost), err); err != nil {
			return err
		}
	}
	return nil
}

// take puts the oldest values below until into the batch. They stay where they are
// until they are written. false: there are none.
func (s *Spool[T]) take(until int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = min(until, s.first+int64(s.config.Batch))
	s.batch = s.batch[:0] // after a panic of Write it is not empty
	for i := s.first; i < s.writing; i++ {
		s.batch = append(s.batch, *s.atLocked(i))
	}
	return len(s.batch) > 0
}

// settleBatch counts what has become of the batch.
func (s *Spool[T]) settleBatch(lost int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		// Values that made room while they were being written are written all the same.
		s.forgetLocked(s.writing)
		s.written += int64(len(s.batch)) - lost
		s.dropped += lost
	} else {
		s.dropped += s.doomed
	}
	s.doomed, s.writing, s.err = 0, 0, err
	clear(s.batch)
	s.batch = s.batch[:0]
}
