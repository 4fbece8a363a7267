package workers

import (
	"context"
	"errors"
	"syscall"

	"tierway/http1"
)

// Sender performs HTTP exchanges with a worker. It is safe for concurrent use.
type Sender interface {
	// Send writes the request and returns when it has read the answer's header and the request body
	// is sent or no longer needed. Cancelling ctx before Response.Body is closed ends the exchange
	// and its connection at once. An error is a *http1.SendError.
	Send(ctx context.Context, r *http1.Request) (*http1.Response, error)
	// Close closes idle connections; exchanges in flight continue to their end.
	Close()
}

// OutOfResources reports whether err means that this process or its system has no file descriptor
// or memory for a socket. Such an error is no fault of the worker.
func OutOfResources(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
