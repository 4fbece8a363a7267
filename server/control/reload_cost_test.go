package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tierway/config"
	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
)

// manyWorkers is a configuration with n workers in one tier.
func manyWorkers(n int) string {
	var b strings.Builder
	b.WriteString("auth: { required: false }\nhealth: { path: \"off\" }\n")
	b.WriteString("tiers:\n  - name: small\n    model: m\n    workers:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - { name: w%d, url: \"http://10.0.%d.%d:9\", models: [m] }\n", i, i/250, i%250+1)
	}
	return b.String()
}

// TestReloadAllocatesInProportionToItsWorkers: a look-up of each worker in a list of all would square it.
func TestReloadAllocatesInProportionToItsWorkers(t *testing.T) {
	cost := func(n int) float64 {
		c := newTestControl(t, manyWorkers(n))
		another, times := parsed(t, strings.Replace(manyWorkers(n), "models: [m]", "models: [m], weight: 2", 1)), 0
		files := []*config.File{another, c.Snapshot().Base}
		return testing.AllocsPerRun(1, func() {
			c.changing.Lock()
			defer c.changing.Unlock()
			if err := c.change(replacing(c.Snapshot().Base, files[times%2])); err != nil {
				t.Fatal(err)
			}
			times++
		})
	}
	few, many := cost(50), cost(200)
	if many > 5*few {
		t.Errorf("50 workers cost %.0f allocations, 200 cost %.0f", few, many)
	}
}

// TestReloadConfiguresChangedPoolsOnly, and changes the weight of the pool that has changed.
func TestReloadConfiguresChangedPoolsOnly(t *testing.T) {
	const pools = `
auth: { required: false }
health: { path: "off" }
tiers:
  - { name: a, model: m, workers: [ { name: w0, url: "http://127.0.0.1:9" } ] }
  - { name: b, model: n, workers: [ { name: w1, url: "http://127.0.0.1:10" } ] }
`
	c := newTestControl(t, pools)
	configured := map[string]bool{}
	for _, p := range c.Snapshot().Pools {
		p.Routing.Watch(func() { configured[p.Name] = true })
	}
	apply := func(text string) {
		clear(configured)
		c.changing.Lock()
		defer c.changing.Unlock()
		if err := c.change(replacing(c.Snapshot().Base, parsed(t, text))); err != nil {
			t.Fatal(err)
		}
	}
	apply(strings.Replace(pools, ":9\"", ":9\", weight: 3", 1))
	if !configured["a"] || configured["b"] {
		t.Errorf("configured: %v", configured)
	}
	if got := c.Snapshot().ByName["a"].Routing.Snapshot(time.Now())[0].Weight; got != 3 {
		t.Errorf("the weight is %d", got)
	}
	apply(strings.Replace(strings.Replace(pools, ":9\"", ":9\", weight: 3", 1), "model: n,",
		"model: n, policy: { name: least_load },", 1))
	if configured["a"] || !configured["b"] {
		t.Errorf("after another policy, configured: %v", configured)
	}
}

// TestEngineOfAWorkerCostsNoAllocation, configured or detected: each request asks for it.
func TestEngineOfAWorkerCostsNoAllocation(t *testing.T) {
	for engine, want := range map[string]openai.Engine{"vllm": openai.EngineVLLM, "auto": ""} {
		c := newTestControl(t, strings.Replace(small, "model: m,", "model: m, engine: "+engine+",", 1))
		m := c.Snapshot().Pools[0].Members["w0"]
		if got := m.Engine(); got != want {
			t.Errorf("%s is %q", engine, got)
		}
		if n := testing.AllocsPerRun(100, func() { m.Engine() }); n > 0 {
			t.Errorf("%s costs %.0f allocations", engine, n)
		}
	}
}

// wakeFunc is a waiting request that calls the function when its wait ends.
type wakeFunc func()

func (f wakeFunc) OnWake() { f() }

// TestReloadHoldsNoLockThatReadersOfPoolsTake: a pass of the queues, for example, goes on during a reload.
func TestReloadHoldsNoLockThatReadersOfPoolsTake(t *testing.T) {
	one := strings.Replace(small, `:9" }`, `:9", max_inflight: 1 }`, 1)
	c := newTestControl(t, one)
	p := c.Snapshot().Pools[0]
	first, err := p.WaitQueue.Enter(&queue.Ticket{Request: &routing.Request{Now: time.Now()}, Tenant: "a"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
	woken, free := false, false
	waiting := &queue.Ticket{Request: &routing.Request{Now: time.Now()}, Tenant: "a", Ref: wakeFunc(func() {
		if woken, free = true, c.Pools.mu.TryLock(); free {
			c.Pools.mu.Unlock()
		}
	})}
	if _, err := p.WaitQueue.Enter(waiting, time.Now()); !errors.Is(err, queue.ErrWaiting) {
		t.Fatal(err)
	}
	two := parsed(t, strings.Replace(one, "max_inflight: 1", "max_inflight: 2", 1))
	c.changing.Lock()
	defer c.changing.Unlock()
	if err := c.change(replacing(c.Snapshot().Base, two)); err != nil || !woken || !free {
		t.Errorf("%v; a slot was offered: %v; the lock was free: %v", err, woken, free)
	}
	if lease, err := p.WaitQueue.Claim(waiting, time.Now()); err == nil {
		lease.Release(routing.Result{At: time.Now(), Err: routing.ErrExcluded})
	}
}
