package server

import (
	"errors"
	"net"
	"sync"
	"time"

	"tierway/workers"
)

// acceptor is a listener that reports the connections which it could not accept.
// net/http only logs them for debugging, and tries again.
type acceptor struct {
	net.Listener
	plane string
	s     *Server
}

// Accept is part of net.Listener.
func (l acceptor) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	switch {
	case err == nil, errors.Is(err, net.ErrClosed):
	case workers.OutOfResources(err):
		l.s.exhausted("accept", err)
	default:
		l.s.log.Warn("a connection was not accepted", "plane", l.plane, "cause", err.Error())
	}
	return c, err
}

// exhausted counts and logs a connection that was not made, from a client (accept) or
// to a worker (connect), because the gateway has no file descriptor free.
func (s *Server) exhausted(operation string, err error) {
	s.metrics.Exhausted(operation)
	if more, due := s.exhaustions.due(time.Now()); due {
		s.log.Warn("a connection was not made: no file descriptor is free", "operation", operation,
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
