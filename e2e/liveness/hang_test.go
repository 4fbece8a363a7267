package liveness

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAWorkerThatHangsFailsFewRequests is the plain case: the default settings, two workers, five requests
// per second with one system message. The busier worker hangs while its /health goes on. Engines without
// metrics show nothing else; those with metrics show running requests only if they hang while they run some.
func TestAWorkerThatHangsFailsFewRequests(t *testing.T) {
	for _, k := range []struct {
		name   string
		engine engineConfig
		fault  string
	}{
		{"metrics/busy", usualEngine(), "hang-busy"},
		{"metrics/idle", usualEngine(), "hang-idle"},
		{"no-metrics/busy", usualEngine().silent(), "hang-busy"},
		{"no-metrics/idle", usualEngine().silent(), "hang-idle"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(k.name+"/"+answerKind(stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCluster(t, "", k.engine, k.engine)
					l := usualLoad(stream, sharedPrefix, 1)
					time.Sleep(time.Second)
					l.drive(c, time.Now().Add(16*time.Second))
					time.Sleep(4 * time.Second) // so that a worker can hang while it is idle
					sick, since := c.busiest(time.Time{}), time.Now()
					if err := faultNamed(k.fault).begin(sick); err != nil {
						t.Fatal(err)
					}
					const requests = 120
					l.driveCount(c, requests)
					if failed := len(l.failures(since)); failed > 5 {
						t.Errorf("%d of %d requests failed after %s hung, not at most 5\n%s", failed, requests, sick.name, c.log)
					}
				})
			})
		}
	}
}

// busiest returns the worker to which most requests were sent since a time.
func (c *cluster) busiest(since time.Time) (most *process) {
	sent := map[string]int{}
	for _, a := range c.wire.all() {
		if !a.began.Before(since) {
			sent[a.address]++
		}
	}
	for _, w := range c.workers {
		if most == nil || sent[w.address] > sent[most.address] {
			most = w
		}
	}
	return most
}
