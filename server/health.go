package server

import (
	"encoding/json"
	"net/http"
	"time"

	"tierway/routing"
	"tierway/server/control"
)

// serveLive reports that the process runs. It reads no state.
func serveLive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n")) // the prober is gone
}

type readiness struct {
	Ready    bool     `json:"ready"`
	Draining bool     `json:"draining,omitempty"`
	Degraded []string `json:"degraded"` // pools with a worker out of rotation; unavailable stores; a rejected file

	reasons []string // why a balancer should not send requests here; empty: Ready
}

// serveReady reports whether a balancer should send requests here. It returns 503 while the gateway
// drains, while no pool has a worker in rotation, and while the tenants are not loaded yet.
func (p *planes) serveReady(w http.ResponseWriter, _ *http.Request) {
	r, status := p.readiness(), http.StatusOK
	if r.Draining {
		w.Header().Set("Connection", "close")
	}
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, r)
}

func (p *planes) readiness() readiness {
	r := readiness{Draining: p.proxy.Draining(), Degraded: []string{}}
	served := false
	for _, pool := range p.control.Snapshot().Pools {
		ws, up := pool.LiveWorkers(time.Now()), 0
		missing, serves := control.MissingWorkers(ws, func(w *control.LiveWorker) (routing.Stages, bool) {
			if !w.InRotation() {
				return w.Stages, false
			}
			up++
			return w.Stages, true
		})
		served = served || serves
		switch {
		case missing != "":
			r.Degraded = append(r.Degraded, pool.Name+": "+missing+" is in rotation")
		case up < len(ws):
			r.Degraded = append(r.Degraded, pool.Name+": some workers are out of rotation")
		}
	}
	if p.control.Stores.Redis != nil && !p.control.Stores.Redis.Up() {
		r.Degraded = append(r.Degraded, "redis: unavailable; this gateway enforces limits alone")
	}
	if v := p.control.Pools.Sharing(); v != nil && !v.CaughtUp && p.control.Stores.Redis.Up() {
		r.Degraded = append(r.Degraded, "sharing: the history of the other gateways is not read yet")
	}
	if p.control.FileRejected() {
		r.Degraded = append(r.Degraded, "configuration: the file on disk has errors; the previous one stays in force")
	}
	switch p.control.Database.State() {
	case control.DatabaseAway:
		r.Degraded = append(r.Degraded, "database: "+p.databaseAway())
	case control.DatabaseReadOnly:
		r.Degraded = append(r.Degraded, "database: rejects writes; usage rows are buffered")
	}
	if r.Draining {
		r.reasons = append(r.reasons, "the gateway is draining")
	}
	if !served {
		r.reasons = append(r.reasons, "no worker of any tier or pool is in rotation")
	}
	if !p.control.HasCallers() {
		r.reasons = append(r.reasons, "tenants and keys are not read from the database yet")
	}
	r.Ready = len(r.reasons) == 0
	return r
}

// databaseAway returns what an unavailable database means for the tenants.
func (p *planes) databaseAway() string {
	switch {
	case !p.control.Snapshot().Identity.ReadAt.IsZero():
		return "unavailable; tenants are served from memory, usage rows are buffered"
	case p.control.HasCallers():
		return "unavailable since the start; only tenants of the configuration are served, usage rows are buffered"
	}
	return "unavailable since the start; no key is known, so that no request is served"
}

// writeJSON writes v as the answer's body. A value that cannot be encoded is a fault of the program
// and results in status 500.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // the client is gone
}
