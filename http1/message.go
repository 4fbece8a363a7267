package http1

import (
	"io"
	"net/http"
)

// Request is what a client writes to a server.
type Request struct {
	Method string
	Path   string      // absolute path with query, sent unchanged
	Header http.Header // canonical keys; the client itself sets Host, Content-Length and the headers of the connection
	Body   [][]byte    // the body in pieces, written one after the other; nil for none
	Fresh  bool        // use a new connection, for requests that must not be sent twice
	Once   bool        // send no byte of the request twice, and use no connection that was idle for 1 s

	// A sender sets BodyInUse if it may read Body after Send has returned. A Client reads Body only during Send.
	BodyInUse bool

	// Upload is a streamed body instead of Body; nil for none. It is sent once, on a new connection.
	// An error of its Read ends the exchange. If the server rejects the request early, the rest of
	// Upload may stay unread. Read may be called until it fails or until Response.Body is closed.
	Upload       io.Reader
	UploadLength int64 // of Upload; -1 if it is not known
}

// Response is the answer's head and its body as it arrives. The caller must
// close Body.
type Response struct {
	Status        int
	Header        http.Header
	ContentLength int64 // -1 if unknown
	Body          io.ReadCloser
}

// Phase states how far an exchange had come when it failed.
type Phase uint8

// The phases of an exchange. In PhasePrepare and PhaseConnect the server has seen nothing, so any
// request may be sent to another server. PhasePrepare says nothing about the server.
const (
	PhasePrepare Phase = iota // the request cannot be written as HTTP; no connection was tried
	PhaseConnect              // no connection, or none that took a byte
	PhaseWrite                // the request was sent in part
	PhaseAwait                // the request was sent, no answer head came
	PhaseBody                 // the answer broke off
)

// SendError is the failure of an exchange.
type SendError struct {
	Phase Phase
	Err   error
	// Kept means that a kept connection broke less than 2 s after its last use, before a byte of the answer. The server
	// may have closed the connection while it was idle.
	Kept bool
}

// Error names the phase and the cause.
func (e *SendError) Error() string {
	return [...]string{"preparing the request", "connecting to the worker",
		"sending the request", "waiting for the answer", "reading the answer"}[e.Phase] + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Err }
