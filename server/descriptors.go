package server

import (
	"errors"
	"log/slog"
	"net"

	"tierway/workers"
)

// acceptor is a listener that reports failures to accept a connection. net/http only logs them at
// debug level and retries.
type acceptor struct {
	net.Listener
	plane string
	log   *slog.Logger
	// exhausted counts a failure that comes from a lack of file descriptors or memory.
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
