package workers

import (
	"context"
	"slices"
	"time"

	"tierway/openai"
)

const (
	// loadCheckInterval is the time between load checks of a busy worker. In a second an engine
	// ends about as many requests as a few places in its queue; reading its metrics costs it a few
	// milliseconds.
	loadCheckInterval = time.Second
	// loadChecksPerAge is the number of load checks before a load is stale: two may fail or be late
	// before the third.
	loadChecksPerAge = 3
	// idleLoadChecksPerAge is the number of checks of an idle worker in the same time, so that its
	// next request finds a load that is not stale.
	idleLoadChecksPerAge = 2
	// minLoadCheckInterval is the minimum time between two load checks for every stale_after.
	minLoadCheckInterval = 100 * time.Millisecond
)

// loadInterval returns the time between load checks of a busy worker for a given stale_after.
func loadInterval(staleAfter time.Duration) time.Duration {
	return max(minLoadCheckInterval, min(loadCheckInterval, staleAfter/loadChecksPerAge))
}

// hasMetrics reports whether GET /metrics may return the load now.
func (c *checker) hasMetrics() bool {
	return openai.Engine(c.w.Spec().Engine).HasMetrics() && !time.Now().Before(c.noMetricsUntil)
}

// nextCheck returns the time of the next check of any kind. Load checks run only while the worker is
// healthy, because a failing worker must not get more requests.
func (c *checker) nextCheck() time.Time {
	if c.staleAfter() <= 0 || c.tally.passes == 0 || !c.hasMetrics() {
		return c.due
	}
	if c.nextLoad.Before(c.due) {
		return c.nextLoad
	}
	return c.due
}

// checkLoad reads the load of a busy worker between two health checks. A worker is busy if requests
// were sent to it since the last load check, or if that check reported work, possibly for another
// gateway. The load of an idle worker is read before it is stale. A load check ends before the next
// health check is due.
func (c *checker) checkLoad(ctx context.Context) {
	if slices.ContainsFunc(c.all, (*Worker).busy) || time.Since(c.scraped) >= c.staleAfter()/idleLoadChecksPerAge {
		c.scrapeLoad(ctx, min(c.health.Timeout, time.Until(c.due)))
		c.storeSuspension()
		c.publish()
	}
}

// scheduleLoadCheck sets the time of the next load check.
func (c *checker) scheduleLoadCheck() {
	c.nextLoad = time.Now().Add(jittered(loadInterval(c.staleAfter()), c.options.Rand()))
}

// staleAfter returns the lowest stale_after of the checked workers; 0 if none uses the load.
func (c *checker) staleAfter() (least time.Duration) {
	for _, w := range c.all {
		if d := w.staleAfter(); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// staleAfter returns the age at which the worker's load is stale.
func (w *Worker) staleAfter() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spec.StaleAfter
}

// busy reports whether the worker has work, as far as the gateway knows.
func (w *Worker) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent.Load() || w.status.Waiting > 0 || w.status.Running > 0
}
