package server

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// edge is the first handler of every plane. It bounds how long a client can hold a
// request that no longer needs it: net/http reads an unread body before it keeps a
// connection of HTTP/1, and a stream of HTTP/2 ends with the last byte that its client
// takes. A handler that reads a body sets read deadlines of its own, and removes them at
// the body's end.
func (s *Server) edge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 && r.Body != nil && r.Body != http.NoBody {
			if c, ok := w.(interface{ SetReadDeadline(time.Time) error }); ok { // a ResponseController allocates
				c.SetReadDeadline(time.Now().Add(unreadGrace)) //nolint:errcheck // a dead connection has no rest
			}
		}
		next.ServeHTTP(w, r)
		if r.ProtoMajor >= 2 {
			s.boundAnswer(w)
		}
	})
}

// boundAnswer bounds how long the client may take for an answer that is written at
// once. It is for answers that set no write deadlines of their own.
func (s *Server) boundAnswer(w http.ResponseWriter) {
	stall := s.snapshot.Load().file.Timeouts.ClientStall
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall)) //nolint:errcheck // a dead connection takes nothing
}

// bounded is boundAnswer as the first handler of gin's routes.
func (s *Server) bounded(c *gin.Context) { s.boundAnswer(unwrapped(c.Writer)) }

// unbound removes the deadlines of a request whose answer goes on for as long as its
// client reads it. A body, which it should not have, is read first: behind an unread one
// net/http does not see the client leave.
func unbound(c *gin.Context) {
	control := http.NewResponseController(unwrapped(c.Writer))
	if _, err := io.CopyN(io.Discard, c.Request.Body, maxAdminBody); err == io.EOF {
		control.SetReadDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the first write
	} else {
		c.Writer.Header().Set("Connection", "close")
	}
	control.SetWriteDeadline(time.Time{}) //nolint:errcheck // a dead connection shows at the first write
}
