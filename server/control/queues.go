package control

import (
	"time"

	"tierway/queue"
	"tierway/telemetry"
	"tierway/tenants"
)

// tickEvery is the interval at which queues with requests are dispatched for changes that only time
// makes: ages, the ends of backoffs, and workers that stay down.
const tickEvery = 100 * time.Millisecond

// startTicks starts the ticks of the queues. They end when no request waits.
func (ps *Pools) startTicks() { wake(ps.queued) }

// tickQueues dispatches from every queue at each tick while a request waits, until done is closed.
func (ps *Pools) tickQueues(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-ps.queued:
			ps.tickWhileQueued(done)
		}
	}
}

func (ps *Pools) tickWhileQueued(done <-chan struct{}) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for waiting := true; waiting; {
		select {
		case <-done:
			return
		case now := <-tick.C:
			ps.recover.Run("letting time pass in the queues", func() {
				n := 0
				for _, p := range ps.live() {
					ps.dispatchQueue(p.WaitQueue, now)
					n += p.WaitQueue.Waiting()
				}
				waiting = n > 0 // unchanged after a panic
			})
		}
	}
}

// dispatchQueue dispatches the requests that workers can take. A request that releases its slot calls
// it for others, so a panic here must not end that request.
func (ps *Pools) dispatchQueue(q *queue.Queue, now time.Time) {
	if q.Waiting() == 0 {
		return
	}
	ps.recover.Run("dispatching from a queue", func() { q.Dispatch(now) })
}

// QueueGauges returns the values of all queues for a scrape of the metrics.
func (ps *Pools) QueueGauges() []telemetry.QueueGauges {
	now := time.Now()
	var out []telemetry.QueueGauges
	for _, p := range ps.current.Load().Pools {
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

// PredictionGauges returns how well each pool's routing predicts, for a scrape of the metrics.
func (ps *Pools) PredictionGauges() []telemetry.PredictionGauges {
	now := time.Now()
	var out []telemetry.PredictionGauges
	for _, p := range ps.current.Load().Pools {
		n := p.Routing.Predictions()
		g := telemetry.PredictionGauges{Tier: p.Name, Events: n.Events, History: n.History, None: n.None,
			WrongTokens: n.WrongTokens, Judged: n.Judged, Regretted: n.Regretted}
		if p.LooksUp() {
			g.Lookups = &telemetry.LookupPredictions{Total: n.Lookups}
		}
		for _, w := range p.Routing.Snapshot(now) {
			c := telemetry.CreditGauges{Worker: w.ID, Events: w.EventsCredit, History: w.HistoryCredit}
			if p.LooksUp() {
				c.Lookup = &telemetry.LookupCredit{Credit: w.LookupCredit}
			}
			g.Workers = append(g.Workers, c)
		}
		out = append(out, g)
	}
	return out
}

// classGauges returns the values of one class of a queue for a scrape.
func classGauges(name string, c *queue.ClassView) telemetry.ClassGauges {
	g := telemetry.ClassGauges{Class: name, Depth: c.Depth, Oldest: c.Oldest, Entered: c.Entered, Dispatched: c.Dispatched,
		Promoted: c.Promoted, Abandoned: c.Abandoned, Expired: c.Expired, Moved: c.Moved}
	for i, reason := range queue.ShedReasons() {
		g.Shed = append(g.Shed, telemetry.ShedTotal{Reason: reason, Total: c.Shed[i]})
	}
	return g
}
