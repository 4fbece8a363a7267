package telemetry

import "github.com/prometheus/client_golang/prometheus"

// WorkerGauges is what a scrape shows of one worker at that moment.
type WorkerGauges struct {
	Tier, Worker  string
	Up            bool
	Weight        int // in force; 0: it gets no new requests
	Cooling       bool
	Inflight      int
	PendingTokens int64 // booked prompt tokens without a first content event yet
	OutputTokens  int64 // booked output tokens
	Waiting       int   // the engine's own queue, as scraped
	Running       int   // the engine's running requests, as scraped
	KVUsage       float64
	Breaker       int     // 0 closed, 1 half-open, 2 open
	PrefillRate   float64 // learned, tokens/s
	Bound         int     // requests at once, configured or learned; 0 for none
	Saturated     bool    // its own metrics keep new requests from it
	ChecksOK      int64   // total of health checks that the worker passed, since the gateway knows it
	ChecksFailed  int64   // total of those that it did not
}

// fleetSeries are in the order in which values returns them.
var fleetSeries = []series{
	{"tierway_worker_up", "1 while the worker's health checks pass and its engine reports neither sleep nor pause.", prometheus.GaugeValue},
	{"tierway_worker_weight", "The worker's weight in force, of the configuration or by hand; 0 while it is drained.", prometheus.GaugeValue},
	{"tierway_worker_cooling", "1 while the worker is in backoff and gets no requests: after 429, 503 with Retry-After or with a full engine queue, or after it refused the gateway's key.", prometheus.GaugeValue},
	{"tierway_worker_inflight", "Requests booked on the worker.", prometheus.GaugeValue},
	{"tierway_worker_pending_tokens", "Booked prompt tokens whose first content has not come.", prometheus.GaugeValue},
	{"tierway_worker_output_tokens", "Booked output tokens of requests in flight.", prometheus.GaugeValue},
	{"tierway_worker_engine_waiting", "Requests in the engine's own queue, as it reports them.", prometheus.GaugeValue},
	{"tierway_worker_engine_running", "Requests that the engine runs, as it reports them.", prometheus.GaugeValue},
	{"tierway_worker_kv_usage_ratio", "Share of the engine's KV cache in use, 0 to 1, as it reports it.", prometheus.GaugeValue},
	{"tierway_worker_breaker", "The worker's circuit breaker: 0 closed, 1 half-open, 2 open.", prometheus.GaugeValue},
	{"tierway_worker_prefill_tokens_per_second", "Prompt tokens a second that the worker prefills, as learned from its streams.", prometheus.GaugeValue},
	{"tierway_worker_bound", "Requests that the worker is given at once: max_inflight, or the learned bound; 0 while there is none.", prometheus.GaugeValue},
	{"tierway_worker_saturated", "1 while the engine's own queue or KV cache keeps new requests from the worker.", prometheus.GaugeValue},
}

// checkSeries counts the health checks of one worker by result.
var checkSeries = []series{
	{"tierway_health_checks_total", "Health checks of a worker by result: ok, failed.", prometheus.CounterValue},
}

func (g WorkerGauges) values() []float64 {
	return []float64{flag(g.Up), float64(g.Weight), flag(g.Cooling), float64(g.Inflight), float64(g.PendingTokens),
		float64(g.OutputTokens), float64(g.Waiting), float64(g.Running), g.KVUsage, float64(g.Breaker), g.PrefillRate,
		float64(g.Bound), flag(g.Saturated)}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ObserveFleet makes every scrape call read, which must be safe for concurrent
// use and quick. It is called once a process.
func (m *Metrics) ObserveFleet(read func() []WorkerGauges) {
	m.observe(func(send send) {
		for _, g := range read() {
			send(fleetSeries, []string{g.Tier, g.Worker}, g.values()...)
			send(checkSeries, []string{g.Tier, g.Worker, "ok"}, float64(g.ChecksOK))
			send(checkSeries, []string{g.Tier, g.Worker, "failed"}, float64(g.ChecksFailed))
		}
	}, fleetSeries, checkSeries)
}
