package workers

import (
	"context"
	"errors"
	"syscall"

	"tierway/http1"
)

// Sender carries one HTTP exchange to a worker. It is safe for concurrent use.
type Sender interface {
	// Send writes the request and returns when the answer's header has been
	// read and no more of the body can be of use. Cancelling ctx at any time before Response.Body is closed ends the
	// exchange and its connection at once. An error is a *http1.SendError.
	Send(ctx context.Context, r *http1.Request) (*http1.Response, error)
	// Close drops idle connections; exchanges under way go on to their end.
	Close()
}

// OutOfResources reports whether err says that this process or its system has no
// file descriptor or memory left for a socket. It says nothing about the worker.
func OutOfResources(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
