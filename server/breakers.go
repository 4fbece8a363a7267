package server

import (
	"errors"
	"time"

	"tierway/breaker"
	"tierway/routing"
	"tierway/workers"
)

// breakersLocked configures the breakers of a pool's members, or makes them.
func (s *Server) breakersLocked(name string, c breaker.Config, members []breaker.Member) *breaker.Group {
	g := s.breakers[name]
	if g == nil {
		g = breaker.NewGroup(c, breaker.Options{
			Excluded: func(err error) bool { return errors.Is(err, routing.ErrExcluded) },
			Hard:     unreachable,
			Usable:   func(_ string, ref any) bool { return ref.(*member).usable() },
			Rand:     s.unit,
			OnChange: func(c breaker.Change) { s.breakerChanged(name, c) },
			OnKept:   func(id string, ref any) { s.spare(name, id, ref) },
		})
		s.breakers[name] = g
	}
	g.Configure(c, members)
	return g
}

// unit is a random number of [0, 1).
func (s *Server) unit() float64 {
	return float64(s.rand()>>11) / (1 << 53) // 53 bits: what a float64 holds exactly
}

// unreachable tells whether nobody took the connection.
func unreachable(err error) bool {
	var se *workers.SendError
	return errors.As(err, &se) && se.Phase == workers.PhaseConnect
}

// usable tells whether the worker is up and may be chosen.
func (m *member) usable() bool {
	weight := m.worker.Spec().Weight
	return m.worker.Status().Up && (weight == nil || *weight > 0)
}

// spare lets a worker that should be left, and is kept because too many are
// already, begin anew with little: one that fails at once would else look idle
// and get the most.
func (s *Server) spare(pool, id string, ref any) {
	s.mu.Lock()
	p := s.pools[pool]
	s.mu.Unlock()
	if p != nil {
		p.Warm(id, ref, time.Now())
	}
}

// breakerChanged tells the pool, the metrics and the log that a breaker has
// another state.
func (s *Server) breakerChanged(pool string, c breaker.Change) {
	s.mu.Lock()
	p := s.pools[pool]
	s.mu.Unlock()
	m := c.Ref.(*member)
	m.series.Breaker(c.To.String())
	if p != nil {
		switch c.To {
		case breaker.Open:
			p.SetOpen(c.ID, m, c.Until)
		case breaker.HalfOpen:
			p.SetOpen(c.ID, m, time.Time{})
		case breaker.Closed:
			p.SetOpen(c.ID, m, time.Time{})
			p.Warm(c.ID, m, time.Now())
		}
	}
	if c.To == breaker.Open {
		s.log.Warn("a worker's breaker is open", "worker", c.ID, "tier", pool, "cause", c.Cause, "until", c.Until.UTC().Format(time.RFC3339))
		return
	}
	s.log.Info("a worker's breaker is "+c.To.String(), "worker", c.ID, "tier", pool, "cause", c.Cause)
}

// pollEvery is how often breakers are read, which is what turns an open one
// half-open without any traffic.
const pollEvery = time.Second

// pollBreakers reads every breaker each second until done, and tells it of good
// health checks; and how many gateways live.
func (s *Server) pollBreakers(done <-chan struct{}) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s.shareAgain()
		for _, p := range s.snapshot.Load().pools {
			p.gates.Poll()
			for _, v := range p.routing.Snapshot(time.Now()) {
				m := v.Ref.(*member)
				if st := m.worker.Status(); st.Up && st.LastError == "" && !st.Asked.IsZero() {
					m.gate.Healthy(st.Asked)
				}
			}
		}
	}
}
