package proxy

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// retryBudget limits retries to a share of the requests plus a constant rate, so that retries do not
// overload failing workers. Linkerd and Finagle limit retries the same way. It is safe for concurrent use.
type retryBudget struct {
	share  atomic.Int64 // of one request, in parts of a retry
	tokens atomic.Int64 // saved parts of retries

	mu sync.Mutex // guards at
	at time.Time  // time until which the constant rate is credited
}

const (
	// retryTrickle is the number of retries per second that are always allowed, so that a gateway with
	// few requests can retry all of them. It is Linkerd's default.
	retryTrickle = 10
	// retryParts are the parts of a retry: the smallest credit.
	retryParts = 1_000_000
	// retryCap is the largest number of saved retries: ten seconds of the trickle, Linkerd's window.
	// A new gateway starts with this number.
	retryCap = 10 * retryTrickle
)

// newRetryBudget returns a full budget. Its share is 0 until configure.
func newRetryBudget() *retryBudget {
	b := &retryBudget{}
	b.tokens.Store(retryCap * retryParts)
	return b
}

// configure sets the share. Saved retries stay.
func (b *retryBudget) configure(share float64) { b.share.Store(int64(math.Round(share * retryParts))) }

// creditRequest credits one first attempt. While the budget is full, requests share no write.
func (b *retryBudget) creditRequest() { b.credit(b.share.Load()) }

// credit adds parts up to retryCap retries.
func (b *retryBudget) credit(parts int64) {
	const full = retryCap * retryParts
	for {
		saved := b.tokens.Load()
		if saved == full || parts == 0 || b.tokens.CompareAndSwap(saved, min(full, saved+parts)) {
			return
		}
	}
}

// spendRetry spends one retry at the given time. It returns false when none is left.
func (b *retryBudget) spendRetry(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.After(b.at) {
		if !b.at.IsZero() {
			b.credit(int64(min(now.Sub(b.at).Seconds()*retryTrickle, retryCap) * retryParts))
		}
		b.at = now
	}
	if b.tokens.Load() < retryParts {
		return false
	}
	b.tokens.Add(-retryParts) // only credits happen meanwhile
	return true
}
