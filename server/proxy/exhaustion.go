package proxy

import (
	"sync"
	"time"
)

// Exhausted counts and logs a connection that failed because the gateway has no free file
// descriptor. operation is accept (from a client) or connect (to a worker).
func (px *Proxy) Exhausted(operation string, err error) {
	px.metrics.Exhausted(operation)
	if omitted, ok := px.exhaustions.allow(time.Now()); ok {
		px.log.Warn("a connection failed: no file descriptor is free", "operation", operation,
			"cause", err.Error(), "more", omitted,
			"way_out", "raise the limit of open files (ulimit -n, LimitNOFILE), or add a gateway")
	}
}

// logLimiter limits a log line to one per minute. Its zero value is ready for use.
type logLimiter struct {
	mu      sync.Mutex
	last    time.Time
	omitted int // lines since last
}

// allow reports whether a line may be logged now, and how many lines were omitted before it.
func (l *logLimiter) allow(now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.last.IsZero() && now.Sub(l.last) < time.Minute {
		l.omitted++
		return 0, false
	}
	omitted, l.omitted, l.last = l.omitted, 0, now
	return omitted, true
}
