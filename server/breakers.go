package server

import (
	"errors"
	"time"

	"tierway/breaker"
	"tierway/http1"
	"tierway/routing"
)

// breakersLocked configures the breakers of a pool's members, or makes them.
func (s *Server) breakersLocked(name string, p *routing.Pool, c breaker.Config, members []breaker.Member) *breaker.Group {
	g := s.breakers[name]
	if g == nil {
		g = breaker.NewGroup(c, breaker.Options{
			Excluded: func(err error) bool { return errors.Is(err, routing.ErrExcluded) },
			Hard:     unreachable,
			Usable:   func(_ string, ref any) bool { return ref.(*member).usable() },
			Rand:     s.unit,
			OnChange: func(c breaker.Change) { s.breakerChanged(name, p, c) },
			// A worker that the ejection cap keeps in rotation starts slowly: one that
			// fails at once would look idle and get the most.
			OnKept: func(id string, ref any) { p.Warm(id, ref, time.Now()) },
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
	var se *http1.SendError
	return errors.As(err, &se) && se.Phase == http1.PhaseConnect
}

// usable tells whether the worker is up and may be chosen.
func (m *member) usable() bool {
	weight := m.worker.Spec().Weight
	st := m.worker.Status()
	return st.Up && st.Suspended == "" && (weight == nil || *weight > 0)
}

// breakerChanged reports a breaker's new state to its pool, the metrics and the log.
func (s *Server) breakerChanged(name string, p *routing.Pool, c breaker.Change) {
	m := c.Ref.(*member)
	m.series.Breaker(c.To.String())
	switch c.To {
	case breaker.Open:
		p.SetOpen(c.ID, m, c.Until)
	case breaker.HalfOpen:
		p.SetOpen(c.ID, m, time.Time{})
		m.live.forget() // what was silent before is no part of the trial
	case breaker.Closed:
		p.SetOpen(c.ID, m, time.Time{})
		p.Warm(c.ID, m, time.Now())
	}
	if c.To == breaker.Open {
		s.log.Warn("a worker's breaker is open", "worker", c.ID, "tier", name, "cause", c.Cause, "until", c.Until.UTC().Format(time.RFC3339))
		return
	}
	s.log.Info("a worker's breaker is "+c.To.String(), "worker", c.ID, "tier", name, "cause", c.Cause)
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
	for _, p := range s.pooledNow() {
		p.poll(time.Now())
	}
}

// poll reads the pool's breakers, and reports good health checks and hangs to them.
func (p pooled) poll(now time.Time) {
	p.gates.Poll()
	var members []*member
	for _, v := range p.routing.Snapshot(now) {
		members = append(members, v.Ref.(*member))
	}
	for _, m := range members {
		m.gate.Hang(m.hung(members, now))
		if st := m.worker.Status(); st.Up && st.LastError == "" && !st.Asked.IsZero() {
			m.gate.Healthy(st.Asked)
		}
	}
}
