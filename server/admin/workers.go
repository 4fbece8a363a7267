package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"tierway/openai"
	"tierway/routing"
	"tierway/server/control"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/workers/kvcache"
	"tierway/workers/kvstream"
)

// workerState is one worker as GET /admin/workers shows it.
type workerState struct {
	Name   string   `json:"name"`
	Pool   string   `json:"pool"`
	Tier   bool     `json:"tier" doc:"true: the pool is a tier."`
	Rank   *int     `json:"rank,omitempty" doc:"Data-parallel rank of the server that the worker is. Absent: the engine chooses the rank of a request."`
	Model  string   `json:"model" doc:"Model of the pool. Empty: the model that the client requests."`
	Region string   `json:"region,omitempty" doc:"Region of the worker."`
	Role   string   `json:"role,omitempty" enum:"prefill,decode,both" doc:"Absent in a pool without handover, like stages."`
	Models []string `json:"models" nullable:"false" doc:"Further configured models, then the models that the engine lists."`

	State     string        `json:"state" enum:"up,down,asleep,paused,backoff,open,half_open,draining,drained" doc:"asleep and paused: the engine reports that it runs no requests. open: breaker.cause has the reason. backoff: the worker returned 429, 503 or 529, or refused the gateway's key."`
	Since     string        `json:"since,omitempty" doc:"Time when the worker came up or went down."`
	LastError string        `json:"last_error,omitempty" doc:"Cause of the last failed check. Absent once the worker is healthy."`
	Failure   *failureState `json:"last_failure,omitempty" doc:"Last failed attempt on the worker. Failures that the request or the client caused are left out."`
	RoundTrip float64       `json:"round_trip_ms,omitempty" doc:"Time of a health check on a new connection, without delays by the engine. It orders regions that regions.order does not list. Absent: unknown."`

	WorkerLoad

	Stages        routing.Stages `json:"stages,omitempty" doc:"What the worker serves, as a list such as whole,decode. whole: requests of which it computes the prompt; prefill: prompts for other workers; decode: answers from prompts that others have computed."`
	OpenHandovers *int           `json:"open_handovers,omitempty" doc:"Prompts that the worker keeps until other workers have read them, or until handover_lease ends. Absent if it computes none for others."`

	Weights workerWeights `json:"weights"`
	Drain   *drainState   `json:"drain,omitempty"`

	Totals       workerTotals `json:"totals"`
	Latency      timesState   `json:"latency" doc:"Durations of whole requests, and of prefill stages for other workers, in the last 5 to 10 minutes."`
	TTFT         timesState   `json:"ttft" doc:"Times to the first event in the last 5 to 10 minutes."`
	LastSelected *time.Time   `json:"last_selected,omitempty"`
	Distribution distribution `json:"distribution" doc:"The worker's share of its pool's requests."`

	Breaker breakerState            `json:"breaker"`
	Events  *eventsState            `json:"kv_events,omitempty" doc:"KV-cache events of the worker's engine. Absent if none are read."`
	Learned routing.WorkerEstimates `json:"learned"`

	inRotation bool // the pool sends requests to the worker
}

// WorkerLoad is the load of a worker.
type WorkerLoad struct {
	telemetry.WorkerLoad

	Share        float64 `json:"share" doc:"Fraction of the worker's usual load; below 1 during slow start."`
	MaxInflight  int     `json:"max_inflight" doc:"Configured maximum of in-flight requests. 0: unlimited."`
	BoundLearned bool    `json:"bound_learned" doc:"true: the concurrency limit is learned from times to first token."`
	Tokens       int64   `json:"tokens_inflight" doc:"Tokens of in-flight prompts, cached or not, and their expected answers."`
	MaxTokens    int64   `json:"max_tokens_inflight" doc:"Configured maximum of tokens_inflight. 0: unlimited."`
	Stale        bool    `json:"metrics_stale" doc:"The engine's metrics are too old and are ignored."`
}

type failureState struct {
	At        time.Time `json:"at"`
	Status    int       `json:"status,omitempty" doc:"Status of the worker's answer. Absent: it sent none."`
	Message   string    `json:"message" doc:"Beginning of the engine's error, unless it repeats a part of the request; otherwise the failure that the gateway found."`
	RequestID string    `json:"request_id"`
}

type breakerState struct {
	State               string  `json:"state"`
	Since               string  `json:"since" doc:"Time of the last state change; before the first one, the time when the gateway added the worker."`
	Until               string  `json:"until,omitempty" doc:"Time when an open breaker admits a trial request."`
	Cause               string  `json:"cause,omitempty" doc:"Cause of the last state change."`
	Failures            int     `json:"failures" doc:"Failed requests within the window."`
	Requests            int     `json:"requests" doc:"Requests within the window."`
	ConsecutiveFailures int     `json:"consecutive_failures"`
	SlowRatio           float64 `json:"slow_ratio" doc:"How much slower the worker streams than its peers, as a ratio. 0: unknown."`
	Samples             int     `json:"slow_samples"`
}

type workerWeights struct {
	Effective int             `json:"effective"`
	File      int             `json:"file"`
	Override  *store.Override `json:"override,omitempty"`
	Version   int64           `json:"version" doc:"Version of the override, for If-Match as \"v…\". 0: there is no override."`
}

type workerTotals struct {
	Requests requestTotals `json:"requests"`
	Tokens   tokenTotals   `json:"tokens"`
}

type requestTotals struct {
	OK       int64 `json:"ok"`
	Excluded int64 `json:"excluded" doc:"Requests that say nothing about the worker: the client disconnected, or the request was at fault."`
	Error    int64 `json:"error"`
}

type tokenTotals struct {
	Prompt int64 `json:"prompt" doc:"Tokens of the prompts that the worker computed or had cached. A prompt that another worker handed over counts for that worker. For streamed prefill stages of SGLang the tokens are estimated."`
	Cached int64 `json:"cached" doc:"Cached prompt tokens; part of prompt."`
	Output int64 `json:"output"`
}

type timesState struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
}

type distribution struct {
	Now      float64 `json:"now" doc:"Share of the attempts in the last 5 to 10 minutes. In a pool with handover: of those on workers with the same stages."`
	Expected float64 `json:"expected" doc:"Expected share by the weights of the workers in rotation, in a pool with handover of those with the same stages."`
}

type poolState struct {
	Policy   string           `json:"policy"`
	Handover string           `json:"handover,omitempty" enum:"nixl,p2p_nccl,shared,sglang" doc:"How the workers compute prompts for each other. Absent: each one computes its own."`
	Prefill  string           `json:"prefill_policy,omitempty" doc:"Policy that selects the worker that computes a prompt for another one."`
	Rate     float64          `json:"prefill_rate" doc:"Prefill rate of a typical worker, in tokens per second."`
	Output   routing.Estimate `json:"output_tokens" doc:"Estimated output tokens of an answer."`
	Scale    routing.Estimate `json:"prompt_scale" doc:"Prompt tokens by the engine's count for each estimated token."`
	Depth    *depthState      `json:"depth,omitempty"`
}

// depthState describes the prefix lengths from which the policy chwbl makes its keys.
type depthState struct {
	Shared  int   `json:"shared_blocks" doc:"Number of leading blocks that most of the traffic shares."`
	Splits  int   `json:"splits" doc:"Number of prefixes with too much load for one worker."`
	Changes int64 `json:"changes" doc:"Number of changes of these values."`
}

type workersView struct {
	Workers []workerState        `json:"workers" nullable:"false"`
	Pools   map[string]poolState `json:"pools" nullable:"false"`
}

type workerAPI struct {
	*gateway
	drains sync.Map // drainBegun by worker, of the drains that began on this gateway
}

func (a *workerAPI) listWorkers(context.Context, *struct{}) (*reply[workersView], error) {
	return &reply[workersView]{Body: workersOf(a.allPools(time.Now()))}, nil
}

type poolView struct {
	*control.Pool
	workers []workerState
	learned poolState
}

func (a *workerAPI) allPools(now time.Time) []poolView {
	return mapped(a.control.Snapshot().Pools, func(p *control.Pool) poolView {
		states, learned := a.poolWorkers(p, now)
		return poolView{p, states, learned}
	})
}

// workersOf returns the workers of all pools as GET /admin/workers shows them.
func workersOf(pools []poolView) workersView {
	out := workersView{Workers: []workerState{}, Pools: map[string]poolState{}}
	for _, p := range pools {
		out.Workers = append(out.Workers, p.workers...)
		out.Pools[p.Name] = p.learned
	}
	return out
}

func (a *workerAPI) workerNamed(name string) (*control.Pool, workerState, error) {
	for _, p := range a.control.Snapshot().Pools {
		states, _ := a.poolWorkers(p, time.Now())
		if i := slices.IndexFunc(states, func(w workerState) bool { return w.Name == name }); i >= 0 {
			return p, states[i], nil
		}
	}
	return nil, workerState{}, notFound("worker", name)
}

func (a *workerAPI) getWorker(_ context.Context, in *WorkerPath) (*tagged[workerState], error) {
	_, w, err := a.workerNamed(in.Name)
	if err != nil {
		return nil, err
	}
	return &tagged[workerState]{ETag: etag(w.Weights.Version), Body: w}, nil
}

func (a *workerAPI) poolWorkers(p *control.Pool, now time.Time) ([]workerState, poolState) {
	learned, ws := p.Routing.Estimates(), p.LiveWorkers(now)
	byID := map[string]routing.WorkerEstimates{}
	for _, w := range learned.Workers {
		byID[w.ID] = w
	}
	file, overrides := map[string]int{}, a.control.OverridesNow()
	for _, spec := range a.control.Snapshot().Base.Specs() {
		file[spec.Name] = *spec.Weight
	}
	shares := expectedShares(ws, nil)
	states := make([]workerState, len(ws))
	recent := map[routing.Stages]int64{}
	for i, v := range ws {
		stats := v.Stats.View(now)
		st := workerStateOf(p, &v, stats, byID[v.ID], now)
		st.Distribution = distribution{Now: float64(stats.Recent), Expected: shares[v.ID]}
		recent[v.Stages] += stats.Recent
		st.Weights = workerWeights{Effective: v.Weight, File: file[v.ID], Override: control.OverrideOf(overrides, v.ID)}
		if o := st.Weights.Override; o != nil {
			st.Weights.Version = o.Number()
		}
		a.addDrain(&st, now)
		states[i] = st
	}
	for i := range states {
		states[i].Distribution.Now /= float64(max(recent[states[i].Stages], 1))
	}
	st := poolState{Policy: p.Policy.Name, Rate: learned.Rate, Output: learned.OutputTokens, Scale: learned.PromptScale}
	if st.Handover = p.Handover; p.Handover != "" {
		st.Prefill = p.PrefillPolicy.Name
	}
	if adaptive, ok := p.Picker.(routing.Adaptive); ok {
		st.Depth = new(depthState(adaptive.Depth()))
	}
	return states, st
}

func timesOf(t control.TimesView) timesState {
	return timesState{Count: t.Count, Mean: millis(t.Mean), P95: millis(t.P95), P99: millis(t.P99)}
}

// modelsOf returns the configured models of a worker, then further models that its engine lists.
func modelsOf(configured, listed []string) []string {
	all := append([]string{}, configured...)
	for _, name := range listed {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// workerStateOf returns a worker as the API shows it, without weights, drain and distribution.
func workerStateOf(p *control.Pool, w *control.LiveWorker, stats control.StatsView,
	learned routing.WorkerEstimates, now time.Time) workerState {
	seen, b, spec := &w.Health, &w.Breaker, w.Worker.Spec()
	lookups, late := p.Lookups()
	st := workerState{
		Name:      w.ID,
		Pool:      p.Name,
		Tier:      p.Tier,
		Rank:      spec.Rank,
		Model:     p.Model,
		Models:    modelsOf(spec.Models, seen.Models),
		State:     w.State(),
		Since:     seconds(seen.Since),
		LastError: seen.LastError,
		Region:    w.Worker.Spec().Region,
		RoundTrip: millis(seen.RoundTrip),
		WorkerLoad: WorkerLoad{
			WorkerLoad:   w.Load(),
			Share:        w.Share,
			MaxInflight:  w.MaxInflight,
			BoundLearned: w.LimitLearned,
			Tokens:       w.TokensInflight,
			MaxTokens:    w.MaxTokensInflight,
			Stale:        w.Stale,
		},
		Totals: workerTotals{Requests: requestTotals{OK: stats.OK, Excluded: stats.Excluded, Error: stats.Failed},
			Tokens: tokenTotals{Prompt: stats.Prompt, Cached: stats.Cached, Output: stats.Output}},
		Latency:      timesOf(stats.Total),
		TTFT:         timesOf(stats.TTFT),
		LastSelected: optional(stats.LastSelected),
		Breaker: breakerState{State: b.State.String(), Since: seconds(b.Since), Until: seconds(b.Until), Cause: b.Cause,
			Failures: b.Failures, Requests: b.Requests, ConsecutiveFailures: b.ConsecutiveFailures, SlowRatio: w.SlowRatio,
			Samples: w.Samples},
		Events:     eventsOf(&w.KV, lookups, late),
		Learned:    learned,
		Stages:     w.Stages,
		inRotation: w.InRotation(),
	}
	if f := stats.LastFailure; f != nil {
		st.Failure = &failureState{At: f.At.UTC(), Status: f.Status, Message: f.Words, RequestID: f.RequestID}
	}
	if p.Handover != "" {
		st.Role = spec.Role
	}
	if w.Stages&routing.StagePrefill != 0 {
		st.OpenHandovers = new(w.Handovers.Open(now))
	}
	return st
}

func seconds(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

type tierState struct {
	Name    string         `json:"name"`
	Tier    bool           `json:"tier" doc:"true: a tier (tiers are listed in their order). false: an entry of pools."`
	Model   string         `json:"model" doc:"Model of the workers. Empty: the model that the client requests."`
	Models  []string       `json:"models" nullable:"false" doc:"All model names that select this tier or pool."`
	Serves  []string       `json:"serves" nullable:"false"`
	Context int64          `json:"context" doc:"Context length of the model in tokens, prompt and answer together. 0: unknown."`
	Price   tenants.Price  `json:"price" doc:"Price in currency units per million tokens."`
	Workers map[string]int `json:"workers" doc:"Number of workers by state."`
	Queued  int            `json:"queued" doc:"Number of waiting requests; GET /admin/queues/{tier} lists them."`
	Learned poolState      `json:"learned"`
	Config  map[string]any `json:"config" doc:"Settings of the tier or pool, such as policy, queue, fallback and health, with all inherited values and without its workers. Keys and values are those of config.yaml; docs/config.md describes them. An option of policy that is absent has its default."`
}

func (a *workerAPI) listTiers(context.Context, *struct{}) (*reply[page[tierState]], error) {
	snap := a.control.Snapshot()
	settings, err := snap.File.PoolSettings()
	if err != nil {
		return nil, a.failed("writing the settings of the tiers", err)
	}
	return whole(mapped(snap.Pools, func(p *control.Pool) tierState {
		states, learned := a.poolWorkers(p, time.Now())
		t := tierState{
			Name:    p.Name,
			Tier:    p.Tier,
			Model:   p.Model,
			Models:  append([]string{}, p.Models...),
			Serves:  mapped(p.Serves, openai.Dialect.String),
			Context: p.Context,
			Price:   p.Price,
			Workers: map[string]int{},
			Queued:  p.WaitQueue.Waiting(),
			Learned: learned,
			Config:  settings[p.Name],
		}
		for _, w := range states {
			t.Workers[w.State]++
		}
		return t
	})), nil
}

// eventsState is the state of a worker's KV-cache events, of all its data-parallel ranks together.
type eventsState struct {
	State     string  `json:"state" enum:"complete,partial,down" doc:"complete: requests are routed by the events. partial: events are read, but the engine may have blocks that no event named, or blocks of a LoRA adapter without its name; routing uses its own history of the worker. down: a stream is not connected, or replays missed events; routing uses its own history."`
	Since     string  `json:"since,omitempty" doc:"Time when a stream last came up or went down."`
	Error     string  `json:"error,omitempty" doc:"Why a stream is down."`
	Streams   int     `json:"streams" doc:"Number of streams: one for each data-parallel rank."`
	BlockSize int     `json:"block_size" doc:"Tokens of a block. 0: no event was read yet."`
	Blocks    int     `json:"blocks" doc:"Cached blocks that the gateway knows."`
	Lag       float64 `json:"lag_ms" doc:"Time from the engine's timestamp of the last batch until the gateway had applied it."`
	Batches   int64   `json:"batches" doc:"Batches of events since the worker was added, like the numbers below."`
	Gaps      int64   `json:"gaps"`
	Restarts  int64   `json:"restarts" doc:"Streams that the engine began again."`
	Replays   int64   `json:"replays"`
	Failed    int64   `json:"failed_replays"`
	Resets    int64   `json:"resets" doc:"Times that the known blocks of a stream were dropped."`
	Evicted   int64   `json:"evicted_blocks" doc:"Blocks that were dropped because kv_events.max_bytes was reached."`
	Lookups   int64   `json:"lookups" doc:"Requests of the tier or pool of which the prompt was looked up in the known blocks."`
	Late      int64   `json:"late_lookups" doc:"Lookups of the tier or pool that got the tokens of their prompt too late; see policy.lookup_timeout. The known beginning of the prompt or the history decided."`
	LastGap   string  `json:"last_gap,omitempty" doc:"Time of the last gap or restart."`
}

// eventsOf returns the state of a worker's events; nil if none are read. lookups and late are those of its pool.
func eventsOf(v *kvcache.View, lookups, late int64) *eventsState {
	if v.Streams == 0 {
		return nil
	}
	state := "partial"
	switch {
	case !v.Live:
		state = "down"
	case v.Known:
		state = "complete"
	}
	c := &v.Counts
	return &eventsState{
		State:     state,
		Since:     seconds(v.Since),
		Error:     v.Fault,
		Streams:   v.Streams,
		BlockSize: v.BlockSize,
		Blocks:    v.Blocks,
		Lag:       millis(v.Lag),
		Batches:   c.Batches,
		Gaps:      c.Happened[kvstream.Gap],
		Restarts:  c.Happened[kvstream.Restarted],
		Replays:   c.Happened[kvstream.Replayed],
		Failed:    c.Happened[kvstream.ReplayFailed],
		Resets:    c.Resets,
		Evicted:   int64(v.Index.Evicted),
		Lookups:   lookups,
		Late:      late,
		LastGap:   seconds(v.LastGap),
	}
}
