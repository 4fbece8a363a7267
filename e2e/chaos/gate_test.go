package chaos

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"tierway/e2e/rig"
	"tierway/engines"
)

// gate is a worker that holds each request until the test calls release.
type gate struct {
	t    *testing.T
	next http.Handler
	open chan http.HandlerFunc
}

// ServeHTTP holds the request.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // net/http notices a disconnect only after the body
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	select {
	case then := <-g.open:
		then(w, r)
	case <-r.Context().Done():
	}
}

// release continues the next request with a handler.
func (g *gate) release(then http.HandlerFunc) {
	g.t.Helper()
	select {
	case g.open <- then:
	case <-time.After(rig.Patience):
		g.t.Fatal("no request waits at the gate")
	}
}

// newGatedRig is newRig with a gate in front of each worker.
func newGatedRig(t *testing.T, n int, own rig.Settings) (*chaosRig, []*gate) {
	t.Helper()
	var ws []*rig.Worker
	var gates []*gate
	for i := range n {
		w := newEngine(t, fmt.Sprintf("w%d", i), engines.Config{})
		g := &gate{t: t, next: w.Handler, open: make(chan http.HandlerFunc)}
		w.Front = g
		w.Listen()
		ws, gates = append(ws, w), append(gates, g)
	}
	own["tiers"] = tiers(ws)
	r := newRig(t, 0, own, engines.Config{})
	r.Workers = ws
	return r, gates
}
