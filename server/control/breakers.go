package control

import (
	"errors"
	"time"

	"tierway/breaker"
	"tierway/http1"
	"tierway/routing"
	"tierway/workers"
)

// newBreaker returns the breaker of a pool's member.
func (ps *Pools) newBreaker(pool string, p *routing.Pool, m *Member, c breaker.Config) *breaker.Breaker {
	return breaker.New(c, breaker.Options{
		Outcome:  outcomeOf,
		Rand:     ps.randomUnit,
		OnChange: func(c breaker.Change) { ps.breakerChanged(pool, p, m, c) },
	})
}

// randomUnit returns a random number in [0, 1).
func (ps *Pools) randomUnit() float64 {
	return routing.Unit(ps.rand())
}

// outcomeOf returns the outcome that a breaker counts for the error of a request.
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
func (ps *Pools) breakerChanged(pool string, p *routing.Pool, m *Member, c breaker.Change) {
	now := time.Now()
	if c.To == breaker.Closed {
		p.Restore(m.Name, m, now)
	} else {
		p.Eject(m.Name, m, routing.Ejection{At: now, Until: c.Until, Unreachable: c.Unreachable, Slow: c.Slow})
	}
	if in := ps.current.Load().ByName[pool]; in == nil || in.Members[m.Name] != m {
		return // a reload has removed or replaced the worker
	}
	m.Series.BreakerChanged(c.To.String())
	if c.To == breaker.Open {
		ps.log.Warn("a worker's breaker is open", "worker", m.Name, "tier", pool, "cause", c.Cause, "until",
			c.Until.UTC().Format(time.RFC3339))
		return
	}
	if c.To == breaker.HalfOpen {
		p.RestartSilence(m.Name, m, now) // earlier silence does not count
	}
	ps.log.Info("a worker's breaker is "+c.To.String(), "worker", m.Name, "tier", pool, "cause", c.Cause)
}

// pollEvery is the interval at which breakers are polled. Without traffic, only a poll makes an open
// breaker half-open.
const pollEvery = time.Second

// pollBreakers polls every breaker each second until done is closed, and updates the number of live
// gateways.
func (ps *Pools) pollBreakers(done <-chan struct{}) {
	ps.recover.Every(pollEvery, done, "reading the breakers", func(now time.Time) {
		ps.updateGatewayCount()
		stopped := StoppedWorkers{}
		for _, p := range ps.live() {
			p.poll(now, stopped)
		}
		if len(stopped) > 0 {
			ps.onStopped(stopped)
		}
		ps.logSilent(stopped)
		for _, p := range ps.current.Load().Pools {
			p.measureRegions()
		}
	})
}

// poll makes the pool's breakers follow the time, good health checks and hangs. It adds the workers that have
// stopped answering.
func (p *livePool) poll(now time.Time, stopped StoppedWorkers) {
	p.Routing.DetectHangs(now)
	for _, v := range p.Routing.Snapshot(now) {
		m, st := v.Ref.(*Member), v.Ref.(*Member).Worker.Status()
		m.Gate.Poll()
		m.Gate.SetHung(v.HungAt)
		m.reportCheck(st, now)
		stopped.addIfStopped(&v, &st, now)
	}
}

// reportCheck reports the worker's last health check to its breaker if the check was good. Without
// health checks, nothing but a request can refute another gateway's finding, so the worker is probed.
func (m *Member) reportCheck(st workers.Status, now time.Time) {
	switch {
	case st.Health == workers.HealthOff:
		if m.Gate.View().Cause == breaker.CauseOtherGateway {
			m.Gate.Healthy(now)
		}
	case st.Up && st.LastError == "" && !st.CheckedAt.IsZero():
		m.Gate.Healthy(st.CheckedAt)
	}
}

// Suspect applies the finding of another gateway: it has opened its breaker of the pool's worker. The worker
// then receives no requests here until its health check, which runs at once, is good; it is probed
// afterwards. The caller reports each opening once. An unknown pool or worker is ignored, because the other
// gateway may have another configuration.
func (ps *Pools) Suspect(pool, worker string) {
	p := ps.current.Load().ByName[pool]
	if p == nil {
		return
	}
	if m := p.Members[worker]; m != nil && m.Gate.Suspect() {
		m.Worker.Suspect() // after the opening: an earlier check does not end it
	}
}

// showOpening is how long an opening counts as own at least: a good health check may end the open state before
// the next exchange with other gateways.
const showOpening = 5 * time.Second

// OwnOpenings returns the workers of the pool that this gateway has found failing, with the times at
// which their breakers opened: those that are open, and those that opened within the last five seconds. It
// leaves out findings of other gateways, which would otherwise return to them, and slow workers: a good
// health check and a probe do not show whether a worker is slow.
func (p *Pool) OwnOpenings(now time.Time) map[string]time.Time {
	openings := map[string]time.Time{}
	for name, m := range p.Members {
		v := m.Gate.View()
		if v.State == breaker.Open && v.Since.Equal(v.Found) || now.Sub(v.Found) < showOpening {
			openings[name] = v.Found
		}
	}
	return openings
}
