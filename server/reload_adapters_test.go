package server

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tierway/engines"
)

// TestAdapterRequestsGoToWorkersThatHaveIt. Requests without a model may go to every worker.
func TestAdapterRequestsGoToWorkersThatHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pools = `
auth: { required: false }
health: { path: "off" }
pools:
  - name: base
    models: [base-7b, adapter]
    serves: [chat]
    paths: [/custom/*]
    workers: [ %s ]
`
		both, from := newReloadRig(t, pools, anyModel(), anyModel())
		// Only the second worker has the adapter.
		from.write(strings.Replace(both.text, "name: w0,", "name: w0, models: [base-7b],", 1))
		both.reload()
		for n := range 20 {
			got := both.post("/v1/chat/completions", chatBody("adapter", strings.Repeat("another prompt ", n+1), ""))
			if got.status != http.StatusOK || got.header.Get("X-Routed-To") != "w1" {
				t.Fatalf("the request for the adapter went to %s: %d %s", got.header.Get("X-Routed-To"), got.status, got.body)
			}
		}
		seen := map[string]bool{}
		for n := range 20 {
			seen[both.post("/v1/chat/completions",
				chatBody("base-7b", strings.Repeat("another prompt ", n+1), "")).header.Get("X-Routed-To")] = true
			seen[both.post("/custom/path", "{}").header.Get("X-Routed-To")] = true
		}
		if !seen["w0"] || !seen["w1"] {
			t.Errorf("requests for the base model and other paths went to %v", seen)
		}
	})
}

// anyModel is an engine that accepts every model name.
func anyModel() http.Handler { return engines.New(engines.Config{AnyModel: true, Seed: 1}) }

func TestUnchangedPolicyKeepsItsStateOnReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, from := newReloadRig(t, plain, anyModel())
		before := r.control.Snapshot().ByName["small"].Picker
		from.write(strings.Replace(r.text, "name: w0,", "name: w0, weight: 2,", 1))
		if r.reload().Generation != 2 || r.control.Snapshot().ByName["small"].Picker != before {
			t.Error("the unchanged policy was replaced")
		}
		from.write("policy: { name: chwbl, depth: fixed }\n" + r.text)
		if r.reload().Generation != 3 || r.control.Snapshot().ByName["small"].Picker == before {
			t.Error("the changed policy was not applied")
		}
	})
}
