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

// gauges shows every worker to a scrape.
func (s *Server) gauges() []telemetry.WorkerGauges {
	var out []telemetry.WorkerGauges
	now := time.Now()
	for _, p := range s.snapshot.Load().pools {
		for _, v := range p.routing.Snapshot(now) {
			g := telemetry.WorkerGauges{Tier: p.Name, Worker: v.ID, Up: v.Up, Weight: v.Weight, Cooling: v.Cooling > 0, Inflight: v.Inflight,
				PendingTokens: v.PendingTokens, OutputTokens: v.OutputTokens, Waiting: v.Waiting, KVUsage: v.KVUsage,
				PrefillRate: v.Rate, Bound: v.Bound, Saturated: v.Saturated}
			if !v.Kept { // a worker that the ejection cap keeps in rotation can be used
				g.Breaker = int(v.Ref.(*member).gate.State())
			}
			if w := s.fleet.Get(v.ID); w != nil {
				st := w.Status()
				g.Running, g.ChecksOK, g.ChecksFailed = st.Running, st.Passed, st.Failed
			}
			out = append(out, g)
		}
	}
	return out
}
