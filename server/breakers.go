package server

import (
	"errors"
	"time"

	"tierway/breaker"
	"tierway/http1"
	"tierway/routing"
)

// newBreaker makes the breaker of a pool's member.
func (s *Server) newBreaker(pool string, p *routing.Pool, m *member, c breaker.Config) *breaker.Breaker {
	return breaker.New(c, breaker.Options{
		Outcome:  outcomeOf,
		Rand:     s.unit,
		OnChange: func(c breaker.Change) { s.breakerChanged(pool, p, m, c) },
	})
}

// unit is a random number of [0, 1).
func (s *Server) unit() float64 {
	return routing.Unit(s.rand())
}

// outcomeOf is how a breaker counts the end of a request.
func outcomeOf(err error) breaker.Outcome {
	switch failed, _ := errors.AsType[*http1.SendError](err); {
	case err == nil:
		return breaker.Success
	case errors.Is(err, routing.ErrExcluded):
		return breaker.Excluded
	case errors.Is(err, routing.ErrSlow):
		return breaker.TooSlow
	case failed != nil && failed.Phase == http1.PhaseConnect:
		return breaker.Unreachable
	}
	return breaker.Failure
}

// breakerChanged reports a breaker's new state to its pool, the metrics and the log.
func (s *Server) breakerChanged(pool string, p *routing.Pool, m *member, c breaker.Change) {
	now := time.Now()
	if c.To == breaker.Closed {
		p.Restore(m.name, m, now)
	} else {
		p.Eject(m.name, m, routing.Ejection{At: now, Until: c.Until, Unreachable: c.Unreachable, Slow: c.Slow})
	}
	if snap := s.snapshot.Load(); snap == nil || snap.byName[pool] == nil || snap.byName[pool].members[m.name] != m {
		return // a reload has removed or replaced the worker
	}
	m.series.Breaker(c.To.String())
	if c.To == breaker.Open {
		s.log.Warn("a worker's breaker is open", "worker", m.name, "tier", pool, "cause", c.Cause, "until", c.Until.UTC().Format(time.RFC3339))
		return
	}
	if c.To == breaker.HalfOpen {
		m.live.forget() // what was silent before is no part of the trial
	}
	s.log.Info("a worker's breaker is "+c.To.String(), "worker", m.name, "tier", pool, "cause", c.Cause)
}

// pollEvery is how often breakers are read, which is what turns an open one
// half-open without any traffic.
const pollEvery = time.Second

// pollBreakers reads every breaker each second until done, reports good health
// checks and hangs to it, and updates the number of live gateways.
func (s *Server) pollBreakers(done <-chan struct{}) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.keepRunning("reading the breakers", s.pollOnce)
	}
}

// pollOnce reads every breaker once.
func (s *Server) pollOnce() {
	s.shareAgain()
	for _, p := range s.livePools() {
		p.poll(time.Now())
	}
}

// poll reads the pool's breakers, and reports good health checks and hangs to them.
func (p *livePool) poll(now time.Time) {
	var members []*member
	for _, v := range p.routing.Snapshot(now) {
		members = append(members, v.Ref.(*member))
	}
	for _, m := range members {
		m.gate.Poll()
		m.gate.SetHung(m.hung(members, now))
		if st := m.worker.Status(); st.Up && st.LastError == "" && !st.Asked.IsZero() {
			m.gate.Healthy(st.Asked)
		}
	}
}
