package workers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
)

// Sender carries one HTTP exchange to a worker. It is safe for concurrent use.
type Sender interface {
	// Send writes the request and returns when the answer's header has been
	// read and no more of the body can be of use. Cancelling ctx at any time before Response.Body is closed ends the
	// exchange and its connection at once. An error is a *SendError.
	Send(ctx context.Context, r *Request) (*Response, error)
	// Close drops idle connections; exchanges under way go on to their end.
	Close()
}

// Request is what a Sender writes to a worker.
type Request struct {
	Method string
	Path   string      // absolute path with query, as the worker shall see it
	Header http.Header // canonical keys; Host, Content-Length and connection headers are the Sender's. A Worker adds its own to it
	Body   [][]byte    // the body in pieces, written one after the other; nil for none
	Fresh  bool        // never on a kept connection: for requests that must not be sent twice

	// Upload is a body that streams, in place of Body; nil for none. It is sent once
	// and on a connection of its own. An error of its Read ends the exchange. A worker
	// that answers with an error early may leave its rest unread; Read may be called
	// until it fails, or until the answer's Body is closed.
	Upload       io.Reader
	UploadLength int64 // of Upload; -1 when it is not known
}

// Response is the answer's header and its body as it arrives. The caller must
// close Body.
type Response struct {
	Status        int
	Header        http.Header
	ContentLength int64 // -1 when the worker did not say
	Body          io.ReadCloser
}

// Phase is how far an exchange had come when it failed.
type Phase uint8

// The phases of an exchange. In the first two the worker has seen nothing, so that
// any request may be sent to another one; the first says nothing about the worker.
const (
	PhasePrepare Phase = iota // the request cannot be written as HTTP; no connection was tried
	PhaseConnect              // no connection
	PhaseWrite                // the request was sent in part
	PhaseAwait                // the request was sent, no answer header came
	PhaseBody                 // the answer broke off
)

// OutOfResources reports whether err says that this process or its system has no
// file descriptor or memory left for a socket. It says nothing about the worker.
func OutOfResources(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// SendError tells why an exchange failed and how far it had come.
type SendError struct {
	Phase Phase
	Err   error
}

// Error says what was being done and the cause.
func (e *SendError) Error() string {
	return [...]string{"preparing the request", "connecting to the worker",
		"sending the request", "waiting for the answer", "reading the answer"}[e.Phase] + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Err }
