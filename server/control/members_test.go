package control

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tierway/memnet"
)

// TestNewMemberHasTheStateOfEarlierChecks: checks of a worker may end before a reload puts its member in
// force.
func TestNewMemberHasTheStateOfEarlierChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		network := memnet.New()
		engine := network.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case fails.Load():
				w.WriteHeader(http.StatusInternalServerError)
			case r.URL.Path == "/v1/models":
				w.Write([]byte(`{"object":"list","data":[{"id":"m","object":"model","owned_by":"llamacpp"}]}`)) // the gateway is gone
			}
		}))
		defer engine.Close()
		c := newTestControlOn(t, network, strings.NewReplacer(`path: "off"`, "interval: 50ms, timeout: 50ms, down_after: 1",
			"http://127.0.0.1:9", engine.URL).Replace(small))
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.Pools.fleet.Run(ctx) })
		w := c.Pools.fleet.Get("w0")
		until(t, "an engine of llama.cpp", func() bool { return w.Status().Engine != "" })
		fails.Store(true)
		until(t, "a failed check", func() bool { return !w.Status().Up })
		stop()
		run.Wait()
		snap, err := newSnapshot(c.Snapshot().Configuration, c.Snapshot().Identity, &Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		was := c.Snapshot().Pools[0].Members["w0"]
		c.Pools.current.Store(&Snapshot{})
		c.Pools.connect(snap)
		c.Pools.observeNew(snap)
		m := snap.Pools[0].Members["w0"]
		if m == was || !m.HasTimings() || !m.down.Load() {
			t.Errorf("new: %v, has timings: %v, is down: %v", m != was, m.HasTimings(), m.down.Load())
		}
	})
}
