package server

import (
	"errors"
	"log/slog"
	"net"

	"tierway/workers"
)

// acceptor is a listener that reports the connections which it could not accept.
// net/http only logs them for debugging, and tries again.
type acceptor struct {
	net.Listener
	plane string
	log   *slog.Logger
	// exhausted counts a connection that was not made because no descriptor is free.
	exhausted func(operation string, err error)
}

// Accept is part of net.Listener.
func (l acceptor) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	switch {
	case err == nil, errors.Is(err, net.ErrClosed):
	case workers.OutOfResources(err):
		l.exhausted("accept", err)
	default:
		l.log.Warn("accepting a connection failed", "plane", l.plane, "cause", err.Error())
	}
	return c, err
}
