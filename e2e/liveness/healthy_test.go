package liveness

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"tierway/routing"
)

// TestAHealthyWorkerIsNotEjected checks loads under which workers answer late and are healthy: none is
// ejected or down, and no request fails. Clients do not leave.
func TestAHealthyWorkerIsNotEjected(t *testing.T) {
	var all []result
	for i, h := range healthyCases {
		for j, policy := range routing.Names() {
			for k, stream := range []bool{false, true} {
				if stream && h.wholeOnly || !allCells() && (i+j+k)%2 == 0 {
					continue
				}
				r := result{name: h.name + "/" + policy + "/" + answerKind(stream)}
				t.Run(r.name, func(t *testing.T) {
					before := processorTime()
					synctest.Test(t, func(t *testing.T) { h.run(t, policy, stream, &r) })
					r.cost = processorTime() - before
					for _, violation := range r.violations() {
						t.Error(violation)
					}
					if t.Failed() {
						t.Log(r.log)
					}
				})
				if r.requests > 0 { // -run selects it
					all = append(all, r)
				}
			}
		}
	}
	t.Logf("%d cases\n%s", len(all), resultTable(all))
}

// healthyCase is a load under which no worker may be ejected.
type healthyCase struct {
	name      string
	engines   []engineConfig
	wholeOnly bool
	drive     func(c *cluster, l *load)
}

// healthyCases are immutable.
var healthyCases = []healthyCase{
	// A worker needs twice the time of its peer, for prompts and for tokens.
	{name: "slow", engines: []engineConfig{usualEngine(), usualEngine().slower(2)}, drive: func(c *cluster, l *load) {
		l.driveFor(c, time.Minute)
	}},
	// A worker computes a prompt for a minute. It sends and publishes nothing meanwhile, and short requests
	// wait behind the prompt.
	{name: "long-prefill", engines: []engineConfig{usualEngine(), usualEngine()}, drive: func(c *cluster, l *load) {
		l.driveFor(c, 20*time.Second)
		l.startPrompt(c, int(usualEngine().prefill*time.Minute.Seconds()))
		l.driveFor(c, 90*time.Second)
	}},
	// Both workers compute such a prompt, so that no policy can avoid the wait. Both prompts on one worker stay
	// within timeouts.idle.
	{name: "long-prefills", engines: []engineConfig{usualEngine(), usualEngine()}, drive: func(c *cluster, l *load) {
		l.driveFor(c, 20*time.Second)
		l.startPrompt(c, int(usualEngine().prefill*50))
		l.startPrompt(c, int(usualEngine().prefill*50))
		l.driveFor(c, 90*time.Second)
	}},
	// 200 requests arrive at once, at engines that have answered nothing yet. The last prefill ends after 12 s.
	{name: "cold-burst", engines: []engineConfig{usualEngine(), usualEngine()}, drive: func(c *cluster, l *load) {
		l.prefix = uniquePrefix
		l.burst(c, 200)
	}},
	// The same after a time of little load, whose speed the gateway has learned.
	{name: "burst", engines: []engineConfig{usualEngine(), usualEngine()}, drive: func(c *cluster, l *load) {
		l.prefix = uniquePrefix
		l.driveFor(c, 20*time.Second)
		time.Sleep(10 * time.Second)
		l.burst(c, 200)
		l.owned.Wait()
		l.driveFor(c, 20*time.Second)
	}},
	// One of twenty answers is 16 times as long as the others, which nothing in the request shows. The
	// engines have no metrics.
	{name: "long-answers", wholeOnly: true, engines: []engineConfig{usualEngine().silent(), usualEngine().silent()},
		drive: func(c *cluster, l *load) {
			long := rand.New(rand.NewPCG(7, 8))
			l.length = func() int {
				if long.IntN(20) == 0 {
					return 16 * shortAnswer
				}
				return shortAnswer
			}
			l.driveFor(c, 2*time.Minute)
		}},
}

// run runs the case in a bubble.
func (h *healthyCase) run(t *testing.T, policy string, stream bool, r *result) {
	c := newCluster(t, policy, h.engines...)
	l := usualLoad(stream, sharedPrefix, 2)
	l.patient = true
	time.Sleep(firstChecks)
	h.drive(c, l)
	for _, s := range l.wait() {
		r.requests++
		r.longest = max(r.longest, s.ended.Sub(s.began))
		if s.err != nil {
			r.failed++
		}
	}
	r.openings = int(c.metric("tierway_breaker_transitions_total", `to="open"`))
	r.failedChecks = int(c.metric("tierway_health_checks_total", `result="failed"`))
	for _, w := range c.workers {
		if !c.eligible(w) {
			r.ineligible++
		}
	}
	r.log = c.log.String()
}

// driveFor sends requests for a time.
func (l *load) driveFor(c *cluster, d time.Duration) { l.drive(c, time.Now().Add(d)) }

// burst sends n requests at once.
func (l *load) burst(c *cluster, n int) {
	for range n {
		l.start(c)
	}
}

// startPrompt sends one request with a prompt of that many tokens.
func (l *load) startPrompt(c *cluster, tokens int) {
	l.sent++
	l.startBody(c, chatBody(l.stream, text(-l.sent, tokens), "summarize"), tenantNames[0])
}
