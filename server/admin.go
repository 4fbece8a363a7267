package server

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

// adminHandler is the operators' plane: metrics without a key, everything under
// /admin/ with an admin key. Without admin keys it is closed, never open.
func (s *Server) adminHandler() http.Handler {
	e := newEngine()
	if s.snapshot.Load().file.Metrics.Listen == "" {
		e.GET("/metrics", gin.WrapH(s.metrics.Handler()))
	}
	s.probes(e)
	e.GET("/admin/workers", s.admin(s.listWorkers))
	e.NoRoute(func(c *gin.Context) { problem(c.Writer, http.StatusNotFound, "There is nothing at this address.") })
	e.NoMethod(func(c *gin.Context) {
		problem(c.Writer, http.StatusMethodNotAllowed, "This address takes other methods: "+c.Writer.Header().Get("Allow")+".")
	})
	return e
}

// metricsHandler serves the metrics on an address of their own.
func (s *Server) metricsHandler() http.Handler {
	e := newEngine()
	e.GET("/metrics", gin.WrapH(s.metrics.Handler()))
	return e
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

// admin lets only an admin key through.
func (s *Server) admin(h func(w http.ResponseWriter)) gin.HandlerFunc {
	return func(c *gin.Context) {
		key, ok := credential(c.Request.Header)
		if ok {
			_, ok = s.snapshot.Load().admins.Authenticate(key)
		}
		if !ok {
			c.Writer.Header().Set("WWW-Authenticate", "Bearer")
			problem(c.Writer, http.StatusUnauthorized, "Send an admin key as `Authorization: Bearer <key>`; its digest stands under admin.keys.")
			return
		}
		h(c.Writer)
	}
}

// problem answers with an error of RFC 9457.
func problem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, status, map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail})
}

// workerState is one worker as GET /admin/workers shows it.
type workerState struct {
	Name          string  `json:"name"`
	Pool          string  `json:"pool"`
	State         string  `json:"state"` // up, down or cooling
	Since         string  `json:"since,omitempty"`
	LastError     string  `json:"last_error,omitempty"`
	Weight        int     `json:"weight"`
	Inflight      int     `json:"inflight"`
	MaxInflight   int     `json:"max_inflight"`
	PendingTokens int64   `json:"pending_tokens"`
	OutputTokens  int64   `json:"output_tokens"`
	Waiting       int     `json:"engine_waiting"`
	Running       int     `json:"engine_running"`
	KVUsage       float64 `json:"kv_usage"`
}

// listWorkers answers with every worker's state and load.
func (s *Server) listWorkers(w http.ResponseWriter) {
	out := []workerState{}
	for _, p := range s.snapshot.Load().pools {
		for _, v := range p.routing.Snapshot(time.Now()) {
			st := workerState{Name: v.ID, Pool: p.Name, State: "down", Weight: v.Weight, Inflight: v.Inflight, MaxInflight: v.MaxInflight,
				PendingTokens: v.PendingTokens, OutputTokens: v.OutputTokens}
			if v.Up {
				st.State = "up"
			}
			if v.Up && v.Cooling > 0 {
				st.State = "cooling"
			}
			if worker := s.fleet.Get(v.ID); worker != nil {
				seen := worker.Status()
				st.LastError, st.Waiting, st.Running, st.KVUsage = seen.LastError, seen.Waiting, seen.Running, seen.KVUsage
				if !seen.Since.IsZero() {
					st.Since = seen.Since.UTC().Format(time.RFC3339)
				}
			}
			out = append(out, st)
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"workers": out})
}
