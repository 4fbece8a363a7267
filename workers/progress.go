package workers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"
)

// Suspension is the reason why an engine with a healthy server runs no requests. It is empty for an
// engine that runs.
type Suspension string

// The suspensions that vLLM reports.
const (
	Asleep Suspension = "asleep" // POST /sleep: the weights are offloaded or discarded
	Paused Suspension = "paused" // POST /pause: the scheduler is stopped
)

// pathPaused exists in vLLM's development mode only.
const pathPaused = "/is_paused"

// stepCounters are the counters that vLLM increments with each step that
// generates tokens. Other engines increment theirs when a request ends.
type stepCounters struct {
	prompt, generated, iterations float64
	found                         bool // the metrics contain generated
}

// progress detects stalls from successive readings of an engine's metrics.
type progress struct {
	last  load
	since time.Time // time of the first reading equal to last; zero before the first reading
}

// steppedAt returns when a reading last differed from the one before, or the zero time for an engine without step
// counters.
func (p *progress) steppedAt() time.Time {
	if !p.last.steps.found {
		return time.Time{}
	}
	return p.since
}

// observe compares a reading with the last one. It returns the time since when no value has changed
// although requests run, or the zero time if there is no stall. Cache usage counts as progress,
// because it grows during a prefill of many steps.
func (p *progress) observe(l load, at time.Time) (stalled time.Time) {
	if p.since.IsZero() || l != p.last {
		p.last, p.since = l, at
		return time.Time{}
	}
	if l.running == 0 || !l.steps.found {
		return time.Time{}
	}
	return p.since
}

// readPaused reads from a vLLM engine whether it is paused. If the engine lacks the path, readPaused
// sends no more requests until the worker has been down.
func (c *checker) readPaused(ctx context.Context) {
	if c.noPausedPath || c.w.Status().Engine != "vllm" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	code, answer, err := c.readPath(ctx, pathPaused, maxHealthBody)
	if err != nil || code >= 500 {
		return // the next health check finds the reason
	}
	var body struct {
		Paused *bool `json:"is_paused"`
	}
	c.noPausedPath = code != http.StatusOK || json.Unmarshal(answer, &body) != nil || body.Paused == nil
	c.paused = !c.noPausedPath && *body.Paused
}

// storeSuspension stores the engine's suspension in the status and logs a change.
func (c *checker) storeSuspension() {
	var now Suspension
	switch {
	case c.asleep:
		now = Asleep
	case c.paused:
		now = Paused
	}
	was := c.w.Status().Suspended
	if now == was {
		return
	}
	c.update(func(s *Status) { s.Suspended = now })
	if now == "" {
		c.logWorkers(slog.LevelInfo, "engine runs again", slog.String("was", string(was)))
		return
	}
	c.logWorkers(slog.LevelWarn, "engine runs no requests", slog.String("state", string(now)))
}
