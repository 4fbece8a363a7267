package proxy

import (
	"sync"
	"time"
)

// Exhausted counts and logs a connection that failed because the gateway has no free file
// descriptor. operation is accept (from a client) or connect (to a worker).
func (px *Proxy) Exhausted(operation string, err error) {
	px.metrics.Exhausted(operation)
	if more, due := px.exhaustions.due(time.Now()); due {
		px.log.Warn("a connection failed: no file descriptor is free", "operation", operation,
			"cause", err.Error(), "more", more,
			"way_out", "raise the limit of open files (ulimit -n, LimitNOFILE), or add a gateway")
	}
}

// logLimiter limits a log line to one per minute. Its zero value is ready for use.
type logLimiter struct {
	mu   sync.Mutex
	last time.Time
	more int // lines omitted since then
}

// due reports whether a line may be logged now, and how many lines were omitted before it.
func (s *logLimiter) due(now time.Time) (more int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < time.Minute {
		s.more++
		return 0, false
	}
	more, s.more, s.last = s.more, 0, now
	return more, true
}
