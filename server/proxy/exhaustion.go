package proxy

import (
	"sync"
	"time"
)

// Exhausted counts and logs a connection that was not made, from a client (accept) or
// to a worker (connect), because the gateway has no file descriptor free.
func (px *Proxy) Exhausted(operation string, err error) {
	px.metrics.Exhausted(operation)
	if more, due := px.exhaustions.due(time.Now()); due {
		px.log.Warn("a connection was not made: no file descriptor is free", "operation", operation,
			"cause", err.Error(), "more", more,
			"way_out", "raise the limit of open files (ulimit -n, LimitNOFILE), or add a gateway")
	}
}

// seldom lets one line of a kind through each minute. Its zero value is ready.
type seldom struct {
	mu   sync.Mutex
	last time.Time
	more int // that were not logged since
}

// due reports whether the next line may be logged, and how many were left out
// before it.
func (s *seldom) due(now time.Time) (more int, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < time.Minute {
		s.more++
		return 0, false
	}
	more, s.more, s.last = s.more, 0, now
	return more, true
}
