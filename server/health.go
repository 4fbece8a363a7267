package server

import (
	"encoding/json"
	"net/http"
	"time"
)

// live answers that the process runs. It asks nothing of anybody.
func live(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n")) //nolint:errcheck // the prober is gone
}

// readiness is the body of /readyz.
type readiness struct {
	Ready    bool     `json:"ready"`
	Draining bool     `json:"draining,omitempty"`
	Degraded []string `json:"degraded"` // tiers and pools of which somebody is down, and stores that are away
}

// ready answers whether requests should come here: 503 only while draining or
// when nothing at all could be served.
func (s *Server) ready(w http.ResponseWriter) {
	r := readiness{Draining: s.draining.Load(), Degraded: []string{}}
	served := false
	for _, p := range s.snapshot.Load().pools {
		up, all := 0, 0
		for _, w := range p.workersNow(time.Now()) {
			all++
			if w.canServe() {
				up++
			}
		}
		served = served || up > 0
		switch {
		case up == 0:
			r.Degraded = append(r.Degraded, p.Name+": no worker can be used")
		case up < all:
			r.Degraded = append(r.Degraded, p.Name+": not all workers can be used")
		}
	}
	if s.redis != nil && !s.redis.Up() {
		r.Degraded = append(r.Degraded, "redis: away; limits are enforced by this gateway alone")
	}
	if s.rejected.Load() {
		r.Degraded = append(r.Degraded, "configuration: the file on disk has errors; the one before it is in force")
	}
	switch s.database.Load() {
	case databaseAway:
		r.Degraded = append(r.Degraded, "database: unavailable; tenants are served from memory, usage rows are buffered")
	case databaseReadOnly:
		r.Degraded = append(r.Degraded, "database: takes no writes; usage rows are buffered")
	}
	r.Ready = served && !r.Draining && s.knowsAnybody()
	status := http.StatusOK
	if r.Draining {
		w.Header().Set("Connection", "close")
	}
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, r)
}

// knowsAnybody tells whether there is anybody to serve: with a database that was
// never read only those whose keys stand in the configuration, or everybody where
// no key is needed.
func (s *Server) knowsAnybody() bool {
	who := s.people.Load()
	return s.sql == nil || !who.readAt.IsZero() || len(who.ownKeys) > 0 || !s.snapshot.Load().file.Auth.Required
}

// writeJSON writes a value of the program; what cannot be encoded is a fault of
// the program and shows as 500.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone
}
