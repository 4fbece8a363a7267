package server

import (
	"sync/atomic"
	"time"

	"tierway/breaker"
	"tierway/openai"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/workers"
)

// member is one worker as requests use it. It lives as long as the worker.
type member struct {
	worker *workers.Worker
	name   string
	series *telemetry.Worker
	gate   *breaker.Breaker
	stats  *workerStats
	// refuses is set when the engine answered 400 to a field that was added
	// for accounting; nothing is added for it again while it is up.
	refuses atomic.Bool
	// unranked is likewise set of the field for its own queue's order.
	unranked atomic.Bool
	// down is set while it is: what comes up again may be another engine.
	down atomic.Bool
	// timed is set for llama.cpp, whose last chunk has its timings unless usage
	// was asked for: they say the same, and its clients show them.
	timed atomic.Bool
	// evidence is what it failed last.
	evidence evidence
	live     liveness
}

// memberLocked returns a worker of the pool: that of was if it is the same one.
func (s *Server) memberLocked(p, was *pool, name string, reasons []string) *member {
	w := s.fleet.Get(name)
	var m *member
	if was != nil {
		m = was.members[name]
	}
	if m == nil || m.worker != w {
		m = &member{worker: w, name: name, stats: &workerStats{}, series: s.metrics.Worker(p.Name, name, p.Policy.Name, reasons)}
	}
	m.series.Under(p.Policy.Name, reasons)
	m.timed.Store(p.Engine == openai.EngineLlamaCpp || m.timed.Load())
	return m
}

// forgetWorkersLocked drops the series of the workers that are gone or in another pool.
func (s *Server) forgetWorkersLocked(was *snapshot) {
	if was == nil {
		return
	}
	for _, p := range was.pools {
		for name := range p.members {
			if now := s.fleet.Get(name); now == nil || now.Pool() != p.Name {
				s.metrics.ForgetWorker(name)
			}
		}
	}
}

// statusOf is what a pool is told of a worker's status.
func statusOf(st workers.Status) routing.Status {
	return routing.Status{Up: st.Up && st.Suspended == "", Waiting: st.Waiting, KVUsage: st.KVUsage, LoadAt: st.LoadAt}
}

// observe is told by the fleet what a health check or a scrape has found.
func (s *Server) observe(w *workers.Worker, st workers.Status) {
	s.mu.Lock()
	p := s.snapshot.Load().pool(w.Pool())
	s.mu.Unlock()
	if p == nil {
		return
	}
	m := p.members[w.Name()]
	if m == nil || m.worker != w {
		return
	}
	if openai.Engine(st.Engine) == openai.EngineLlamaCpp {
		m.timed.Store(true)
	}
	if was := m.down.Swap(!st.Up); was && st.Up {
		m.refuses.Store(false)
		m.unranked.Store(false)
		m.live.forget()
	}
	p.routing.Observe(w.Name(), m, statusOf(st))
}

// engine is what the worker runs, as configured or as its answers tell.
func (m *member) engine() openai.Engine {
	if e := openai.Engine(m.worker.Spec().Engine); e != openai.EngineAuto && e != "" {
		return e
	}
	return openai.Engine(m.worker.Status().Engine)
}

// liveWorker is one worker at one moment: as its pool, its health checks and its breaker
// know it. Metrics, the admin API and readiness show it.
type liveWorker struct {
	routing.WorkerView
	*member
	health  workers.Status
	breaker breaker.View
}

// workersNow returns the workers of the pool in the order of the configuration.
func (p *livePool) workersNow(now time.Time) []liveWorker {
	views := p.routing.Snapshot(now)
	all := make([]liveWorker, len(views))
	for i, v := range views {
		m := v.Ref.(*member)
		all[i] = liveWorker{WorkerView: v, member: m, health: m.worker.Status(), breaker: m.gate.View()}
	}
	return all
}

// canServe tells whether the worker takes requests now or when one ends.
func (w *liveWorker) canServe() bool { return w.Up && w.Weight > 0 && w.Open == 0 }

// state is the word for the worker's state.
func (w *liveWorker) state() string {
	switch {
	case w.health.Up && w.health.Suspended != "":
		return string(w.health.Suspended)
	case !w.Up:
		return "down"
	case w.breaker.State != breaker.Closed && !w.Kept:
		return w.breaker.State.String()
	case w.Cooling > 0:
		return "cooling"
	}
	return "up"
}

// gauges shows every worker to a scrape.
func (s *Server) gauges() []telemetry.WorkerGauges {
	var out []telemetry.WorkerGauges
	now := time.Now()
	for _, p := range s.snapshot.Load().pools {
		for _, w := range p.workersNow(now) {
			g := telemetry.WorkerGauges{Tier: p.Name, Worker: w.ID, Up: w.Up, Weight: w.Weight, Cooling: w.Cooling > 0, Inflight: w.Inflight,
				PendingTokens: w.PendingTokens, OutputTokens: w.OutputTokens, Waiting: w.Waiting, Running: w.health.Running, KVUsage: w.KVUsage,
				PrefillRate: w.Rate, Bound: w.Bound, Saturated: w.Saturated, ChecksOK: w.health.Passed, ChecksFailed: w.health.Failed}
			if !w.Kept { // a worker that the ejection cap keeps in rotation can be used
				g.Breaker = int(w.breaker.State)
			}
			out = append(out, g)
		}
	}
	return out
}
