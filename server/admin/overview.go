package admin

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"runtime"
	"sync"
	"time"

	"tierway/store"
	"tierway/tenants"
)

// OverviewView is the state of the gateway at one moment, as GET /admin/overview and the event overview
// of GET /admin/stream show it.
type OverviewView struct {
	At        time.Time         `json:"at"`
	Ready     bool              `json:"ready" doc:"As /readyz reports it."`
	NotReady  []string          `json:"not_ready" nullable:"false" doc:"Reasons for which the gateway is not ready."`
	Draining  bool              `json:"draining"`
	Version   string            `json:"version"`
	Uptime    int64             `json:"uptime_s"`
	Inflight  int64             `json:"inflight" doc:"Requests of the data plane in flight."`
	CPU       *float64          `json:"cpu" doc:"Processor cores used in the last second. null: unknown, as in the first two seconds."`
	Memory    int64             `json:"memory_bytes" doc:"Resident memory."`
	Routines  int               `json:"goroutines"`
	Rate      OverviewRate      `json:"rate"`
	Tiers     []OverviewTier    `json:"tiers" nullable:"false" doc:"Tiers in their order, then pools."`
	Hooks     []HookState       `json:"hooks" nullable:"false" doc:"As GET /admin/hooks lists them."`
	Answers   *answersState     `json:"response_cache,omitempty" doc:"Absent unless a tier or pool has a response cache."`
	Redis     redisView         `json:"redis"`
	SQL       SQLView           `json:"sql"`
	Overrides int               `json:"overrides" doc:"Number of live overrides."`
	Versions  OverviewVersions  `json:"versions"`
	Attention []AttentionItem   `json:"attention" nullable:"false" doc:"What needs an operator, errors first, at most 50 items and the number of the others."`
	Checklist OverviewChecklist `json:"checklist"`
}

// OverviewRate has the rates of all requests.
type OverviewRate struct {
	Requests *float64 `json:"requests" doc:"Ended requests per second in the last 10 s. null, as the other rates: in the first two seconds."`
	Errors   *float64 `json:"errors" doc:"Requests per second that failed or were truncated."`
	Refused  *float64 `json:"refused" doc:"Requests per second that were rejected with 4xx (result refused)."`
}

// OverviewTier is one tier or pool.
type OverviewTier struct {
	Name     string                   `json:"name"`
	Tier     bool                     `json:"tier" doc:"true: a tier. false: an entry of pools."`
	Model    string                   `json:"model" doc:"Model of the workers. Empty: the model that the client requests."`
	Policy   string                   `json:"policy"`
	Workers  map[string]int           `json:"workers" doc:"Number of workers by state."`
	Requests *float64                 `json:"requests_per_s" doc:"Ended requests per second in the last 10 s. null: as rate.requests."`
	Errors   *float64                 `json:"errors_per_s" doc:"Requests per second that failed or were truncated."`
	Refused  *float64                 `json:"refused_per_s" doc:"Requests per second that were rejected with 4xx (result refused)."`
	TTFT50   *float64                 `json:"ttft_p50_ms" doc:"Median of the times to first token of streams in the last minute. null: there was none."`
	TTFT95   *float64                 `json:"ttft_p95_ms" doc:"95th percentile of the times to first token of streams in the last minute."`
	Inflight int                      `json:"inflight" doc:"Requests on its workers."`
	Queue    map[string]OverviewQueue `json:"queue" doc:"Waiting requests by class name."`
	LMCache  *lmcacheState            `json:"lmcache,omitempty" doc:"Absent without the policy lmcache_aware."`
}

// OverviewQueue has the waiting requests of one class.
type OverviewQueue struct {
	Waiting int     `json:"waiting"`
	Oldest  float64 `json:"oldest_s" doc:"Wait of the oldest waiting request. 0: no request waits."`
}

// OverviewVersions has a number for each group of lists. Fetch the lists again when their number changes.
type OverviewVersions struct {
	Config    int64 `json:"config" doc:"Generation of the configuration."`
	Overrides int64 `json:"overrides" doc:"Changes with the live overrides. It does not grow steadily."`
	Directory int64 `json:"directory" doc:"Changes with tenants, keys and admins, on this or another gateway."`
	Audit     int64 `json:"audit" doc:"Id of the newest entry of the audit log that this gateway has written; 0: none since its start."`
}

// OverviewChecklist has the first steps of a new gateway.
type OverviewChecklist struct {
	Workers  bool `json:"workers" doc:"A worker is up."`
	Tenants  bool `json:"tenants" doc:"A tenant exists."`
	Requests bool `json:"requests" doc:"A request was answered since the start."`
}

// overviewAPI makes the overview.
//
// An overview takes the locks that GET /admin/workers takes: those of each pool, and of the statistics,
// breaker, checks and events of each worker. The check of the readiness takes those of a pool a second
// time, as /readyz does. The lock of a queue is taken only while requests wait there. Counters of
// requests are read without a lock, and stores are not queried.
type overviewAPI struct {
	*gateway
	fleet   *workerAPI
	configs *configAPI
	sampler *sampler

	mu        sync.Mutex // guards the rest; no request of the data plane takes it
	file      fileCheck
	directory directoryFacts
}

func (a *overviewAPI) getOverview(context.Context, *struct{}) (*reply[OverviewView], error) {
	now := time.Now()
	return &reply[OverviewView]{Body: a.overviewOf(a.fleet.allPools(now), now)}, nil
}

// overviewOf returns the overview at now. pools are the pools of that moment.
func (a *overviewAPI) overviewOf(pools []poolView, now time.Time) OverviewView {
	a.mu.Lock()
	defer a.mu.Unlock()
	snap := a.control.Snapshot()
	a.directory.update(snap.Identity, snap.Base, now)
	overrides := a.control.OverridesNow()
	v := OverviewView{
		At:        now.UTC(),
		NotReady:  append([]string{}, a.options.NotReady()...),
		Draining:  a.options.Draining(),
		Version:   a.options.Version,
		Uptime:    int64(now.Sub(a.configs.started) / time.Second),
		Inflight:  a.options.Inflight(),
		Memory:    residentMemory(),
		Routines:  runtime.NumGoroutine(),
		Tiers:     []OverviewTier{},
		Hooks:     mapped(snap.Hooks.All(), hookState),
		Answers:   a.answersState(snap),
		Redis:     a.configs.redisState(),
		SQL:       a.configs.sqlState(),
		Overrides: len(overrides),
		Versions: OverviewVersions{
			Config:    snap.Generation,
			Overrides: versionOf(overrides),
			// Both numbers only grow, so the sum changes with each of them.
			Directory: snap.Identity.Revision + snap.Generation,
		},
		Attention: a.attention(pools, now),
		Checklist: OverviewChecklist{Tenants: a.directory.tenants > 0},
	}
	v.Ready = len(v.NotReady) == 0
	if a.control.Stores.SQL != nil {
		v.Versions.Audit = a.control.Stores.SQL.NewestAudit()
	}
	for i := range pools {
		t := tierOf(&pools[i], now)
		v.Checklist.Workers = v.Checklist.Workers || t.Workers["up"] > 0
		v.Tiers = append(v.Tiers, t)
	}
	a.sampler.addRecent(&v)
	return v
}

// tierOf returns a tier or pool of the overview, without its rates.
func tierOf(p *poolView, now time.Time) OverviewTier {
	t := OverviewTier{Name: p.Name, Tier: p.Tier, Model: p.Model, Policy: p.Policy.Name, Workers: map[string]int{},
		Queue: map[string]OverviewQueue{}, LMCache: lmcacheOf(p.Pool)}
	for i := range p.workers {
		t.Workers[p.workers[i].State]++
		t.Inflight += p.workers[i].Inflight
	}
	for _, class := range tenants.Classes() {
		t.Queue[class] = OverviewQueue{}
	}
	if p.WaitQueue.Waiting() > 0 {
		for class, c := range queueState(p.Pool, now).Classes {
			t.Queue[class] = OverviewQueue{Waiting: c.Depth, Oldest: c.Oldest / 1000}
		}
	}
	return t
}

// versionOf returns a number that changes with the overrides. It is a hash, because overrides also change
// by their expiry. It has 52 bits, which every reader of JSON keeps.
func versionOf(overrides []store.Override) int64 {
	hash, number := fnv.New64a(), make([]byte, 8)
	for _, o := range overrides {
		hash.Write([]byte(o.Worker)) // a hash returns no error
		binary.LittleEndian.PutUint64(number, uint64(o.Number()))
		hash.Write(number) // a hash returns no error
	}
	if len(overrides) == 0 {
		return 0
	}
	return int64(hash.Sum64() >> 12)
}
