package control

import (
	"strings"
	"testing"

	"tierway/config"
)

// TestDraftAddsNoWorkers: its new workers are neither checked nor in a live pool.
func TestDraftAddsNoWorkers(t *testing.T) {
	c := newTestControl(t, small)
	in := c.Snapshot()
	text := strings.Replace(small, "[ { name: w0", `[ { name: w1, url: "http://127.0.0.1:10" }, { name: w0`, 1) + `
pools: [ { name: extra, model: x, serves: [chat], workers: [ { name: x0, url: "http://127.0.0.1:13" } ] } ]
`
	f, err := config.Parse("draft.yaml", []byte("classifier: { preset: none }\n"+text),
		func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	draft, _, err := c.DraftOf(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(draft.Pools) != 2 || len(draft.Pools[0].Draft.Members) != 2 {
		t.Errorf("the draft has %d pools, the first %d workers", len(draft.Pools), len(draft.Pools[0].Draft.Members))
	}
	if c.Snapshot() != in || len(c.Pools.fleet.Workers()) != 1 || len(c.Pools.Gauges()) != 1 {
		t.Error("the draft was put in force")
	}
}

// TestDraftWithoutAChangeHasTheLivePools and the generation in force.
func TestDraftWithoutAChangeHasTheLivePools(t *testing.T) {
	c := newTestControl(t, small)
	in := c.Snapshot()
	draft, changes, err := c.DraftOf(in.Base)
	if err != nil || len(changes) > 0 || draft.Pools[0] != in.Pools[0] || draft.Pools[0].Draft != nil ||
		draft.Generation != in.Generation {
		t.Errorf("a draft of the configuration in force: %+v, %v, %v", draft, changes, err)
	}
}
