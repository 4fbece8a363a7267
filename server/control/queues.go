package control

import (
	"time"

	"tierway/queue"
	"tierway/telemetry"
	"tierway/tenants"
)

// tickEvery is how often a queue with requests is read for what only time changes: ages,
// backoffs that end, workers that stay down.
const tickEvery = 100 * time.Millisecond

// tickQueues lets time pass in the queues until done is closed. Run calls it.
func (ps *Pools) tickQueues(done <-chan struct{}) {
	ps.recover.Every(tickEvery, done, "letting time pass in the queues", func(now time.Time) {
		for _, p := range ps.live() {
			ps.passQueue(p.WaitQueue, now)
		}
	})
}

// passQueue dispatches what the queue can dispatch. The caller has returned a slot
// for all waiting requests: a panic here must not end the caller's own request.
func (ps *Pools) passQueue(q *queue.Queue, now time.Time) {
	if q.Waiting() == 0 {
		return
	}
	ps.recover.Run("dispatching from a queue", func() { q.Dispatch(now) })
}

// QueueGauges returns every queue as a scrape shows it.
func (ps *Pools) QueueGauges() []telemetry.QueueGauges {
	now := time.Now()
	var out []telemetry.QueueGauges
	for _, p := range ps.snapshot().Pools {
		v := p.WaitQueue.View(now)
		g := telemetry.QueueGauges{Tier: p.Name, Bytes: v.Bytes, Stale: p.Routing.StaleSeconds(),
			MaxBytes: p.Queue.MaxBytes, MaxDepth: p.Queue.MaxDepth}
		for i, name := range tenants.Classes() {
			g.Classes = append(g.Classes, classGauges(name, &v.Classes[i]))
		}
		out = append(out, g)
	}
	return out
}

// classGauges shows one class of a queue to a scrape.
func classGauges(name string, c *queue.ClassView) telemetry.ClassGauges {
	g := telemetry.ClassGauges{Class: name, Depth: c.Depth, Oldest: c.Oldest, Entered: c.Entered, Dispatched: c.Dispatched,
		Promoted: c.Promoted, Abandoned: c.Abandoned, Expired: c.Expired}
	for i, reason := range queue.ShedReasons() {
		g.Shed = append(g.Shed, telemetry.ShedTotal{Reason: reason, Total: c.Shed[i]})
	}
	return g
}
