package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

// adminHandler is the operators' plane: metrics without a key, everything under
// /admin/ with an admin key. Without admin keys it is closed, never open.
func (s *Server) adminHandler() http.Handler { return s.edge(s.newAdmin().engine) }

// newAdmin builds the admin plane: gin's engine with the API on it.
func (s *Server) newAdmin() *adminPlane {
	e := newEngine()
	a := &adminPlane{s: s, engine: e, started: time.Now(), drains: map[string]drainBegun{}, refused: map[string]refusals{}}
	e.Use(s.bounded, secured, a.recoverRequest, a.guard)
	if f := s.snapshot.Load().file; f.Metrics.Listen == "" {
		e.GET("/metrics", s.named(f.Admin.Listen), gin.WrapH(s.metrics.Handler()))
	}
	s.probes(e)
	a.register()
	e.NoRoute(func(c *gin.Context) { problem(c.Writer, http.StatusNotFound, "There is nothing at this address.") })
	e.NoMethod(func(c *gin.Context) {
		problem(c.Writer, http.StatusMethodNotAllowed, "This address takes other methods: "+c.Writer.Header().Get("Allow")+".")
	})
	return a
}

// metricsHandler serves the metrics on an address of their own.
func (s *Server) metricsHandler() http.Handler {
	e := newEngine()
	e.Use(s.bounded, secured)
	e.GET("/metrics", s.named(s.snapshot.Load().file.Metrics.Listen), gin.WrapH(s.metrics.Handler()))
	return s.edge(e)
}

// secured sets the headers of everything on the admin plane, whatever the answer is.
func secured(c *gin.Context) {
	h := c.Writer.Header()
	h.Set("Cache-Control", "no-store") // some answers hold a key
	h.Set("X-Content-Type-Options", "nosniff")
}

// sharePlanes serves both planes on one address.
func sharePlanes(data, admin http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" || strings.HasPrefix(r.URL.Path, "/admin/") {
			admin.ServeHTTP(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}

// problem answers with an error of RFC 9457.
func problem(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone
}
