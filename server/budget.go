package server

import (
	"sync"
	"time"
)

// retryBudget bounds retries to a share of the requests plus a trickle, so
// that a failing fleet is not finished off by its own retries. Linkerd and
// Finagle bound them the same way.
type retryBudget struct {
	mu     sync.Mutex
	share  float64
	tokens float64
	at     time.Time
}

const (
	retryTrickle = 3   // retries a second whatever the traffic: a quiet gateway may retry too
	retryCap     = 100 // retries that a quiet time may save up: one burst, not an avalanche
)

func newRetryBudget() *retryBudget { return &retryBudget{tokens: retryTrickle} }

// configure sets the share; what was saved up stays.
func (b *retryBudget) configure(share float64) {
	b.mu.Lock()
	b.share = share
	b.mu.Unlock()
}

// request credits one first attempt.
func (b *retryBudget) request() {
	b.mu.Lock()
	b.tokens = min(retryCap, b.tokens+b.share)
	b.mu.Unlock()
}

// take asks for one retry at the given time.
func (b *retryBudget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() && now.After(b.at) {
		b.tokens = min(retryCap, b.tokens+retryTrickle*now.Sub(b.at).Seconds())
	}
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
