package workers

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"tierway/workers/kvcache"
)

const (
	pathEventSources = "/kv_event_sources"
	// maxEventSources limits the answer in bytes: 300 for each rank.
	maxEventSources = 64 << 10
)

// readEventSources asks the engine once where it publishes the events of its KV cache, and again
// after a failed check, because another engine may have taken the address. It asks vLLM and
// engines of an unknown kind.
func (c *checker) readEventSources(ctx context.Context) {
	if c.askedForSources || !slices.ContainsFunc(c.all, (*Worker).discoversEvents) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.health.Timeout)
	defer cancel()
	code, body, err := c.readPath(ctx, pathEventSources, maxEventSources)
	if err != nil || code >= http.StatusInternalServerError {
		return // the next health check asks again
	}
	c.askedForSources = true
	var sources []kvcache.Announced
	if code == http.StatusOK {
		if sources, err = kvcache.ParseSources(body); err != nil {
			c.logWorkers(slog.LevelWarn, "KV events are not discovered", slog.String("cause", err.Error()))
		}
	}
	c.update(func(s *Status) { s.EventSources = sources })
}

// discoversEvents reports whether the worker's engine is to be asked for the sources of its events.
func (w *Worker) discoversEvents() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	engine := w.spec.Engine
	if engine == "" || engine == "auto" {
		engine = w.status.Engine
	}
	return w.spec.events().Discovers() && (engine == "" || engine == "vllm")
}
