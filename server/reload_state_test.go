package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/engines"
	"tierway/routing"
	"tierway/server/control"
)

// TestReloadOfConnectionSettingsKeepsWorkerState: load, breaker and learned rates belong to the engine,
// which stays the same.
func TestReloadOfConnectionSettingsKeepsWorkerState(t *testing.T) {
	const yaml = `
auth: { required: false }
%s
tiers:
  - { name: small, model: %s, serves: [chat], policy: { name: round_robin }, workers: [ { name: a, url: %q%s }, { name: b, url: %q%s } ] }
`
	const off = `health: { path: "off" }`
	for what, c := range map[string]struct {
		top, model, worker string
		moved, kept        bool
	}{
		"timeouts.connect": {top: off + "\ntimeouts: { connect: 3s }", kept: true},
		"health":           {top: `health: { path: "off", interval: 9s, down_after: 7 }`, kept: true},
		"a key":            {top: off, worker: ", api_key_env: NEW", kept: true},
		"a URL":            {top: off, moved: true},
		"the model":        {top: off, model: "fake-70b"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newBlockingEngine(engines.Config{Prefill: 1e6, PerToken: time.Millisecond})
				a, b := startServer(t, h),
					startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						w.WriteHeader(http.StatusInternalServerError)
					}))
				elsewhereA, elsewhereB := startServer(t, fakeEngine()), startServer(t, fakeEngine())
				r, from := newReloadRig(t, fmt.Sprintf(yaml, off, "fake-7b", a, "", b, "")+"# %s\n")
				t.Cleanup(h.release)
				r.source = func() (*config.File, error) {
					return config.Parse("config.yaml", []byte(from.text), func(name string) (string, bool) {
						return "second", name == "NEW"
					})
				}
				for i := range 12 {
					r.post("/v1/chat/completions",
						fmt.Sprintf(`{"model":"small","stream":true,"messages":[{"role":"user","content":"%d %s"}]}`, i,
							strings.Repeat("word ", 4000)))
				}
				first := make(chan httpAnswer, 1)
				go func() {
					first <- r.post("/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"hold"}]}`)
				}()
				r.until("a has a request", func() bool { return r.control.Pools.Gauges()[0].Inflight == 1 })
				state := func() (out []string) {
					for _, v := range r.control.Snapshot().ByName["small"].Routing.Snapshot(time.Now()) {
						out = append(out, fmt.Sprintf("%s: %d in flight, breaker %s, %.0f tokens/s", v.ID, v.Inflight,
							v.Ref.(*control.Member).Gate.View().State, v.Rate))
					}
					return out
				}
				before := fmt.Sprint(state())
				views := r.control.Snapshot().ByName["small"].Routing.Snapshot(time.Now())
				want := fmt.Sprintf("[a: 1 in flight, breaker closed, %.0f tokens/s "+
					"b: 0 in flight, breaker open, %.0f tokens/s]", views[0].Rate, views[1].Rate)
				if before != want || views[0].Rate == routing.PriorRate {
					t.Fatalf("before: %s", before)
				}
				model := "fake-7b"
				if c.model != "" {
					model = c.model
				}
				if c.moved {
					a, b = elsewhereA, elsewhereB
				}
				from.write(fmt.Sprintf(yaml, c.top, model, a, c.worker, b, c.worker))
				r.reload()
				want = before
				if !c.kept {
					want = fmt.Sprintf("[a: 0 in flight, breaker closed, %.0[1]f tokens/s "+
						"b: 0 in flight, breaker closed, %.0[1]f tokens/s]",
						float64(routing.PriorRate))
				}
				if got := fmt.Sprint(state()); got != want {
					t.Errorf("after the reload: %s\nwant %s", got, want)
				}
				h.release()
				if a := <-first; a.status != http.StatusOK {
					t.Errorf("the request in flight: %d %s", a.status, a.body)
				}
			})
		})
	}
}
