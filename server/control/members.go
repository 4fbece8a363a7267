package control

import (
	"slices"
	"sync/atomic"
	"time"

	"tierway/breaker"
	"tierway/openai"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/workers"
	"tierway/workers/kvcache"
)

// Member is a worker in a pool, with the state that requests use. It lives as long as the worker and is
// safe for concurrent use.
type Member struct {
	Worker   *workers.Worker
	Name     string
	Series   *telemetry.Worker
	Gate     *breaker.Breaker
	Stats    workerStats
	Evidence evidence // the last requests that failed on the worker
	Events   *kvcache.Worker
	// Handovers are the prompts that the worker keeps for others.
	Handovers Handovers
	// Transfers are the prompts of others that it has failed to read.
	Transfers Failures
	// Closures are the requests to send once on which it closed a kept connection. The first one does not blame it.
	Closures Failures
	// Pairs are its failures with workers of the other stage of SGLang.
	Pairs Pairs

	// RejectsAccounting is set if the engine answered 400 to a field that was added for accounting.
	// The field is then omitted until the engine has been down.
	RejectsAccounting atomic.Bool
	// RejectsPriority is the same for the field that orders the engine's own queue.
	RejectsPriority atomic.Bool
	// SendsFinish is set once a stream of the engine had the reason why generation ended.
	SendsFinish atomic.Bool

	hasTimings atomic.Bool              // see HasTimings
	adapters   atomic.Pointer[[]string] // LoRA adapters that the engine lists
	models     atomic.Pointer[[]string] // models that it listed when warnOfModel was last called
	down       atomic.Bool              // after the last check; another engine may come up in its place

	stoppedAt time.Time // see Stop.Since; used by the poll only

	tokenizeAfter atomic.Int64 // end of the backoff of requests for tokens, in Unix nanoseconds
}

// memberOf returns the member for a worker of the pool: the one of was, the previous pool of that
// name, if its worker is the same, else a new one.
func (ps *Pools) memberOf(p, was *Pool, name string, reasons []string) *Member {
	w := ps.fleet.Get(name)
	var m *Member
	if was != nil {
		m = was.Members[name]
	}
	if m == nil || m.Worker != w {
		m = &Member{Worker: w, Name: name, Series: ps.metrics.Worker(p.Name, name, p.Policy.Name, reasons)}
		m.hasTimings.Store(p.Engine == openai.EngineLlamaCpp)
		m.Events = p.Caches.Add(name, m)
	}
	m.Series.SetPolicy(p.Policy.Name, reasons)
	return m
}

// forgetWorkers ends the event streams of workers that were removed or replaced. It removes the
// metrics of workers that were removed or moved to another pool.
func (ps *Pools) forgetWorkers(was *Snapshot) {
	for _, p := range was.Pools {
		for name, m := range p.Members {
			now := ps.fleet.Get(name)
			if now != m.Worker {
				m.Events.Remove()
			}
			if now == nil || now.Pool() != p.Name {
				ps.metrics.RemoveWorker(name)
			}
		}
	}
}

// statusOf returns the part of the worker's status that routing uses.
func (m *Member) statusOf(st *workers.Status) routing.Status {
	return routing.Status{Up: st.Up && st.Suspended == "", Waiting: st.Waiting, KVUsage: st.KVUsage, LoadAt: st.LoadAt,
		SteppedAt: st.SteppedAt, StalledSince: st.StalledSince, CacheTokens: m.Worker.CacheTokens(st)}
}

// observe applies the result of a health check or a scrape to the worker's pool.
func (ps *Pools) observe(w *workers.Worker, st workers.Status) {
	p := ps.current.Load().ByName[w.Pool()]
	if p == nil {
		return
	}
	if m := p.Members[w.Name()]; m != nil && m.Worker == w {
		ps.hintAdapters(p, m, st.Adapters)
		ps.warnOfModel(p, m, &st)
		p.observe(m, st)
		m.reportCheck(st, time.Now()) // the next poll may be a second away
	}
}

// hintAdapters logs, once for each list of a worker's LoRA adapters, those that clients cannot request.
func (ps *Pools) hintAdapters(p *Pool, m *Member, listed []string) {
	if was := m.adapters.Load(); was != nil && slices.Equal(*was, listed) {
		return
	}
	unnamed := slices.DeleteFunc(slices.Clone(listed), func(name string) bool { return slices.Contains(p.Models, name) })
	if len(unnamed) > 0 {
		ps.log.Info("the engine serves LoRA adapters that no client can request: add them to 'models' of the tier or pool",
			"worker", m.Name, "pool", p.Name, "adapters", unnamed[:min(len(unnamed), adaptersLogged)])
	}
}

// warnOfModel logs, once for each list of a worker's models, that the list lacks the model of its pool. llama.cpp
// accepts any name, and Ollama the name without its tag latest.
func (ps *Pools) warnOfModel(p *Pool, m *Member, st *workers.Status) {
	listed := st.Models
	if last := m.models.Swap(&listed); last != nil && slices.Equal(*last, listed) || len(listed) == 0 || p.Model == "" ||
		openai.Engine(st.Engine) == openai.EngineLlamaCpp || slices.Contains(listed, p.Model) ||
		slices.Contains(listed, p.Model+":latest") {
		return
	}
	ps.log.Warn("the engine does not list the model of its tier or pool, so it may refuse each request: set 'model' to a "+
		"listed name", "worker", m.Name, "pool", p.Name, "model", p.Model, "listed", listed[:min(len(listed), adaptersLogged)])
}

// adaptersLogged is the number of adapters, or models, in one line of the log.
const adaptersLogged = 10

// observe applies the status of one of the pool's workers.
func (p *Pool) observe(m *Member, st workers.Status) {
	p.observeMember(m, &st)
	p.Routing.Observe(m.Name, m, m.statusOf(&st))
}

// observeAll applies the current status of some members of the pool, in one step.
func (p *Pool) observeAll(some []*Member) {
	all := make(map[any]routing.Status, len(some))
	for _, m := range some {
		st := m.Worker.Status()
		p.observeMember(m, &st)
		all[m] = m.statusOf(&st)
	}
	if len(all) > 0 {
		p.Routing.ObserveAll(all)
	}
}

// observeMember applies the parts of a worker's status that routing does not use.
func (p *Pool) observeMember(m *Member, st *workers.Status) {
	if openai.Engine(st.Engine) == openai.EngineLlamaCpp {
		m.hasTimings.Store(true)
	}
	if was := m.down.Swap(!st.Up); was && st.Up {
		m.RejectsAccounting.Store(false)
		m.RejectsPriority.Store(false)
		m.SendsFinish.Store(false)
		p.Routing.RestartSilence(m.Name, m, time.Now())
	}
	m.Worker.ConfigureEvents(m.Events, st, p.UsesCaches())
	m.adapters.Store(&st.Adapters)
}

// HasTimings reports whether the engine is llama.cpp. Its last chunk then has timings unless usage was
// requested. They hold the same numbers as usage, and clients of llama.cpp show them.
func (m *Member) HasTimings() bool { return m.hasTimings.Load() }

// NameFor returns the name of the worker in records of a dialect: the server's, if the engine chooses the rank.
func (m *Member) NameFor(d openai.Dialect) string {
	if m.Worker.IgnoresRank(d) {
		return m.Worker.ServerName()
	}
	return m.Name
}

// Engine returns the engine of the worker, as workers.Worker does.
func (m *Member) Engine() openai.Engine { return m.Worker.Engine() }

// LiveWorker is the state of one worker at one moment: the views of its pool, its health checks and its
// breaker. Metrics, the admin API and readiness use the same value.
type LiveWorker struct {
	routing.WorkerView
	*Member
	Health  workers.Status
	Breaker breaker.View
	KV      kvcache.View // what the engine's events say about its cache
}

// LiveWorkers returns the workers of the pool in the order of the configuration.
func (p *livePool) LiveWorkers(now time.Time) []LiveWorker {
	views := p.Routing.Snapshot(now)
	all := make([]LiveWorker, len(views))
	for i, v := range views {
		m := v.Ref.(*Member)
		all[i] = LiveWorker{WorkerView: v, Member: m, Health: m.Worker.Status(), Breaker: m.Gate.View(),
			KV: m.Events.View()}
	}
	return all
}

// State returns the worker's state as the admin API shows it.
func (w *LiveWorker) State() string {
	switch {
	case w.Health.Up && w.Health.Suspended != "":
		return string(w.Health.Suspended)
	case !w.Up:
		return "down"
	case w.Breaker.State != breaker.Closed && !w.EjectionDenied:
		return w.Breaker.State.String()
	case w.Backoff > 0:
		return "backoff"
	}
	return "up"
}

// Load returns the load of the worker.
func (w *LiveWorker) Load() telemetry.WorkerLoad {
	return telemetry.WorkerLoad{
		Weight:           w.Weight,
		EffectiveWeight:  w.EffectiveWeight(),
		SuccessRatio:     w.SuccessRatio,
		Inflight:         w.Inflight,
		OthersInflight:   w.OthersInflight,
		HistoryTokens:    w.HistoryTokens,
		PendingTokens:    w.PendingTokens,
		OutputTokens:     w.OutputTokens,
		Waiting:          w.Waiting,
		Running:          w.Health.Running,
		KVUsage:          w.KVUsage,
		ConcurrencyLimit: w.ConcurrencyLimit,
		Saturated:        w.Saturated,
	}
}

// Gauges returns the values of all workers for a scrape of the metrics.
func (ps *Pools) Gauges() []telemetry.WorkerGauges {
	var out []telemetry.WorkerGauges
	now := time.Now()
	for _, p := range ps.current.Load().Pools {
		for _, w := range p.LiveWorkers(now) {
			g := telemetry.WorkerGauges{
				Tier:         p.Name,
				Worker:       w.ID,
				Up:           w.Up,
				WorkerLoad:   w.Load(),
				Backoff:      w.Backoff > 0,
				PrefillRate:  w.Rate,
				ChecksOK:     w.Health.Passed,
				ChecksFailed: w.Health.Failed,
			}
			if !w.EjectionDenied { // a worker that the ejection cap keeps in rotation can be used
				g.Breaker = int(w.Breaker.State)
			}
			g.Events = eventGauges(&w.KV)
			if p.Handover != "" {
				g.Handovers = &telemetry.HandoverGauges{Open: w.Handovers.Open(now)}
			}
			out = append(out, g)
		}
	}
	return out
}

// NameHash returns a hash of a name or body, or 0 for an empty one. It is the same in every gateway.
func NameHash[T string | []byte](name T) uint64 {
	if len(name) == 0 {
		return 0
	}
	return routing.Mix(routing.HashText(name))
}

// modelHashes returns the hashes of model names that routing compares.
func modelHashes(names []string) []uint64 {
	var out []uint64
	for _, n := range names {
		out = append(out, NameHash(n))
	}
	return out
}
