package control

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/memnet"
	"tierway/routing"
)

// four has one tier with four workers, at ports without a server.
const four = `
auth: { required: false }
health: { path: "off" }
tiers:
  - name: small
    model: m
    workers: [ { name: w0, url: "http://127.0.0.1:9" }, { name: w1, url: "http://127.0.0.1:10" },
      { name: w2, url: "http://127.0.0.1:11" }, { name: w3, url: "http://127.0.0.1:12" } ]
`

// failRequest lets the worker fail one request.
func failRequest(m *Member, err error) {
	if ticket, refused := m.Gate.Allow(0); refused == nil {
		m.Gate.Report(ticket, err)
	}
}

// states returns the states of the pool's workers in their order.
func states(p *Pool) string {
	var all []string
	for _, w := range p.LiveWorkers(time.Now()) {
		all = append(all, w.State())
	}
	return strings.Join(all, " ")
}

// TestSuspicionsCountForTheEjectionCap: half of the pool stays in rotation.
func TestSuspicionsCountForTheEjectionCap(t *testing.T) {
	ctl := newTestControl(t, four)
	p := ctl.Snapshot().ByName["small"]
	for _, name := range []string{"w0", "w1", "w2", "w3"} {
		ctl.Pools.Suspect("small", name)
		if v := p.Members[name].Gate.View(); v.Cause != breaker.CauseOtherGateway {
			t.Fatalf("the breaker of %s is %+v", name, v)
		}
	}
	if got := states(p); got != "open open up up" {
		t.Errorf("the workers are %s", got)
	}
}

// TestSuspicionOfAnUnknownWorkerIsIgnored: gateways may have different configurations during a reload.
func TestSuspicionOfAnUnknownWorkerIsIgnored(t *testing.T) {
	ctl := newTestControl(t, four)
	ctl.Pools.Suspect("large", "w0")
	ctl.Pools.Suspect("small", "w9")
	if got := states(ctl.Snapshot().ByName["small"]); got != "up up up up" {
		t.Errorf("the workers are %s", got)
	}
}

// TestSuspectedWorkerWithoutHealthChecksIsProbed at the next poll. A worker that this gateway has found
// failing stays open.
func TestSuspectedWorkerWithoutHealthChecksIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newTestControl(t, four)
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { ctl.Pools.fleet.Run(ctx) })
		defer run.Wait()
		defer stop()
		p := ctl.Snapshot().ByName["small"]
		for range 5 {
			failRequest(p.Members["w1"], errors.New("the worker returned 500"))
		}
		ctl.Pools.Suspect("small", "w0")
		until(t, "probes of w0", func() bool {
			p.poll(time.Now(), StoppedWorkers{})
			return p.Members["w0"].Gate.View().State == breaker.HalfOpen
		})
		if got := states(p); got != "half_open open up up" {
			t.Errorf("the workers are %s", got)
		}
	})
}

// TestGoodCheckEndsASuspicionWithoutAPoll: the check runs at once although the next one is due in an hour. In
// virtual time it would begin at the moment of the suspicion, and such a check ends none.
func TestGoodCheckEndsASuspicionWithoutAPoll(t *testing.T) {
	network := memnet.New()
	engine := network.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer engine.Close()
	ctl := newTestControlOn(t, network, strings.NewReplacer(`path: "off"`, "path: /health, interval: 1h",
		"http://127.0.0.1:9", engine.URL).Replace(small))
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { ctl.Pools.fleet.Run(ctx) })
	defer run.Wait()
	defer stop()
	m := ctl.Snapshot().ByName["small"].Members["w0"]
	until(t, "the first check", func() bool { return m.Worker.Status().Passed == 1 })
	ctl.Pools.Suspect("small", "w0")
	until(t, "a half-open breaker", func() bool { return m.Gate.View().State == breaker.HalfOpen })
	if passed := m.Worker.Status().Passed; passed != 2 {
		t.Errorf("%d checks, want one more", passed)
	}
}

// TestOwnOpeningsHaveNoFindingsOfOthers: otherwise two gateways would suspect a worker by turns.
func TestOwnOpeningsHaveNoFindingsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctl := newTestControl(t, four)
		p := ctl.Snapshot().ByName["small"]
		before := time.Now()
		for range 5 {
			failRequest(p.Members["w0"], errors.New("the worker returned 500"))
		}
		failRequest(p.Members["w1"], routing.ErrSlow)
		ctl.Pools.Suspect("small", "w2")
		if got := states(p); got != "open open up up" { // the ejection cap keeps w2 in rotation
			t.Fatalf("the workers are %s", got)
		}
		own := p.OwnOpenings(time.Now())
		if names := slices.Collect(maps.Keys(own)); !slices.Equal(names, []string{"w0"}) {
			t.Fatalf("the own openings are %v", own)
		}
		if at := own["w0"]; at.Before(before) || at.After(time.Now()) {
			t.Errorf("w0 opened at %v", at)
		}

		w2 := p.Members["w2"]
		w2.Gate.Healthy(time.Now().Add(time.Second))
		until(t, "a probe of w2", func() bool { w2.Gate.Poll(); return w2.Gate.View().State == breaker.HalfOpen })
		if own := p.OwnOpenings(time.Now()); len(own) != 1 {
			t.Errorf("the own openings are %v before a probe of w2 has failed", own)
		}
		failRequest(w2, errors.New("the worker returned 500"))
		w2.Gate.Healthy(time.Now().Add(time.Hour)) // which may end the open state before it is published
		if own := p.OwnOpenings(time.Now()); len(own) != 2 || own["w2"].IsZero() {
			t.Errorf("the own openings are %v after a probe of w2 has failed", own)
		}
	})
}
