package server

import (
	"encoding/json"
	"net/http"
	"time"

	"tierway/server/control"
)

// live answers that the process runs. It reads no state.
func live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n")) //nolint:errcheck // the prober is gone
}

// readiness is the body of /readyz.
type readiness struct {
	Ready    bool     `json:"ready"`
	Draining bool     `json:"draining,omitempty"`
	Degraded []string `json:"degraded"` // tiers and pools with a worker that is down, and stores that are away
}

// ready answers whether requests should come here: 503 only while draining or
// when nothing at all could be served.
func (p *planes) ready(w http.ResponseWriter, _ *http.Request) {
	r := readiness{Draining: p.proxy.Draining(), Degraded: []string{}}
	served := false
	for _, pool := range p.control.Snapshot().Pools {
		up, all := 0, 0
		for _, w := range pool.LiveWorkers(time.Now()) {
			all++
			if w.InRotation() {
				up++
			}
		}
		served = served || up > 0
		switch {
		case up == 0:
			r.Degraded = append(r.Degraded, pool.Name+": no worker can be used")
		case up < all:
			r.Degraded = append(r.Degraded, pool.Name+": not all workers can be used")
		}
	}
	if p.control.Stores.Redis != nil && !p.control.Stores.Redis.Up() {
		r.Degraded = append(r.Degraded, "redis: away; limits are enforced by this gateway alone")
	}
	if p.control.FileRejected() {
		r.Degraded = append(r.Degraded, "configuration: the file on disk has errors; the one before it is in force")
	}
	switch p.control.Database.State() {
	case control.DatabaseAway:
		r.Degraded = append(r.Degraded, "database: unavailable; tenants are served from memory, usage rows are buffered")
	case control.DatabaseReadOnly:
		r.Degraded = append(r.Degraded, "database: takes no writes; usage rows are buffered")
	}
	r.Ready = served && !r.Draining && p.control.Database.HasCallers()
	status := http.StatusOK
	if r.Draining {
		w.Header().Set("Connection", "close")
	}
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, r)
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
