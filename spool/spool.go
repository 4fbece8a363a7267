// Package spool writes in the background, so that no producer waits for a disk, a database, a
// terminal or the reader of a pipe. The number of waiting values is bounded; values that do not fit
// are dropped and counted. A Spool passes values in batches, a Writer passes lines of text, and a File
// writes JSON lines. A Ring is in front of them: it takes values from every request without a lock, and loses none.
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
	// Write writes a batch and returns how many of its values can never be written. After an error
	// the whole batch is written again later, so Write must recognise values that it has already
	// written. It must not keep the slice. Calls do not overlap.
	Write func(ctx context.Context, batch []T) (lost int, err error)
	Max   int           // maximum of waiting values; beyond it the oldest is dropped
	Batch int           // values in one batch
	Delay time.Duration // time for which a value waits for others, unless a batch is full
}

const (
	// After an error the batch is written again after firstPause, then after twice as long each
	// time, up to lastPause. Values are therefore written within two seconds of the end of an
	// outage.
	firstPause = 100 * time.Millisecond
	lastPause  = 800 * time.Millisecond
	// lastFlush is the time limit for writing values after Run's context has ended.
	lastFlush = 5 * time.Second
)

// Spool passes values from producers, which never wait, to Config.Write. It is safe
// for concurrent use.
type Spool[T any] struct {
	config Config[T]
	some   chan struct{} // holds one if a value waits
	full   chan struct{} // holds one if a batch waits
	turn   chan struct{} // holds one; the goroutine that has taken it may write
	batch  []T           // used by the goroutine that may write

	mu      sync.Mutex // guards the rest
	waiting []T        // the oldest first
	writing int        // number of the first values that are being written
	doomed  int        // values that were dropped while being written
	written int64
	dropped int64
	err     error
}

// Stats is the state of a Spool.
type Stats struct {
	Waiting int
	Written int64
	Dropped int64 // values that are lost: too many waited, TryAdd refused them, or Write returned them as lost
	Err     error // of the last batch; nil if it was written
}

// New returns an empty Spool. Run and Flush write its values.
func New[T any](c Config[T]) *Spool[T] {
	s := &Spool[T]{config: c, some: make(chan struct{}, 1), full: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	signal(s.turn)
	return s
}

// Add adds a value. It never waits. If too many values wait, the oldest is dropped.
func (s *Spool[T]) Add(v T) {
	s.mu.Lock()
	if len(s.waiting) == s.config.Max {
		if s.writing > 0 {
			s.writing--
			s.doomed++ // the end of the write decides whether it is lost
		} else {
			s.dropped++
		}
		s.removeLocked(1)
	}
	s.appendAndUnlock(v)
}

// TryAdd adds all values, or refuses all of them if too many values wait. It never waits and drops no other value.
func (s *Spool[T]) TryAdd(values ...T) bool {
	s.mu.Lock()
	if len(s.waiting)+len(values) > s.config.Max {
		s.dropped += int64(len(values))
		s.mu.Unlock()
		return false
	}
	s.appendAndUnlock(values...)
	return true
}

// appendAndUnlock adds values, unlocks s and wakes Run.
func (s *Spool[T]) appendAndUnlock(values ...T) {
	s.waiting = append(s.waiting, values...)
	full := len(s.waiting)-s.writing >= s.config.Batch && s.err == nil
	s.mu.Unlock()
	signal(s.some)
	if full {
		signal(s.full)
	}
}

// removeLocked removes the oldest values.
func (s *Spool[T]) removeLocked(n int) {
	clear(s.waiting[:n])
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil // releases the memory of a burst
	}
}

// Stats returns the current state.
func (s *Spool[T]) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Waiting: len(s.waiting), Written: s.written, Dropped: s.dropped, Err: s.err}
}

// Waiting returns the values that are not written, the oldest first.
func (s *Spool[T]) Waiting() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.waiting)
}

// Run writes values as they arrive. When ctx has ended, it writes the remaining values for at most
// five seconds and returns.
func (s *Spool[T]) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.some:
			gather(s.config.Delay, s.full, ctx.Done())
			s.flushUntilDone(ctx, lastPause)
		}
	}
	last, done := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer done()
	s.flushUntilDone(last, firstPause)
}

// gather waits until full or end, but no longer than the delay.
func gather(delay time.Duration, full, end <-chan struct{}) {
	if delay <= 0 {
		return
	}
	select {
	case <-end:
	case <-full:
	case <-time.After(delay):
	}
}

// flushUntilDone writes the waiting values, and repeats failed writes until ctx ends.
func (s *Spool[T]) flushUntilDone(ctx context.Context, longest time.Duration) {
	for pause := firstPause; s.Flush(ctx) != nil; pause = min(2*pause, longest) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Flush writes the values that are waiting when it is called. It returns the error of Write or of
// ctx; values that are not written stay waiting.
func (s *Spool[T]) Flush(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("writing the waiting values: %w", ctx.Err())
	case <-s.turn:
	}
	defer signal(s.turn)
	// Values that arrive meanwhile wait for the next flush, so that they share a batch.
	for left := s.Stats().Waiting; s.takeBatch(left) > 0; {
		left -= len(s.batch)
		lost, err := s.config.Write(ctx, s.batch)
		if s.settleBatch(lost, err); err != nil {
			return err
		}
	}
	return nil
}

// takeBatch copies at most the given number of the oldest values into the batch and returns their
// number.
func (s *Spool[T]) takeBatch(limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = min(limit, len(s.waiting), s.config.Batch)
	s.batch = append(s.batch[:0], s.waiting[:s.writing]...)
	return s.writing
}

// settleBatch counts the values of the batch as written, lost or waiting again.
func (s *Spool[T]) settleBatch(lost int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil { // values that were dropped while being written are written too
		s.removeLocked(s.writing)
		s.written += int64(len(s.batch) - lost)
		s.dropped += int64(lost)
	} else {
		s.dropped += int64(s.doomed)
	}
	s.doomed, s.writing, s.err = 0, 0, err
	clear(s.batch)
}
