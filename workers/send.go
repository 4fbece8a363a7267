package workers

import (
	"context"
	"io"
	"net/http"
)

// Sender carries one HTTP exchange to a worker. It is safe for concurrent use.
type Sender interface {
	// Send writes the request and returns when the answer's header has been
	// read. Cancelling ctx at any time before Response.Body is closed ends the
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

// The phases of an exchange. Until PhaseConnect has passed the worker saw
// nothing, so that any request may be tried elsewhere.
const (
	PhaseConnect Phase = iota // no connection
	PhaseWrite                // the request went out in part
	PhaseAwait                // the request went out, no answer header came
	PhaseBody                 // the answer broke off
)

// SendError tells why an exchange failed and how far it had come.
type SendError struct {
	Phase Phase
	Err   error
}

// Error says what was being done and the cause.
func (e *SendError) Error() string {
	return [...]string{"connecting to the worker", "sending the request", "waiting for the answer", "reading the answer"}[e.Phase] + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Err }
