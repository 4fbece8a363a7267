package server

import (
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/gin-gonic/gin"
)

// errPanicked is the error of a step that panicked.
var errPanicked = errors.New("the gateway has a bug; its log has a line \"recovered from a panic\" with the stack")

// runRecovered runs one step of background work, which may read what workers,
// clients, stores or publishers sent. A panic ends the step and not the process:
// it is counted, logged once with its stack and without values, and returned as
// errPanicked. The caller's loop goes on with its next step.
func (s *Server) runRecovered(work string, step func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p, slog.String("work", work))
			err = errPanicked
		}
	}()
	return step()
}

// keepRunning is runRecovered for a step without an error.
func (s *Server) keepRunning(work string, step func()) {
	_ = s.runRecovered(work, func() error {
		step()
		return nil
	})
}

// panicked counts and logs a panic that was recovered. about says what was done.
func (s *Server) panicked(p any, about slog.Attr) {
	s.metrics.Panics.Inc()
	s.log.Error("recovered from a panic", about,
		slog.String("panic", panicText(p)), slog.String("stack", string(debug.Stack())))
}

// panicText names a panic without the values in it, which may hold a prompt.
func panicText(p any) string {
	var err error
	if e, ok := p.(error); ok {
		err = e
	}
	var re interface{ RuntimeError() }
	if errors.As(err, &re) {
		return err.Error()
	}
	return "a value of the program"
}

// recoverRequest turns a panic of the admin plane into a 500, or into a cut
// connection if part of the answer was sent.
func (a *adminPlane) recoverRequest(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			a.s.panicked(p, slog.String("route", c.FullPath()))
		}
		if c.Writer.Written() {
			panic(http.ErrAbortHandler) // net/http cuts the connection without a clean end
		}
		problem(c.Writer, http.StatusInternalServerError, "The gateway failed to handle the request. Its log has the cause.")
	}()
	c.Next()
}
