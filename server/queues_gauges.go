package server

import (
	"time"

	"tierway/queue"
	"tierway/telemetry"
	"tierway/tenants"
)

// queueGauges shows every queue to a scrape.
func (s *Server) queueGauges() []telemetry.QueueGauges {
	now := time.Now()
	var out []telemetry.QueueGauges
	for _, p := range s.snapshot.Load().pools {
		v := p.queue.View(now)
		g := telemetry.QueueGauges{Tier: p.Name, Bytes: v.Bytes, Stale: p.routing.Stale(),
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
	g := telemetry.ClassGauges{Class: name, Depth: c.Depth, Oldest: c.Oldest, Entered: c.Entered, Granted: c.Granted,
		Promoted: c.Promoted, Left: c.Left, PutOut: c.PutOut}
	for i, reason := range queue.ShedReasons() {
		g.Shed = append(g.Shed, telemetry.ShedTotal{Reason: reason, Total: c.Shed[i]})
	}
	return g
}
