package routing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tierway/routing/prefix"
)

// Request holds the facts of a request that a policy may use. The caller fills it before it
// takes the pool's lock.
type Request struct {
	Now          time.Time
	Rand         uint64 // fresh for each request; the only source of chance for a policy
	Model        uint64 // hash of the model name that the worker receives; 0 without one
	Key          uint64 // hash of the session key, header or body by which a hashing policy places it; 0 without one
	KeyOf        string // what Key is: KeySession, KeyHeader or KeyBody; empty without one
	Rule         int    // number of the pool's rule that selects the policy, from 1; 0: none
	Rules        int    // number of the pool's rules when Rule was found; 0: not known
	Prefix       uint64 // hash of the prompt up to the end of its first turn; 0 without a prompt
	Blocks       []Block
	PromptTokens int64 // estimated, and corrected by Learned.PromptTokens
	OutputTokens int64 // expected tokens of the answer
	Stream       bool
	Tenant       uint64         // hash of the tenant
	MaxTokens    int64          // most tokens of the answer that the client accepts; 0 is no bound
	Timed        bool           // the predicted time applies to the answer, so silence is evidence against the worker
	Waited       time.Duration  // time in the queue up to Now
	Wait         bool           // the request can wait: a Planner is shown full workers and may choose one
	Only         any            // the Ref of the only member that may take the request; nil is any
	Cached       []CachedPrefix // by workers that publish the events of their caches, or that a look-up has found
	CachedAt     time.Time      // when Cached was looked up; zero: now
	Stored       []StoredKeys   // of workers with LMCache; nil: unknown
	Whole        bool           // one worker must serve both stages; only in a pool with a hand-over
	Computed     bool           // another worker keeps the computed prompt: only the decode stage is booked
	Unplaced     bool           // the engine chooses its cache: cached tokens say nothing about predictions for the worker
	Regions      []uint64       // hashes of regions, the nearest first; empty: distances do not matter
	Record       *Choice        // filled by each pick; nil records nothing

	prefill     bool         // it is the prefill stage of a request that is handed over
	decode      bool         // it is the decode stage: its prompt is computed elsewhere
	learned     bool         // a policy has already learned from it, at an earlier offer
	preview     bool         // the request is not sent: no counter changes
	traffic     Traffic      // of the pool, for policies that use costs
	recorded    *Choice      // the record of the pick that is decided again; nil for other picks
	assessments []assessment // of the candidates, while the pick is recorded; otherwise nil
	pinned      int          // index of the session's worker among the candidates, from 1; 0: none
	runnerUp    int          // index of the next best candidate, while the pick is recorded; -1: by assessments
}

// CachedPrefix is the part of a request's prompt that a worker has cached, by its own cache events or by a look-up.
type CachedPrefix struct {
	Ref    any           // the member's Ref
	Tokens int64         // leading tokens of the prompt
	Load   time.Duration // time to load those of them that are not in the GPU's memory
	More   bool          // the worker has all that is known of the prompt's tokens, and may have more of it
	Lookup bool          // it comes from LMCache's controller, and is a lower bound
}

// Block is one hashed segment of a prompt.
type Block = prefix.Block

// View is one worker as a policy sees it, with the load that all gateways have booked on it. It is
// up and not saturated.
type View struct {
	ID     string
	Index  int // position among all members of the pool
	Weight int // at least 1: a worker of weight 0 is no candidate
	// weight in force of a worker that fails requests, less than Weight; 0: Weight is in force
	Effective      float64
	Group          int   // equal in all views of one call
	Inflight       int   // requests, including those of this round that wait for the worker, as in the token fields
	MaxInflight    int   // bound or learned limit on requests; 0 is no bound
	Full           bool  // the worker can take the request only after a release; true only for a Planner
	OthersInflight int   // the part of Inflight that other gateways have booked, as estimated
	PendingTokens  int64 // booked prefill of requests without a first event
	OutputTokens   int64 // expected output of all requests in flight
	Waiting        int   // requests in the engine's own queue, as last reported
	KVUsage        float64
	Overlap        int64   // leading prompt tokens that the worker has in flight or should have cached
	Rate           float64 // learned prefill rate, tokens/s
	CachedBlocks   int     // blocks of prompts in the gateway's own model of the worker's cache
	Success        float64 // recent share of the worker's requests that succeeded, 0 to 1
	StoredKeys     int64   // keys that the worker has in LMCache
	Latency        LatencyFacts

	Cost CostFacts // only for policies that use costs, and in records

	stages Stages

	computing     int64   // the part of Overlap that is in flight
	othersBacklog float64 // seconds until the prefills end that other gateways have booked
	// what each source says is cached, before it is reduced by the worker's credit
	predicted [sources]int64
	published int64 // prompt tokens that the history predicts and of which the events must have arrived
	exact     bool  // Overlap follows the worker's cache events
	byEvents  bool  // the worker's cache events know the prompt
}

// score is the load by which candidates are compared: booked tokens per unit of weight.
func (v *View) score() float64 {
	return float64(v.PendingTokens+v.OutputTokens) / v.weight()
}

// Reason is the reason why a worker was chosen, in one word.
type Reason string

// The reasons of the policies.
const (
	ReasonRoundRobin         Reason = "round_robin"          // next in order
	ReasonWeightedRoundRobin Reason = "weighted_round_robin" // next in weighted order
	ReasonRandom             Reason = "random"               // drawn at random
	ReasonLeastLoad          Reason = "least_load"           // least booked load
	ReasonPowerOfTwo         Reason = "power_of_two"         // the less loaded of two drawn workers
	ReasonPrefixHome         Reason = "prefix_home"          // home of the prompt's prefix
	// the prefix's home is over its bound; next worker within its bound
	ReasonPrefixOverflow Reason = "prefix_overflow"
	// all are over their bounds; the home, or the next free worker
	ReasonPrefixSaturated Reason = "prefix_saturated"
	ReasonModelHome       Reason = "model_home" // home of the model, for a request without a prompt
	// the model's home is over its bound; next worker within its bound
	ReasonModelOverflow Reason = "model_overflow"
	// all are over their bounds; the model's home, or the next free worker
	ReasonModelSaturated Reason = "model_saturated"
	ReasonKVEvents       Reason = "kv_events"    // lowest cost, with a prefix cached by the worker's events
	ReasonKVHistory      Reason = "kv_history"   // lowest cost, with a prefix cached by the routing history
	ReasonLowestCost     Reason = "lowest_cost"  // lowest cost, without a cached prefix
	ReasonSessionHome    Reason = "session_home" // home of the session's key
	ReasonHeaderHome     Reason = "header_home"  // home of a header's value
	ReasonSessionPin     Reason = "session_pin"  // the session's worker since its home took no requests
	ReasonBodyHome       Reason = "body_home"    // home of the request's body
	ReasonCacheMatch     Reason = "cache_match"  // most of the prompt
	ReasonCacheMiss      Reason = "cache_miss"   // no worker has enough of the prompt
	ReasonImbalanced     Reason = "imbalanced"   // least load, because the loads differ too much
	ReasonKVOverlap      Reason = "kv_overlap"   // highest score of overlap, load and health
	// lowest cost, with a prefix cached by a look-up in LMCache's controller
	ReasonLMCacheLookup Reason = "lmcache_lookup"
	// highest score of keys in LMCache and load
	ReasonLMCacheOccupancy Reason = "lmcache_occupancy"
	ReasonLeastLatency     Reason = "least_latency" // lowest average time to first event, by load
	ReasonLatencyProbe     Reason = "latency_probe" // no stream for a while: its average may be out of date
)

type policy struct {
	name    string
	reasons []Reason // besides ReasonLeastLoad, the reason if the policy abstains
	make    func(Config) Policy
}

var policies = []policy{
	{"cache_aware", []Reason{ReasonCacheMatch, ReasonCacheMiss, ReasonImbalanced},
		func(c Config) Policy { return newCacheAware(c) }},
	{"chwbl", []Reason{ReasonPrefixHome, ReasonPrefixOverflow, ReasonPrefixSaturated,
		ReasonModelHome, ReasonModelOverflow, ReasonModelSaturated}, func(c Config) Policy { return newCHWBL(c) }},
	{"consistent_hash", homeReasons(), func(c Config) Policy { return newConsistentHash(c) }},
	{"kv_aware", []Reason{ReasonKVEvents, ReasonKVHistory, ReasonLowestCost},
		func(Config) Policy { return newKVAware() }},
	{"kv_overlap", []Reason{ReasonKVOverlap}, func(c Config) Policy { return newKVOverlap(c) }},
	{"least_latency", []Reason{ReasonLeastLatency, ReasonLatencyProbe},
		func(Config) Policy { return newLeastLatency() }},
	{"least_load", nil, func(Config) Policy { return leastLoad{} }},
	{lmcacheAwareName, []Reason{ReasonLMCacheOccupancy, ReasonLMCacheLookup, ReasonKVHistory, ReasonLowestCost},
		newLMCacheAware},
	{"power_of_two", []Reason{ReasonPowerOfTwo}, func(Config) Policy { return powerOfTwo{} }},
	{"random", []Reason{ReasonRandom}, func(Config) Policy { return random{} }},
	{"rendezvous_hash", homeReasons(), func(c Config) Policy { return newRendezvousHash(c) }},
	{"round_robin", []Reason{ReasonRoundRobin}, func(Config) Policy { return &roundRobin{last: -1} }},
	{"weighted_round_robin", []Reason{ReasonWeightedRoundRobin}, func(Config) Policy { return newWeightedRoundRobin() }},
}

// Names returns the names of all policies, sorted.
func Names() (names []string) {
	for _, p := range policies {
		names = append(names, p.name)
	}
	return names
}

// Reasons returns all reasons that the policies of these configurations can give, each one once.
func Reasons(configs ...Config) []Reason {
	reasons := []Reason{ReasonLeastLoad}
	for _, c := range configs {
		for _, p := range policies {
			if slices.Contains(c.chain(), p.name) {
				reasons = append(reasons, p.reasons...)
			}
		}
	}
	slices.Sort(reasons)
	return slices.Compact(reasons)
}

// New returns a policy without memory. Its error names the unknown policy and all known
// ones. New does not check the other fields: package config enforces the tags of Config.
func New(c Config) (Policy, error) {
	var chain []Policy
	for _, name := range c.chain() {
		at := slices.IndexFunc(policies, func(p policy) bool { return p.name == name })
		if at < 0 {
			return nil, fmt.Errorf("unknown policy %q (known: %s)", name, strings.Join(Names(), ", "))
		}
		chain = append(chain, policies[at].make(c))
	}
	if len(chain) == 1 {
		return chain[0], nil
	}
	return &composed{[][]Policy{chain}}, nil
}

// Includes reports whether the policy or its fallback has that name.
func (c Config) Includes(name string) bool {
	return name == cmp.Or(c.Name, "least_load") || name == c.fallback()
}

// UsesCaches reports whether the policy or its fallback uses what events say in Request.Cached.
func (c Config) UsesCaches() bool { return c.Includes("kv_aware") || c.Includes("kv_overlap") }

// UsesLMCache reports whether the policy or its fallback uses LMCache's controller.
func (c Config) UsesLMCache() bool { return c.Includes(lmcacheAwareName) }

// LooksUp reports whether the policy or its fallback looks prompts up in LMCache's controller.
func (c Config) LooksUp() bool { return c.UsesLMCache() && c.Mode == ModePrefixLookup }

// chain returns the names of the policy and of its fallback.
func (c Config) chain() []string {
	names := []string{cmp.Or(c.Name, "least_load")}
	if fallback := c.fallback(); fallback != "" {
		names = append(names, fallback)
	}
	return names
}

// fallback returns the name of the fallback; empty without one.
func (c Config) fallback() string {
	switch {
	case c.Name != lmcacheAwareName:
		return c.Fallback
	case c.Mode == ModePrefixLookup: // it always chooses
		return ""
	}
	return cmp.Or(c.Fallback, "power_of_two")
}

// Policy chooses a worker. The pool calls Pick under its lock, so a policy needs no locking.
// Pick must not block or allocate, and must not keep ws or parts of it.
type Policy interface {
	// Name returns the policy's name in config.yaml.
	Name() string
	// Pick returns an index into ws and the reason. ws has at least one element and is in the
	// order of the members. -1 abstains: the pool takes the least loaded worker.
	Pick(r *Request, ws []View) (int, Reason)
}

// Planner is a Policy that weighs waiting for a full worker against an open one. For a
// request that can wait it is shown full workers too, with their backlog as load. If it
// picks a full worker, the request waits for that worker: the pool returns
// ErrBestWorkerFull, or ErrFull if all are full.
type Planner interface {
	// Plans reports whether the policy plans for the request.
	Plans(r *Request) bool
}

// Adaptive is a Policy whose keys follow the traffic: it places a request by a part of the
// prompt whose length it learns.
type Adaptive interface {
	// Depth returns the current length of the keys. It is safe for concurrent use.
	Depth() prefix.Depth
}

func plans(p Policy, r *Request) bool {
	planner, ok := p.(Planner)
	return ok && planner.Plans(r)
}

// Config is the policy section of a configuration. An empty Name means least_load. Any other
// field that is nil, 0 or empty has the value of its tag "absent".
type Config struct {
	Name     string `yaml:"name" enum:"cache_aware,chwbl,consistent_hash,kv_aware,kv_overlap,least_latency,least_load,lmcache_aware,power_of_two,random,rendezvous_hash,round_robin,weighted_round_robin" doc:"Name of the policy."`
	Fallback string `yaml:"fallback" enum:"cache_aware,chwbl,consistent_hash,kv_aware,kv_overlap,least_latency,least_load,lmcache_aware,power_of_two,random,rendezvous_hash,round_robin,weighted_round_robin" policy:"cache_aware,chwbl,consistent_hash,kv_overlap,least_latency,lmcache_aware,rendezvous_hash" absent:"'least_load'; 'power_of_two' for 'lmcache_aware'" doc:"Policy for requests for which the first one has no choice: no key, no match, a score up to 'min_score', too few samples, or an LMCache controller that is down. Its options are set in this section too."`

	Epsilon *float64 `yaml:"epsilon" policy:"chwbl" absent:"'0.25'" doc:"'chwbl': share by which the load of a worker may exceed the mean of the candidates, before requests overflow to the next worker. 0.25 allows 25% more."`
	Slack   *float64 `yaml:"slack" policy:"chwbl" absent:"'2'" doc:"'chwbl': further requests that a worker may have above 'epsilon', as a multiple of the square root of the mean. With few requests, 'epsilon' alone allows less than one."`
	// A worker's share of the keys has a relative error of 1/√points: 3 % for 1,000 points.
	VirtualNodes    int    `yaml:"virtual_nodes" min:"1" max:"1000" policy:"chwbl,consistent_hash" absent:"150 for 'chwbl', 160 for 'consistent_hash'" doc:"'chwbl', 'consistent_hash': points on the hash ring per unit of weight. More points distribute keys more evenly and take longer to set up."`
	MaxPrefixLength int    `yaml:"max_prefix_length" policy:"chwbl" doc:"'chwbl': maximum number of characters at the start of a prompt that determine its worker. 0: no limit."`
	NoKey           string `yaml:"no_key" enum:"least_load,model_hash" policy:"chwbl" absent:"'least_load'" doc:"'chwbl': worker of a request without a prompt. 'least_load': that of 'fallback', by default the least loaded worker. 'model_hash': the same worker for all requests of a model."`
	Depth           string `yaml:"depth" enum:"adaptive,fixed" policy:"chwbl" absent:"'adaptive'" doc:"'chwbl': part of a prompt that determines its worker. 'adaptive': the prefix that most of the traffic shares, and the block after it. 'fixed': the first turn."`

	Key         string `yaml:"key" enum:"session,header,model" policy:"consistent_hash,rendezvous_hash" absent:"'session'" doc:"'consistent_hash', 'rendezvous_hash': what determines the worker of a request. 'session': the first of 'session_keys' that it has. 'header': the value of 'key_header'. 'model': the model."`
	KeyHeader   string `yaml:"key_header" form:"keyheader" policy:"consistent_hash,rendezvous_hash" absent:"none" doc:"Header for 'key: header'."`
	FallbackKey string `yaml:"fallback_key" enum:"prefix,body,none" policy:"consistent_hash,rendezvous_hash" absent:"'prefix'" doc:"What determines the worker of a request without a session key. 'prefix': its prompt up to the end of the first turn. 'body': its whole body. 'none': 'fallback' decides."`

	CacheThreshold   *float64      `yaml:"cache_threshold" max:"1" policy:"cache_aware" absent:"'0.5'" doc:"'cache_aware': a worker is selected for its cache only if it has more than this share of the prompt."`
	BalanceAbs       *float64      `yaml:"balance_abs_threshold" policy:"cache_aware" absent:"'32'" doc:"'cache_aware': difference of requests in flight between the busiest and the idlest worker, above which loads may be imbalanced. They are imbalanced if 'balance_rel_threshold' is exceeded too. The least loaded worker is then selected."`
	BalanceRel       *float64      `yaml:"balance_rel_threshold" min:"1" policy:"cache_aware" absent:"'1.1'" doc:"'cache_aware': see 'balance_abs_threshold'; ratio of the most to the fewest requests in flight."`
	EvictionInterval time.Duration `yaml:"eviction_interval" policy:"cache_aware" absent:"'30s'" doc:"'cache_aware': interval at which blocks over 'max_tree_size' are evicted."`
	MaxTreeSize      int           `yaml:"max_tree_size" min:"1" policy:"cache_aware" absent:"'10000'" doc:"'cache_aware': number of prompt blocks of each worker that are stored. The least recently used ones are evicted first. Blocks are also evicted when they exceed the size of the worker's cache."`
	OnMiss           string        `yaml:"on_miss" enum:"least_load,smallest_tree" policy:"cache_aware" absent:"'fallback', else 'least_load'" doc:"'cache_aware': worker of a request without a match. 'smallest_tree': the worker with the fewest stored blocks."`

	OverlapWeight *float64 `yaml:"overlap_weight" max:"100" policy:"kv_overlap" absent:"'0.6'" doc:"'kv_overlap': weight of the share of the prompt that a worker has."`
	LoadWeight    *float64 `yaml:"load_weight" max:"100" policy:"kv_overlap" absent:"'0.3'" doc:"'kv_overlap': weight of one minus the worker's load, from 0 to 1."`
	HealthWeight  *float64 `yaml:"health_weight" max:"100" policy:"kv_overlap" absent:"'0.1'" doc:"'kv_overlap': weight of the share of the worker's recent requests that succeeded."`
	MinScore      *float64 `yaml:"min_score" max:"300" policy:"kv_overlap" absent:"'0.3'" doc:"'kv_overlap': score that the best worker must exceed. Otherwise 'fallback' decides."`

	Mode            string            `yaml:"mode" enum:"occupancy,prefix_lookup" policy:"lmcache_aware" absent:"'occupancy'" doc:"'lmcache_aware': what LMCache's controller is asked. 'occupancy': the number of keys of each worker, at intervals. 'prefix_lookup': each prompt; what is found counts as cached in the cost of 'kv_aware'."`
	ControllerURL   string            `yaml:"controller_url" form:"web" way:"write the URL of the controller's HTTP API, such as http://lmcache-controller:9000" policy:"lmcache_aware" absent:"'http://localhost:9000'" doc:"'lmcache_aware': URL of the controller's HTTP API. It may not contain a user or password."`
	ControllerKey   string            `yaml:"controller_api_key_env" form:"variable" secret:"true" policy:"lmcache_aware" absent:"none" doc:"'lmcache_aware': environment variable with the key for the controller, which is sent as a bearer token."`
	ControllerLimit time.Duration     `yaml:"controller_timeout" policy:"lmcache_aware" absent:"'2s'" doc:"'lmcache_aware': limit of a request to the controller. A look-up takes 200ms at most. After one without an answer, none is sent until a probe succeeds."`
	PollInterval    time.Duration     `yaml:"poll_interval" policy:"lmcache_aware" absent:"'10s'" doc:"'lmcache_aware': interval at which the controller's list of workers is read."`
	CacheWeight     *float64          `yaml:"cache_weight" max:"1" policy:"lmcache_aware" absent:"'0.7'" doc:"'lmcache_aware' with 'mode: occupancy': weight of the keys. That of the load is one minus it."`
	WorkerMap       map[string]string `yaml:"lmcache_worker_map" policy:"lmcache_aware" absent:"each worker's name" doc:"'lmcache_aware': worker of each instance of LMCache: from its lmcache_instance_id to the name or the URL of the worker. An instance that is not listed is the worker of its name."`

	// The requests of a pool with KV-cache events are looked up by the tokens of their prompts.
	LookupTimeout time.Duration `yaml:"lookup_timeout" policy:"kv_aware,kv_overlap,lmcache_aware" absent:"'20ms', or '100ms' while all workers are busy" doc:"'kv_aware', 'kv_overlap', 'lmcache_aware' with 'mode: prefix_lookup': how long a request waits for the tokens of its prompt, if the engines publish KV-cache events, or before the look-up. Without the key, no request waits while most answers take longer. Afterwards the known beginning of the prompt decides, or what the gateway has sent to the workers."`
	Tokenizer     string        `yaml:"tokenizer" form:"tokenizer" policy:"kv_aware,kv_overlap,lmcache_aware" absent:"the engines tokenize" doc:"'kv_aware', 'kv_overlap', 'lmcache_aware': path of the model's tokenizer.json (byte-level BPE), with which the gateway tokenizes the prompts of completions itself. Chats are tokenized by the engines, which know the chat template."`
}
