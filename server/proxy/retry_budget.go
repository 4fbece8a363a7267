package proxy

import (
	"sync"
	"time"
)

// retryBudget limits retries to a share of the requests plus a constant rate, so that retries do not
// overload failing workers. Linkerd and Finagle limit retries the same way.
type retryBudget struct {
	mu     sync.Mutex
	share  float64
	tokens float64
	at     time.Time // time until which the constant rate is credited
}

const (
	// retryTrickle is the number of retries per second that are always allowed, so that a gateway with
	// few requests can retry all of them. It is Linkerd's default.
	retryTrickle = 10
	// retryCap is the largest number of saved retries: ten seconds of the trickle, Linkerd's window.
	// A new gateway starts with this number.
	retryCap = 10 * retryTrickle
)

// newRetryBudget returns a full budget. Its share is 0 until configure.
func newRetryBudget() *retryBudget { return &retryBudget{tokens: retryCap} }

// configure sets the share. Saved retries stay.
func (b *retryBudget) configure(share float64) {
	b.mu.Lock()
	b.share = share
	b.mu.Unlock()
}

// creditRequest credits one first attempt.
func (b *retryBudget) creditRequest() {
	b.mu.Lock()
	b.tokens = min(retryCap, b.tokens+b.share)
	b.mu.Unlock()
}

// spendRetry spends one retry at the given time. It returns false when none is left.
func (b *retryBudget) spendRetry(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() && now.After(b.at) {
		b.tokens = min(retryCap, b.tokens+retryTrickle*now.Sub(b.at).Seconds())
	}
	if now.After(b.at) {
		b.at = now
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
