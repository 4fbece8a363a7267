package workers

import (
	"context"
	"slices"
	"time"
)

const (
	// lookEvery is how far apart the looks at a busy worker's load are. An engine
	// ends about as many requests in a second as a few places in its queue; its
	// metrics cost it a few milliseconds.
	lookEvery = time.Second
	// looksInTime is how many looks there are before a load is too old: two may
	// fail, or be late, before the third.
	looksInTime = 3
	// looksAtRest is the same for a worker that has nothing to do: the next request
	// finds a load that counts.
	looksAtRest = 2
	// lookSoonest is the least between two looks, however short a load counts.
	lookSoonest = 100 * time.Millisecond
)

// lookInterval is how far apart the looks at the load of a busy worker are, for
// a load that counts for so long.
func lookInterval(staleAfter time.Duration) time.Duration {
	return max(lookSoonest, min(lookEvery, staleAfter/looksInTime))
}

// hasMetrics tells whether asking the worker for its load makes sense now.
func (c *checker) hasMetrics() bool {
	engine := c.w.Spec().Engine
	// Hosted endpoints and Ollama have no metrics.
	return engine != "openai" && engine != "ollama" && !time.Now().Before(c.silent)
}

// next is when the worker is next asked for anything: the load only while its
// health is good, because a failing worker is not asked for more.
func (c *checker) next() time.Time {
	if c.staleAfter() <= 0 || c.tally.goods == 0 || !c.hasMetrics() {
		return c.due
	}
	if c.look.Before(c.due) {
		return c.look
	}
	return c.due
}

// lookAtLoad reads the load of a busy worker between two health checks. Busy is a
// worker to which something was sent since the last look, or which then reported
// work, possibly for another gateway. The load of an idle worker is read before it
// is too old. A look ends before the next check, so that it delays none.
func (c *checker) lookAtLoad(ctx context.Context) {
	if slices.ContainsFunc(c.all, (*Worker).busy) || time.Since(c.scraped) >= c.staleAfter()/looksAtRest {
		c.scrape(ctx, min(c.health.Timeout, time.Until(c.due)))
		c.suspend()
		c.publish()
	}
}

// lookAgain sets the time of the next look.
func (c *checker) lookAgain() {
	c.look = time.Now().Add(jittered(lookInterval(c.staleAfter()), c.options.Rand()))
}

// staleAfter returns how old the load may be to count for every worker; 0 if it
// counts for none.
func (c *checker) staleAfter() (least time.Duration) {
	for _, w := range c.all {
		if d := w.staleAfter(); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// staleAfter returns how old the worker's load may be to count.
func (w *Worker) staleAfter() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec.StaleAfter
}

// busy tells whether the worker has something to do, as far as is known.
func (w *Worker) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.Load() || w.status.Waiting > 0 || w.status.Running > 0
}
