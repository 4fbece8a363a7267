package engines

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turnstile admits a fixed number at once and queues the others: lowest priority first, then
// earliest arrival.
type turnstile struct {
	mu        sync.Mutex
	size      int
	inside    int
	maxInside int
	waiting   []*waiter // in the order of admission
}

// waiter is one queued caller.
type waiter struct {
	turn     chan struct{} // closed when the caller is admitted
	priority int64
}

func newTurnstile(size int) *turnstile { return &turnstile{size: size} }

// enter waits for admission or for ctx. After nil the caller must call leave.
func (t *turnstile) enter(ctx context.Context, priority int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.mu.Lock()
	if t.inside < t.size {
		t.inside++
		t.maxInside = max(t.maxInside, t.inside)
		t.mu.Unlock()
		return nil
	}
	w := &waiter{make(chan struct{}), priority}
	behind, _ := slices.BinarySearchFunc(t.waiting, priority, func(w *waiter, priority int64) int {
		if w.priority <= priority {
			return -1
		}
		return 1
	})
	t.waiting = slices.Insert(t.waiting, behind, w)
	t.mu.Unlock()

	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-w.turn: // admitted while leaving: the place goes to the next
		t.leaveLocked()
	default:
		t.waiting = slices.DeleteFunc(t.waiting, func(other *waiter) bool { return other == w })
	}
	return ctx.Err()
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaveLocked()
}

// leaveLocked passes the place to the next waiter, so that no newcomer takes it.
func (t *turnstile) leaveLocked() {
	if len(t.waiting) == 0 {
		t.inside--
		return
	}
	close(t.waiting[0].turn)
	t.waiting = slices.Delete(t.waiting, 0, 1)
}

// state returns how many are inside and waiting, and the maximum inside.
func (t *turnstile) state() (inside, waiting, maxInside int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.inside, len(t.waiting), t.maxInside
}

// pause waits d or until ctx ends. An engine without delays detects here that its client has left.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// prefillTime returns the time to read a prompt: uncached tokens ÷ Prefill, times a factor for the
// share of slots that decode meanwhile. Tokens that take no time slow nothing down.
func (e *Engine) prefillTime(uncached int) time.Duration {
	if e.c.Prefill <= 0 {
		return 0
	}
	share := 0.0
	if e.c.PerToken > 0 {
		share = float64(e.decoding.Load()) / float64(e.c.Slots)
	}
	return time.Duration(float64(uncached) / e.c.Prefill * (1 + share) * float64(time.Second))
}

// tokenTime returns the time of the next token: PerToken × (1 + load). load is the share of slots
// that decode besides this one, plus 1 while a prompt is being read, because prompts and tokens
// share the compute.
func (e *Engine) tokenTime() time.Duration {
	load := float64(e.decoding.Load()-1) / float64(e.c.Slots)
	if reading, _, _ := e.prefill.state(); reading > 0 {
		load++
	}
	return time.Duration(float64(e.c.PerToken) * (1 + load))
}
