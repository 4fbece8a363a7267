package server

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/memnet"
)

// TestPlaneThatWaitsForASlowReadingNamesNoRestore: the database responds, so there is nothing to restore.
func TestPlaneThatWaitsForASlowReadingNamesNoRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "auth: { required: false }\ntiers: [{ name: small, model: m, workers: [%s] }]", http.NotFoundHandler())
		socket, err := r.net.Listen("tcp", "127.0.0.1:1")
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		r.listeners.all = []listener{{plane: "data", Listener: socket, reserved: new(reservedListener)}}
		r.proxy.Drain() // so that the plane stays closed
		r.openDataPlane(t.Context())
		if text := r.logs.String(); !strings.Contains(text, "refuses connections until the database is read") ||
			strings.Contains(text, "restore") {
			t.Errorf("the log is %s", text)
		}
		r.listeners.all = nil
	})
}

// TestFastHTTP1IsOfTheDataPlaneOnly, unless it is off.
func TestFastHTTP1IsOfTheDataPlaneOnly(t *testing.T) {
	for text, want := range map[string]bool{"": true, "fast_http1: true\n": true, "fast_http1: false\n": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plain+text, fakeEngine())
			for _, a := range r.planes.addresses(r.control.Snapshot().File) {
				if a.fast != (want && a.plane == "data") {
					t.Errorf("%q: fast is %v for the %s plane", text, a.fast, a.plane)
				}
				a.later = false
				l, err := (&listeners{log: slog.New(slog.DiscardHandler), proxy: r.proxy, listen: memnet.New().Listen}).openOne(
					t.Context(), a)
				if err != nil {
					t.Fatal(err)
				}
				if (l.front != nil) != a.fast {
					t.Errorf("%q: the %s plane has the front %v", text, a.plane, l.front)
				}
				l.Close()
			}
		})
	}
}
