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

// read evaluates one reading. It returns the time since when no value has changed although requests
// run, or the zero time if there is no stall. Cache usage counts as progress, because it grows
// during a prefill of many steps.
func (p *progress) read(l load, at time.Time) (stalled time.Time) {
	if p.since.IsZero() || l != p.last {
		p.last, p.since = l, at
		return time.Time{}
	}
	if l.running == 0 || !l.steps.found {
		return time.Time{}
	}
	return p.since
}

// askPaused asks a vLLM engine whether it is paused. An engine without the path is not asked again
// until it has been down.
func (c *checker) askPaused(ctx context.Context) {
	if c.neverPaused || c.w.Status().Engine != "vllm" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	code, said, err := c.read(ctx, pathPaused, maxHealthBody)
	if err != nil || code >= 500 {
		return // the next health check finds the reason
	}
	var body struct {
		Paused *bool `json:"is_paused"`
	}
	c.neverPaused = code != http.StatusOK || json.Unmarshal(said, &body) != nil || body.Paused == nil
	c.paused = !c.neverPaused && *body.Paused
}

// suspend stores whether the engine runs requests, and logs a change.
func (c *checker) suspend() {
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
		c.log(slog.LevelInfo, "engine runs again", slog.String("was", string(was)))
		return
	}
	c.log(slog.LevelWarn, "engine runs no requests", slog.String("state", string(now)))
}
