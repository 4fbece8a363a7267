package config

import (
	"strings"
	"time"

	"tierway/breaker"
	"tierway/hooks"
	"tierway/routing"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/tokenizer"
	"tierway/workers"
	"tierway/workers/kvcache"
)

// File is a whole configuration. The zero File is not usable: start from Default, Load, Parse
// or FromFlags. Files of the latter three are checked and must not be changed. Struct tags,
// which tags.go explains, describe every key.
type File struct {
	Listen           string                   `yaml:"listen" reload:"restart" doc:"Address of the data plane, host:port. An address that is not loopback needs 'tls' or 'insecure'."`
	TLS              TLS                      `yaml:"tls" reload:"restart" doc:"Certificate of the data plane."`
	Insecure         bool                     `yaml:"insecure" reload:"restart" doc:"Serve the data plane in plain text on an address that is not loopback, for example behind a proxy that terminates TLS."`
	FastHTTP1        bool                     `yaml:"fast_http1" reload:"restart" doc:"Serve usual HTTP/1.1 requests of the data plane without TLS by Tierway's own server, which takes less processor time. Connections with any other request, such as a chunked body, HTTP/1.0 or an upgrade, go to Go's server. With false, Go's server serves all connections."`
	Hosts            []string                 `yaml:"hosts" form:"host" doc:"Host names of the gateway, in addition to 'localhost' and IP addresses. They protect against DNS rebinding, where a web page points its own name at the gateway. Without keys ('auth.required: false') and at '/metrics', a request for any other name is rejected with 421. If 'hosts' is empty, '/metrics' on an address that is not loopback accepts every name."`
	Proxies          []string                 `yaml:"trusted_proxies" form:"proxy" doc:"Addresses and networks (CIDR) of proxies in front of the gateway. X-Forwarded-For sets the client address only in requests from these proxies; other requests' headers are ignored."`
	Watch            bool                     `yaml:"watch" doc:"Reload this file when it changes. SIGHUP and the admin plane reload it at any time."`
	Admin            Admin                    `yaml:"admin" doc:"The admin plane."`
	Metrics          Metrics                  `yaml:"metrics" doc:"Listener of '/metrics' for Prometheus."`
	Store            Store                    `yaml:"store" reload:"restart" doc:"Storage that outlives the process or is shared by several gateways. If a store is unavailable, requests neither wait nor fail, except under 'fail_closed'."`
	Gateways         int                      `yaml:"gateways" min:"1" max:"1000" doc:"Minimum number of gateways that share the traffic. If Redis counts more live gateways, the larger number is used; during an outage, its last count stays in use. Each gateway uses its share of a worker's 'max_inflight' and 'max_tokens_inflight', rounded up. Without Redis, or while it is unavailable, each gateway also enforces its share of every tenant's rates and 'concurrent'. Budgets are not divided."`
	Auth             Auth                     `yaml:"auth" doc:"Access to the data plane."`
	MaxBodyBytes     Size                     `yaml:"max_body_bytes" doc:"Longest request body, after decompression. A longer body is rejected with 413."`
	MaxBufferedBytes Size                     `yaml:"max_buffered_bytes" absent:"a quarter of 'GOMEMLIMIT', or of 90% of the memory of the control group or machine" doc:"Memory limit for all request bodies while they are read, queued or kept for a retry. Answers and events over 64 KiB count too, until the client has received them. At least four times 'max_body_bytes'. A tenant may take memory only while its total does not exceed the memory that remains free, so one tenant alone gets at most half. Bodies of up to 16 KiB may take a sixteenth in addition. Eight times 'max_body_bytes' leaves room for the longest body beside the backlog of one other tenant. Over the limit, the request is rejected with 503 'overloaded'."`
	MaxResponseBytes Size                     `yaml:"max_response_bytes" doc:"Longest answer of a worker that is not a stream, and longest event of a stream. A longer one is rejected with 502 'response_too_large' and does not count as a worker failure. Raw answers (audio, images, 'paths') have no limit."`
	Drain            Drain                    `yaml:"drain" doc:"Shutdown: requests are accepted for 'accept_grace', then in-flight requests have 'timeout' to finish."`
	Policy           routing.Config           `yaml:"policy" doc:"Routing policy of every tier and pool without its own."`
	PolicyRules      []PolicyRule             `yaml:"policy_rules" ordered:"true" doc:"Policies for some requests of every tier and pool without its own 'policy_rules'. The first rule that matches a request selects its policy; without one, 'policy' applies."`
	SessionKeys      []string                 `yaml:"session_keys" ordered:"true" form:"sessionkey" doc:"Where 'consistent_hash' and 'rendezvous_hash' find the key of a session: names of headers, and fields of the body. The first one that a request has is used. X-Request-ID, X-Correlation-ID and X-Trace-ID are not in the default list: most clients and proxies set new ones for each request."`
	Tiers            []Tier                   `yaml:"tiers" reload:"drain" ordered:"true" doc:"Model tiers, least capable first."`
	Pools            []PoolConfig             `yaml:"pools" reload:"drain" ordered:"true" doc:"Workers for models outside the tiers."`
	Models           map[string]tiers.Targets `yaml:"models" doc:"Aliases: each maps a model name of clients to a tier, pool or model, or to a list of these. The list is in the order of preference. A request gets the first target of the list that can take it; see docs/tiers.md. '*' in a name matches any run of characters, '?' matches one. Exact names match before patterns, and longer patterns before shorter ones. The target 'classify' selects the classifier."`
	Classifier       tiers.Rules              `yaml:"classifier" doc:"Rules that select a tier for requests that name 'auto' or another alias of 'classify'."`
	Learning         Learning                 `yaml:"learning" doc:"Features and labels of requests for 'tierway train': exploration, repeated requests, and the directory of the files. And the score that it has learned from them, which is used beside the rules of 'classifier'. See docs/training.md."`
	Hooks            []hooks.Config           `yaml:"hooks" ordered:"true" absent:"none" doc:"Services that are called for every request before its tier is chosen, in this order. They can reject or change requests. See docs/hooks.md."`
	HooksTimeout     time.Duration            `yaml:"hooks_timeout" doc:"Longest time that all hooks of a request take together."`
	Breaker          breaker.Config           `yaml:"breaker" doc:"Ejection of failing and slow workers."`
	Health           workers.Health           `yaml:"health" doc:"Health checks of workers."`
	KVEvents         KVEvents                 `yaml:"kv_events" doc:"KV-cache events of engines: with them, the gateway knows which prompts each worker has cached. Engines that publish events and state where are found without configuration; see docs/kv-events.md."`
	Retry            Retry                    `yaml:"retry" doc:"Retries. A request is never retried after content was sent to the client."`
	Timeouts         Timeouts                 `yaml:"timeouts" doc:"Time limits for the stages of a request."`
	Queue            Queue                    `yaml:"queue" doc:"Queueing while all suitable workers are full. Every tier and pool has a queue: higher classes are dispatched first, and tenants of a class share by 'weight'."`
	Saturation       Saturation               `yaml:"saturation" doc:"Thresholds of the engine's own metrics at which a worker receives no more requests until the metrics fall."`
	HealthWeight     HealthWeight             `yaml:"health_weight" doc:"Reduces the weight of workers that fail requests, before their circuit breakers open. Unlike 'policy.health_weight', it applies to every policy."`
	Region           string                   `yaml:"region" form:"name" absent:"none" doc:"Region of the gateway. Workers of its region are used first, then those of other regions, in the order of 'regions'."`
	Regions          Regions                  `yaml:"regions" doc:"Distances between regions, for workers with a 'region'."`
	ResponseCache    ResponseCache            `yaml:"response_cache" doc:"Kept answers of engines, for requests that come again. 'response_cache' of a tier or pool turns it on; see docs/response-cache.md."`
	RoutingHeaders   bool                     `yaml:"routing_headers" doc:"Send response headers that explain a routing decision: X-Model-Tier, X-Tier-Reason, X-Routed-To, X-Route-Reason, X-Max-Tokens-Lowered, X-Queue-Ms, X-Tierway-Hooks."`
	CORS             CORS                     `yaml:"cors" doc:"Browser pages that may call the data plane."`
	Telemetry        Telemetry                `yaml:"telemetry" doc:"Traces (OpenTelemetry) and the detail of metrics. Settings that are absent here come from the OTEL_* environment variables if these name a collector."`
	Decisions        Decisions                `yaml:"decisions" doc:"Decision log: one record for every request, including refused ones. A record holds the request in numbers and hashes (never text), every candidate worker with the terms of its score, and the result."`
	Log              Log                      `yaml:"log" reload:"restart" doc:"Logs in JSON lines: the program's log on standard error, the access log on standard output."`

	hash           string // Hash
	replacedPolicy string // name for which WithPolicy has replaced the policies; empty if it has not
	path           string // of the loaded file; empty if there is none
	warnings       Problems
	catalog        *tiers.Catalog
	tokens         map[string]*tokenizer.Tokenizer // by policy.tokenizer
	model          *learnedModel                   // of learning.model; nil: none
	keys           func(variable string) string    // workers' keys; a function, so that printing cannot show them
	expanded       *expansion                      // a pointer, so that printing cannot show it; nil without parsed text
	origins        *origins                        // Origins; nil: every value counts as a default
	// rankWeights are the weights of overrides by worker, for workers that are ranks of an entry
	rankWeights map[string]int
}

// TLS names the PEM files of a certificate and its private key. Either both are set or neither
// is.
type TLS struct {
	Cert string `yaml:"cert" doc:"PEM file with the certificate and its chain. Reloaded when it changes."`
	Key  string `yaml:"key" doc:"PEM file with the private key. Reloaded when it changes."`
}

// On reports whether a certificate is configured.
func (t TLS) On() bool { return t.Cert != "" || t.Key != "" }

// Admin configures the admin plane. Without keys, here or in the database, it is closed.
type Admin struct {
	Listen   string     `yaml:"listen" reload:"restart" doc:"Address of the admin plane, host:port. It may equal 'listen'; then 'tls' applies to both planes. An address that is not loopback needs 'admin.tls' (if shared, 'tls') or 'admin.insecure'."`
	TLS      TLS        `yaml:"tls" reload:"restart" doc:"Certificate of the admin plane. Must be empty if both planes share an address."`
	Insecure bool       `yaml:"insecure" reload:"restart" doc:"Serve the admin plane in plain text on an address that is not loopback."`
	Keys     []AdminKey `yaml:"keys" doc:"Keys of the admin plane. Without keys, here or in the database, the admin plane is closed."`
}

// AdminKey is one key of the admin plane, stored as its digest.
type AdminKey struct {
	Name   string `yaml:"name" required:"true" form:"name" doc:"Name of the key's holder, for the audit log."`
	SHA256 string `yaml:"sha256" required:"true" form:"digest" secret:"true" doc:"SHA-256 of the key in hex: \x60printf %s \"$KEY\" | sha256sum | cut -d ' ' -f 1\x60. A key that begins with 'tw-' must be one that the gateway generated."`
	Role   string `yaml:"role" enum:"admin,viewer" absent:"'admin'" doc:"Permissions: 'admin' may read and change everything, 'viewer' may read everything except admin keys and secrets."`
}

// Metrics configures where /metrics is served. An empty Listen means the admin plane's address.
type Metrics struct {
	Listen   string `yaml:"listen" reload:"restart" doc:"Address of '/metrics', host:port. Empty: the address of the admin plane. An address that is not loopback needs 'metrics.insecure'."`
	Insecure bool   `yaml:"insecure" reload:"restart" doc:"Serve '/metrics' in plain text and without a key on an address that is not loopback. Metrics contain names of tenants, models and workers."`
}

// Auth configures access to the data plane.
type Auth struct {
	Required bool                `yaml:"required" doc:"Require a key. 'false' is allowed only if every address is loopback. Without keys, the gateway accepts only the host names 'localhost', IP addresses and 'hosts'. It rejects requests from pages of other sites unless 'cors.origins' lists them. It accepts JSON only with 'Content-Type: application/json'; 'paths' of pools accept any type."`
	Keys     []tenants.KeyConfig `yaml:"keys" doc:"Tenants and their keys."`
}

// Drain configures shutdown. The gateway accepts requests for AcceptGrace while /readyz reports
// not ready, then waits up to Timeout for in-flight requests.
type Drain struct {
	AcceptGrace time.Duration `yaml:"accept_grace" zero:"true" doc:"Time for which new requests are still accepted after /readyz reports not ready."`
	Timeout     time.Duration `yaml:"timeout" doc:"Time that in-flight requests have to finish. Afterwards they are cut off."`
}

// Store configures the database and Redis. Its URLs may contain passwords; printed forms show
// only scheme, host and file.
type Store struct {
	SQL               string        `yaml:"sql" form:"sql" way:"write sqlite://FILE or postgres://user@host/database" zero:"true" secret:"url" doc:"Database of tenants, keys, the ledger, live overrides and the audit log: 'sqlite://FILE', 'sqlite://:memory:' or 'postgres://…'. A relative FILE is resolved against the directory of this file. Empty: no database, and keys exist only in this file. A password in the URL is never shown."`
	SQLPasswordFile   string        `yaml:"sql_password_file" form:"file" doc:"File with the password for a 'postgres://' URL, which then has none. It is read for each connection, so that a new password needs no restart. A relative file is resolved against the directory of this file."`
	Redis             string        `yaml:"redis" form:"redis" way:"write redis://host:6379, or rediss:// with TLS" secret:"url" doc:"Redis for what several gateways share: limits, load, routing history, session pins, open breakers, workers of stored responses, change notifications. Forms: 'redis://…', 'rediss://…', 'redis+cluster://…' or 'redis+sentinel://…'. Empty: no Redis. A password in the URL is never shown."`
	RedisPasswordFile string        `yaml:"redis_password_file" form:"file" doc:"File with the password for Redis. The URL then has no password, but may have a user. It is read for each connection, so that a new password needs no restart. A relative file is resolved against the directory of this file."`
	RedisTimeout      time.Duration `yaml:"redis_timeout" doc:"Longest wait of a request for each use of Redis. For limits, an answer after more than half of it is used but counts as a failure. After five failures in a row and a failed probe on another connection, requests skip Redis until probes are answered in time."`
	SpillDir          string        `yaml:"spill_dir" absent:"the directory of the SQLite file, else of this file" doc:"Directory for ledger rows that are not yet in the database when the gateway stops. The next gateway that starts with this directory and this database writes them. A relative directory is resolved against the directory of this file."`
	Retention         time.Duration `yaml:"retention" zero:"true" doc:"Retention of the ledger's rows (one per request). Daily usage of tenants is kept forever. '0s' keeps all rows."`
}

// PoolConfig is one pool as the file writes it. Empty fields inherit from the file's section of
// the same name.
type PoolConfig struct {
	Name        string           `yaml:"name" required:"true" form:"name" tier_doc:"Name of the tier, unique in the file." doc:"Name of the pool, unique in the file."`
	Model       string           `yaml:"model" tier_required:"true" tier_doc:"Model that the tier's workers serve, by the name that they use." reload:"drain" doc:"Model that the pool's workers serve, by the name that they use. Requests for an alias of the pool are sent with this name."`
	Models      []string         `yaml:"models" absent:"none" tier_doc:"More models that the tier's workers serve, such as LoRA adapters. Clients request them by these names; requests for the tier itself get 'model'." doc:"More models that the pool's workers serve, such as LoRA adapters. Clients request them by these names."`
	Engine      string           `yaml:"engine" enum:"auto,vllm,sglang,llamacpp,ollama,openai,anthropic" reload:"drain" absent:"'auto'" doc:"Inference engine of the workers. 'auto' detects it from their answers. 'openai' and 'anthropic' are hosted endpoints with these APIs."`
	Serves      []string         `yaml:"serves" tier_absent:"chat, completions, responses, messages, tokenize" tier_doc:"Kinds of request that the tier's workers serve." enum:"chat,completions,responses,messages,embeddings,rerank,score,pooling,tokenize,moderations,images,audio" doc:"Kinds of request that the pool's workers serve. Required for a pool with models."`
	Context     int64            `yaml:"context" tier_doc:"Context length of the model in tokens, prompt and output together. A request that does not fit moves to a higher tier, unless the client requested the model by name. If it certainly fits no tier, it is rejected. 0: unknown, no check." doc:"Context length of the models in tokens, prompt and output together. A request that does not fit is rejected. 0: unknown, no check."`
	Fallback    []string         `yaml:"fallback" ordered:"true" absent:"none" tier_doc:"Tiers, pools or models that get the requests that the tier cannot take, in this order. A tier cannot take a request if it has no healthy worker, too little context or a full queue, or if the attempts failed. It replaces 'classifier.unavailable'. Requests for a worker's own model never move. See docs/tiers.md." doc:"Tiers, pools or models that get the requests of the pool's aliases that the pool cannot take, in this order. A pool cannot take a request if it has no healthy worker, too little context or a full queue, or if the attempts failed. Requests for the pool's own models never move. See docs/tiers.md."`
	Price       *tenants.Price   `yaml:"price" absent:"free" doc:"Price of a million tokens, in units of money."`
	Paths       []string         `yaml:"paths" form:"path" tier_yaml:"-" doc:"Other URL paths that pass through to the pool unchanged: exact, or with '*' at the end for everything below."`
	Tenant      string           `yaml:"tenant" form:"owner" tier_yaml:"-" absent:"all tenants" doc:"The only tenant that may use the pool. Its requests may then refer to objects that the pool's engines store: 'paths' such as '/v1/files/*', conversations, and responses that no gateway knows. See docs/tenants.md."`
	MaxUpload   Size             `yaml:"max_upload_bytes" tier_yaml:"-" absent:"no streaming" doc:"Longest request body on 'paths'. A body longer than 'max_body_bytes' or without Content-Length is streamed to the worker instead of being buffered, unless it looks like JSON. Without this key, 'max_body_bytes' is the limit."`
	Policy      routing.Config   `yaml:"policy" absent:"'policy'" doc:"Routing policy of the pool. It replaces the file's policy as a whole."`
	PolicyRules []PolicyRule     `yaml:"policy_rules" ordered:"true" absent:"'policy_rules'" doc:"Policies for some requests of the pool. The list replaces the file's as a whole."`
	Queue       Queue            `yaml:"queue" absent:"'queue'" doc:"Queueing of the pool's requests; absent keys inherit the file's values."`
	Saturation  Saturation       `yaml:"saturation" absent:"'saturation'" doc:"Saturation thresholds of the pool's workers; absent keys inherit the file's values."`
	Health      *workers.Health  `yaml:"health" absent:"'health'" doc:"Health checks of the pool's workers; absent keys inherit the file's values."`
	Headers     workers.Headers  `yaml:"headers" secret:"true" absent:"none" doc:"Headers of everything that is sent to the pool's workers, by name: of requests, health checks and metrics. They replace the client's. Values may contain ${NAME}; no output shows them."`
	TLS         *workers.TLS     `yaml:"tls" absent:"the system's authorities, and no certificate" doc:"Certificates for the connections to the pool's workers."`
	KVEvents    *kvcache.Config  `yaml:"kv_events" absent:"'kv_events'" doc:"KV-cache events of the pool's engines; absent keys inherit the file's values."`
	Workers     []workers.Config `yaml:"workers" required:"true" reload:"drain" doc:"Workers of the pool: at least one, each with a name and a URL."`

	AllowFields     []string     `yaml:"allow_fields" enum:"kv_transfer_params,ec_transfer_params,vllm_xargs,bootstrap_host,bootstrap_port,bootstrap_room,bootstrap_pair_key,data_parallel_rank,routed_dp_rank,disagg_prefill_dp_rank" absent:"none" doc:"Fields that are passed to the pool's workers although they name other hosts or place the request inside an engine. All other fields of this kind are removed from request bodies."`
	LowerMaxTokens  bool         `yaml:"lower_max_tokens" doc:"Lower a client's max_tokens, max_completion_tokens or max_output_tokens to what fits into 'context' beside the prompt. Agents send 32,000 and more as a ceiling, which engines reject. The response header X-Max-Tokens-Lowered has the values. Needs 'context'."`
	CacheControl    bool         `yaml:"inject_cache_control" doc:"Mark prompts of Anthropic messages for the prompt cache. The last block of the system prompt gets 'cache_control'; without a system prompt, the last block of the first user message. Requests that already have a mark are not changed."`
	HealthWeight    HealthWeight `yaml:"health_weight" absent:"'health_weight'" doc:"Weights that follow the success ratios of the pool's workers; absent keys inherit the file's values."`
	ResponseHeaders []string     `yaml:"response_headers" form:"header" absent:"none" doc:"More response headers of the pool's workers that are passed to clients, such as x-inference-pod. Headers for content, caching, rate limits, OpenAI and Anthropic are always passed; see docs/operations.md."`

	Handover          string         `yaml:"handover" enum:"nixl,p2p_nccl,shared,sglang" absent:"none: one worker serves a whole request" doc:"How the pool's workers hand a computed prompt over: one worker computes it (prefill), another one generates the answer (decode). 'nixl': vLLM with NixlConnector. 'p2p_nccl': vLLM with P2pNcclConnector. 'shared': vLLM with a shared store of the cache, such as LMCache. 'sglang': SGLang. The workers' 'role' names their stage. See docs/disaggregation.md."`
	PrefillPolicy     routing.Config `yaml:"prefill_policy" absent:"'policy'" doc:"Routing policy that selects the worker of the prefill stage, with 'handover'; 'policy' then selects that of the decode stage. It replaces the policy as a whole."`
	UncachedThreshold *int64         `yaml:"uncached_threshold" absent:"by the expected times of both ways" doc:"With 'handover': a request with at least this number of prompt tokens that its decode worker has not cached is computed by a prefill worker. The decode worker computes shorter ones itself. 0: always the decode worker."`
	ResponseCache     *PoolCache     `yaml:"response_cache" absent:"off" doc:"Kept answers of the pool's workers, for requests that come again. Only tenants with 'response_cache: true' get answers from it; without keys ('auth.required: false'), all requests without a key do."`
	HandoverLease     time.Duration  `yaml:"handover_lease" absent:"'30s' with 'handover'" doc:"With 'handover': time for which a prefill engine keeps a prompt that no decode engine has read, such as 'kv_lease_duration' of vLLM."`
}

// Tier is one model tier with its workers: a pool without the keys that apply only to pools.
type Tier PoolConfig

// Retry limits the attempts of a request.
type Retry struct {
	Attempts int     `yaml:"attempts" min:"1" max:"5" doc:"Attempts per request, including the first. A request that creates an object on its engine, such as a response without 'store: false', is not retried after its body was sent."`
	Budget   float64 `yaml:"budget" max:"1" doc:"Retries allowed as a share of all requests, in addition to 10 per second. When the budget is spent, errors carry 'x-should-retry: false'. The exception is a backoff of the workers after 429 or 503: then Retry-After names its end."`
}

// Timeouts limit the stages of a request.
type Timeouts struct {
	Connect     time.Duration `yaml:"connect" doc:"Limit for connecting to a worker."`
	FirstByte   time.Duration `yaml:"first_byte" absent:"ten times the predicted time, from '15s' to '5m'" doc:"Limit from the end of the request to the first event of a stream. A configured value always applies. The default ends an attempt before '5m' only if the worker has answered before, sends nothing to any request, and another worker can take the request. Other answers are limited by 'total'."`
	Idle        time.Duration `yaml:"idle" doc:"Longest pause between two parts of an answer after it began."`
	Total       Total         `yaml:"total" doc:"Limit for a whole request by class, including its queue time. Reaching it does not count as a worker failure, and the request is not retried."`
	ClientStall time.Duration `yaml:"client_stall" doc:"Longest time that a write to the client may block or the client may pause within its request body. Afterwards the connection is closed. Time in which the worker sends nothing does not count."`
}

// Total limits whole requests by class.
type Total struct {
	Interactive time.Duration `yaml:"interactive" doc:"For interactive requests."`
	Background  time.Duration `yaml:"background" doc:"For background requests."`
	Batch       time.Duration `yaml:"batch" doc:"For batch requests."`
}

// CORS configures which browser pages may call the data plane. Without origins, none may.
type CORS struct {
	Origins []string      `yaml:"origins" form:"origin" doc:"Allowed origins, such as https://app.example.com. '*' as the only entry allows all origins. Empty: none."`
	MaxAge  time.Duration `yaml:"max_age" zero:"true" doc:"Time for which a browser may cache the permission."`
}

// Log configures the logs. Lines are JSON; the access log goes to standard output.
type Log struct {
	Level  string `yaml:"level" enum:"debug,info,warn,error" doc:"Lowest level that is logged."`
	Access bool   `yaml:"access" doc:"Write one line per request to the access log."`
}

// Default returns the configuration of an empty file. It serves no requests: tiers or pools and
// keys of tenants must be added.
func Default() File {
	return File{
		Listen:           "127.0.0.1:8080",
		FastHTTP1:        true,
		Admin:            Admin{Listen: "127.0.0.1:8081"},
		Auth:             Auth{Required: true},
		MaxBodyBytes:     32 << 20,  // 200 pages as images in base64 fit
		MaxResponseBytes: 256 << 20, // 2,048 embeddings of 4,096 numbers in JSON come to about 170 MB
		// A load balancer that polls /readyz every one or two seconds notices the drain within
		// 5 s; a long response takes minutes.
		Drain: Drain{AcceptGrace: 5 * time.Second, Timeout: 300 * time.Second},
		// lowest time to first token, or near it, in most loads of docs/simulate.md
		Policy: routing.Config{Name: "kv_aware"},
		SessionKeys: []string{ // of a session, a user or a tenant, most specific first as in vLLM Router
			"X-Session-ID", "Session-Id", "X-User-ID", "X-Tenant-ID", "session_params.session_id", "prompt_cache_key", "user",
			"session_id", "user_id"},
		// The thresholds depend on the tiers; see tiers.DefaultRules.
		Classifier: tiers.Rules{Mode: "max", Unavailable: "up",
			Sticky: tiers.Sticky{Enabled: new(true), Idle: 30 * time.Minute}},
		// A call takes milliseconds; several slow ones would double the time to a first token.
		HooksTimeout: time.Second,

		Breaker:  breaker.Default(),
		Health:   workers.DefaultHealth(),
		KVEvents: KVEvents{Enabled: new(true), MaxBytes: kvcache.DefaultMemory},
		Retry:    Retry{Attempts: 2, Budget: 0.2},
		Timeouts: Timeouts{
			Connect: 2 * time.Second, // long enough for one retransmitted SYN, sent after 1 s
			Idle:    120 * time.Second,
			Total: Total{
				Interactive: 600 * time.Second, // the default of the official SDKs
				Background:  600 * time.Second,
				Batch:       1200 * time.Second,
			},
			ClientStall: 30 * time.Second,
		},
		Queue:          defaultQueue(),
		Saturation:     defaultSaturation(),
		HealthWeight:   defaultHealthWeight(),
		ResponseCache:  ResponseCache{MaxBytes: defaultCacheBytes},
		RoutingHeaders: true,
		CORS:           CORS{MaxAge: 10 * time.Minute},
		// LLM gateways serve hundreds of requests per second, few enough to trace all. A graph
		// can show 50 lines; each tenant costs about ten series.
		Telemetry: Telemetry{Sample: 1, Clients: "parent", Tenants: 50},
		// Some minutes of a busy gateway in about 10 MB of memory; files of about 50,000 records,
		// which editors can open.
		Decisions: Decisions{Keep: 2000, MaxSize: 100 << 20, MaxFiles: 5},
		// About 50,000 lines of 2 KB in each file of features.
		Learning: Learning{MaxSize: 100 << 20, MaxFiles: 5, Replay: Replay{Timeout: defaultReplayTimeout}},
		Log:      Log{Level: "info", Access: true},
		// Redis answers in 0.1 ms, and a few requests wait for the whole timeout when an outage begins: it
		// is short beside the time to a first token. Rows are kept for a quarter, for billing.
		Store:    Store{SQL: "sqlite://tierway.db", RedisTimeout: 50 * time.Millisecond, Retention: 90 * 24 * time.Hour},
		Gateways: 1,
	}
}

// Warnings returns the warnings about a valid configuration.
func (f *File) Warnings() Problems { return f.warnings }

// Telemetry configures traces and the detail of metrics. Secrets of a collector belong in
// OTEL_EXPORTER_OTLP_HEADERS, never in the file.
type Telemetry struct {
	OTLP    string  `yaml:"otlp" form:"web" way:"write the collector's URL, such as http://127.0.0.1:4318; set its key in OTEL_EXPORTER_OTLP_HEADERS" reload:"restart" doc:"URL of an OTLP/HTTP collector for traces, such as http://127.0.0.1:4318. '/v1/traces' is appended unless the URL has a path. Empty: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; if both are unset, no traces are sent. The URL may not contain a user or password: set a collector's key in OTEL_EXPORTER_OTLP_HEADERS."`
	Sample  float64 `yaml:"sample" max:"1" doc:"Share of requests that are traced. If a known client already traces its request, the client's sampling decision applies."`
	TraceUI string  `yaml:"trace_ui" form:"web" way:"write the URL of the trace viewer, such as http://127.0.0.1:16686" doc:"Base URL of the trace viewer, such as http://127.0.0.1:16686 for Jaeger. Decision records link to this URL with /trace/ and the trace ID appended."`
	Clients string  `yaml:"clients" enum:"parent,link" reload:"restart" doc:"How the gateway uses the trace of a known client: 'parent' continues it, 'link' starts a new trace that links to it."`
	Tenants int     `yaml:"tenants" max:"1000" zero:"true" doc:"Number of tenants that metrics name: those with the most requests. All others are counted as the tenant 'other'."`
}

// TraceURL returns the page of a trace in Jaeger's form; empty without a trace_ui or an ID.
func (t Telemetry) TraceURL(id string) string {
	if t.TraceUI == "" || id == "" {
		return ""
	}
	return strings.TrimRight(t.TraceUI, "/") + "/trace/" + id
}

// Decisions configures the decision log.
type Decisions struct {
	Keep     int    `yaml:"keep" max:"100000" zero:"true" doc:"Number of newest records that stay in memory for the admin plane. 0: none."`
	File     string `yaml:"file" form:"file" way:"write a path, such as decisions.jsonl, relative to the directory of this file" reload:"restart" doc:"File to which every record is appended as a JSON line. A relative path is resolved against the directory of this file. Empty: none."`
	MaxSize  Size   `yaml:"max_size" reload:"restart" doc:"Size at which the file is rotated. At least 1 MiB."`
	MaxFiles int    `yaml:"max_files" min:"1" max:"100" reload:"restart" doc:"Number of files that are kept, including the current one. The oldest is deleted."`
}
