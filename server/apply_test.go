package server

import (
	"net/http"
	"strings"
	"testing"

	"tierway/engines"
)

// TestAnAdapterIsAskedOfWorkersThatHaveIt, and what names no model of any worker.
func TestAnAdapterIsAskedOfWorkersThatHaveIt(t *testing.T) {
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
	both, from := reloadable(t, pools, anyModel(), anyModel())
	// The second worker alone has the adapter.
	from.write(strings.Replace(both.text, "name: w0,", "name: w0, models: [base-7b],", 1))
	both.reload()
	for n := range 20 {
		got := both.post("/v1/chat/completions", ask("adapter", strings.Repeat("another prompt ", n+1), ""))
		if got.status != http.StatusOK || got.header.Get("X-Routed-To") != "w1" {
			t.Fatalf("the adapter was asked of %s: %d %s", got.header.Get("X-Routed-To"), got.status, got.body)
		}
	}
	seen := map[string]bool{}
	for n := range 20 {
		seen[both.post("/v1/chat/completions",
			ask("base-7b", strings.Repeat("another prompt ", n+1), "")).header.Get("X-Routed-To")] = true
		seen[both.post("/custom/path", "{}").header.Get("X-Routed-To")] = true
	}
	if !seen["w0"] || !seen["w1"] {
		t.Errorf("the base model and other paths were asked of %v", seen)
	}
}

// anyModel is an engine that answers to every name.
func anyModel() http.Handler { return engines.New(engines.Config{AnyModel: true, Seed: 1}) }

// TestAPolicyKeepsItsMemoryOverAConfiguration that says the same of it.
func TestAPolicyKeepsItsMemoryOverAConfiguration(t *testing.T) {
	r, from := reloadable(t, plain, anyModel())
	before := r.control.Snapshot().ByName["small"].Picker
	from.write(strings.Replace(r.text, "name: w0,", "name: w0, weight: 2,", 1))
	if r.reload().Generation != 2 || r.control.Snapshot().ByName["small"].Picker != before {
		t.Error("another policy works now")
	}
	from.write("policy: { depth: fixed }\n" + r.text)
	if r.reload().Generation != 3 || r.control.Snapshot().ByName["small"].Picker == before {
		t.Error("the changed policy is not at work")
	}
}
