// Package config is config.yaml: its shape, its defaults and its checks. Load
// reads a file strictly and reports everything that is wrong with it at once,
// each problem with its line, column, path and a way out. The package composes
// the sections that other packages declare and owns those that only the server
// reads.
package config

import (
	"strings"
	"time"

	"tierway/breaker"
	"tierway/routing"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/workers"
)

// File is a whole configuration. The zero File is not usable: start from
// Default, Load, Parse or FromFlags. A File that one of the latter three
// returned is checked and must not be changed. The tags of its fields, which tags.go
// explains, describe every key.
type File struct {
	Listen           string            `yaml:"listen" reload:"restart" doc:"Address of the data plane, host:port. A host that is not loopback needs 'tls' or 'insecure'."`
	TLS              TLS               `yaml:"tls" reload:"restart" doc:"Certificate of the data plane."`
	Insecure         bool              `yaml:"insecure" reload:"restart" doc:"Serve the data plane in plain text on an address that is not loopback, for example behind a proxy that ends TLS."`
	Hosts            []string          `yaml:"hosts" form:"host" doc:"Names by which clients reach the gateway, besides 'localhost' and IP addresses. A web page can give its own name the gateway's address (DNS rebinding): without keys ('auth.required: false') and at '/metrics', a request to any other name is rejected with 421. Without 'hosts', '/metrics' on an address that is not loopback accepts every name."`
	Proxies          []string          `yaml:"trusted_proxies" form:"proxy" doc:"Addresses and networks (CIDR) of proxies in front of the gateway. Of a request from one of them, X-Forwarded-For says who the client is; from anybody else the header says nothing."`
	Watch            bool              `yaml:"watch" doc:"Load this file again when it changes. SIGHUP and the admin plane do so at any time."`
	Admin            Admin             `yaml:"admin" doc:"The admin plane."`
	Metrics          Metrics           `yaml:"metrics" doc:"Where Prometheus reads."`
	Store            Store             `yaml:"store" reload:"restart" doc:"Where what outlives the program is kept, and what several gateways share. No request waits for the database, and none is lost with either."`
	Gateways         int               `yaml:"gateways" min:"1" max:"1000" doc:"How many gateways share the traffic, at least: where Redis counts more, their number holds. Each gives a worker its part of 'max_inflight' and 'max_tokens_inflight', rounded up; while no Redis counts for all of them, each enforces its part of every limit of a tenant too."`
	Auth             Auth              `yaml:"auth" doc:"Who may use the data plane."`
	MaxBodyBytes     Size              `yaml:"max_body_bytes" doc:"Longest request body, unpacked. Longer ones are answered 413."`
	MaxBufferedBytes Size              `yaml:"max_buffered_bytes" absent:"a quarter of 'GOMEMLIMIT', or of 90% of the memory of the control group or machine" doc:"Memory that all request bodies together may hold while they are read, wait or may be sent again, and answers and events over 1 MiB while they are read; at least four times 'max_body_bytes'. A tenant gets more only if it then holds at most as much as stays free, one alone half; eight times 'max_body_bytes' takes the longest body beside the backlog of one other tenant. Beyond it the answer is 503 'overloaded'."`
	MaxResponseBytes Size              `yaml:"max_response_bytes" doc:"Longest answer of a worker that is not a stream, and longest event of a stream. Longer ones are rejected with 502 'response_too_large' and are no failure of the worker. Raw answers (audio, images, passed paths) have no bound."`
	Drain            Drain             `yaml:"drain" doc:"How the program stops."`
	Policy           routing.Config    `yaml:"policy" doc:"The routing policy of every tier and pool that names none."`
	Tiers            []Tier            `yaml:"tiers" reload:"drain" ordered:"true" doc:"The model tiers, least capable first."`
	Pools            []PoolConfig      `yaml:"pools" reload:"drain" ordered:"true" doc:"Workers for models outside the tiers."`
	Models           map[string]string `yaml:"models" doc:"Aliases: model names that clients ask for, each with the tier, pool or model it stands for. '*' in a name is any run of characters, '?' is one; exact names go before patterns, longer patterns before shorter ones. The target 'classify' asks the classifier."`
	Classifier       tiers.Rules       `yaml:"classifier" doc:"Which tier a request goes to that leaves the choice to the gateway, by 'auto' or another name that stands for 'classify'."`
	Breaker          breaker.Config    `yaml:"breaker" doc:"When a worker that fails gets no more requests, and for how long."`
	Health           workers.Health    `yaml:"health" doc:"How workers are asked whether they are up."`
	Retry            Retry             `yaml:"retry" doc:"How often a request is tried. Nothing is tried again once content was sent."`
	Timeouts         Timeouts          `yaml:"timeouts" doc:"How long each stage of a request may take."`
	Queue            Queue             `yaml:"queue" doc:"How requests wait while the workers that they could go to are full. Every tier and pool has a queue: urgent classes go first, and tenants of a class share by their 'weight'."`
	Saturation       Saturation        `yaml:"saturation" doc:"From which of its own metrics on a worker gets no more requests until they fall."`
	RoutingHeaders   bool              `yaml:"routing_headers" doc:"Send the headers that explain a decision: X-Model-Tier, X-Tier-Reason, X-Routed-To, X-Route-Reason, X-Queue-Ms."`
	CORS             CORS              `yaml:"cors" doc:"Which browser pages may call the data plane."`
	Telemetry        Telemetry         `yaml:"telemetry" doc:"Traces (OpenTelemetry) and what is told apart in metrics. What is absent here is taken from the OTEL_* environment where that names a collector."`
	Decisions        Decisions         `yaml:"decisions" doc:"The record of every request, refused ones too: what it asked for in numbers and hashes, never text, every candidate with the terms of its score, and what came of it."`
	Log              Log               `yaml:"log" reload:"restart" doc:"What is logged, as JSON lines: the program's own log on standard error, the access log on standard output."`

	hash     string // Hash
	path     string // that relative files lie beside; empty where no file was loaded
	warnings Problems
	catalog  *tiers.Catalog
	keys     func(variable string) string // workers' keys; a function, so that no printing reaches them
	expanded *expansion                   // a pointer, so that no printing reaches them; nil where no text was parsed
}

// TLS names a certificate and its private key, both PEM files. Both or neither
// is set.
type TLS struct {
	Cert string `yaml:"cert" doc:"PEM file with the certificate and its chain. Read again when it changes."`
	Key  string `yaml:"key" doc:"PEM file with the private key."`
}

// On reports whether a certificate is configured.
func (t TLS) On() bool { return t.Cert != "" || t.Key != "" }

// Admin is the admin plane. Without keys, here or in the database, it is closed.
type Admin struct {
	Listen   string     `yaml:"listen" reload:"restart" doc:"Address of the admin plane, host:port. May be the data plane's."`
	TLS      TLS        `yaml:"tls" reload:"restart" doc:"Certificate of the admin plane. Stays empty where both planes share an address."`
	Insecure bool       `yaml:"insecure" reload:"restart" doc:"Serve the admin plane in plain text on an address that is not loopback."`
	Keys     []AdminKey `yaml:"keys" doc:"Keys of the admin plane. Without any, here or in the database, it stays closed."`
}

// AdminKey is one key of the admin plane, known by its digest only.
type AdminKey struct {
	Name   string `yaml:"name" required:"true" form:"name" doc:"Who holds the key."`
	SHA256 string `yaml:"sha256" required:"true" form:"digest" secret:"true" doc:"SHA-256 of the key in hex: \x60printf %s \"$KEY\" | sha256sum | cut -d ' ' -f 1\x60. The key must not begin with 'tw-' unless the gateway made it."`
	Role   string `yaml:"role" enum:"admin,viewer" absent:"'admin'" doc:"'viewer' sees everything but secrets and changes nothing."`
}

// Metrics is where /metrics is served. An empty Listen is the admin plane's
// address.
type Metrics struct {
	Listen   string `yaml:"listen" reload:"restart" doc:"Address of /metrics, host:port. Empty: the admin plane's. A host that is not loopback needs 'metrics.insecure'."`
	Insecure bool   `yaml:"insecure" reload:"restart" doc:"Serve /metrics in plain text and without a key on an address that is not loopback. Metrics name tenants, models and workers."`
}

// Auth says who may use the data plane.
type Auth struct {
	Required bool                `yaml:"required" doc:"Ask for a key. 'false' works only while every address is loopback. Without keys, the gateway answers to 'localhost', IP addresses and 'hosts', refuses requests that pages of other sites send unless 'cors.origins' names them, and takes JSON only with 'Content-Type: application/json'; paths that pass through a pool take any type."`
	Keys     []tenants.KeyConfig `yaml:"keys" doc:"Tenants and their keys."`
}

// Drain says how the program stops: it goes on accepting for AcceptGrace while
// /readyz already refuses, then waits up to Timeout for requests under way.
type Drain struct {
	AcceptGrace time.Duration `yaml:"accept_grace" zero:"true" doc:"How long new requests are still taken after /readyz began to refuse."`
	Timeout     time.Duration `yaml:"timeout" doc:"How long requests under way may take to end."`
}

// Store says where what outlives the process is kept, and what several gateways
// share. Its URLs may hold passwords: no printing shows more of one than scheme,
// host and the file.
type Store struct {
	SQL       string        `yaml:"sql" form:"sql" way:"write sqlite://FILE or postgres://user@host/database" zero:"true" secret:"url" doc:"Database of tenants, keys, the ledger, live overrides and the audit log: 'sqlite://FILE', 'sqlite://:memory:' or 'postgres://…'. A relative FILE lies beside this file. Empty: none; keys then stand in this file alone. May hold a password, which is shown nowhere."`
	Redis     string        `yaml:"redis" form:"redis" way:"write redis://host:6379, or rediss:// with TLS" secret:"url" doc:"Redis for limits that several gateways share, and for word of changes: 'redis://…', 'rediss://…', 'redis+cluster://…' or 'redis+sentinel://…'. Empty: none. May hold a password, which is shown nowhere."`
	Retention time.Duration `yaml:"retention" zero:"true" doc:"How long the ledger keeps a row for each request. What tenants used by day stays. '0s' keeps all."`
}

// PoolConfig is one pool as the file writes it. What is left empty is inherited from
// the file's section of the same name.
type PoolConfig struct {
	Name       string           `yaml:"name" required:"true" form:"name" doc:"The pool's name, unique in the file."`
	Model      string           `yaml:"model" tier_required:"true" tier_doc:"The model that its workers serve, as they name it." reload:"drain" doc:"The model that its workers serve, as they name it. Aliases of the pool are sent with this name."`
	Models     []string         `yaml:"models" tier_yaml:"-" doc:"Further models that its workers serve, such as adapters. Clients ask for them by these names."`
	Engine     string           `yaml:"engine" enum:"auto,vllm,sglang,llamacpp,ollama,openai" reload:"drain" absent:"'auto'" doc:"What its workers run. 'auto' is told from their answers."`
	Serves     []string         `yaml:"serves" tier_absent:"chat, completions, responses, messages, tokenize" tier_doc:"The kinds of request that its workers answer." enum:"chat,completions,responses,messages,embeddings,rerank,score,tokenize,moderations,images,audio" doc:"The kinds of request that its workers answer. Needed by a pool with models."`
	Context    int64            `yaml:"context" tier_doc:"Tokens of prompt and answer together that its model takes. A request that does not fit moves to a higher tier, if the client did not ask for the model by name; one that surely fits nowhere is refused. 0 is not known and checks nothing." doc:"Tokens of prompt and answer together that its models take. A request that does not fit is refused. 0 is not known and checks nothing."`
	Price      *tenants.Price   `yaml:"price" absent:"free" doc:"What its tokens cost, in units of money for each million."`
	Paths      []string         `yaml:"paths" form:"path" tier_yaml:"-" doc:"Other paths that go through to the pool untouched: exact, or with '*' at the end for everything below."`
	Tenant     string           `yaml:"tenant" form:"owner" tier_yaml:"-" absent:"all tenants" doc:"The only tenant that may use the pool. With it the tenant's requests may name objects that the pool's engines keep: 'paths' such as '/v1/files/*', conversations, and responses that this gateway does not know. See docs/tenants.md."`
	MaxUpload  Size             `yaml:"max_upload_bytes" tier_yaml:"-" absent:"none streams" doc:"Longest request body on 'paths'. One that is longer than 'max_body_bytes', or has no Content-Length, streams to the worker instead of being buffered, unless it looks like JSON. Without the key, 'max_body_bytes' is the bound."`
	Policy     routing.Config   `yaml:"policy" absent:"'policy'" doc:"The pool's routing policy."`
	Queue      Queue            `yaml:"queue" absent:"'queue'" doc:"How the pool's requests wait, key by key."`
	Saturation Saturation       `yaml:"saturation" absent:"'saturation'" doc:"From which metrics on its workers get no more requests, key by key."`
	Health     *workers.Health  `yaml:"health" absent:"'health'" doc:"How the pool's workers are checked, key by key."`
	Workers    []workers.Config `yaml:"workers" required:"true" reload:"drain" doc:"The pool's workers."`

	AllowFields     []string `yaml:"allow_fields" enum:"kv_transfer_params,ec_transfer_params,vllm_xargs,bootstrap_host,bootstrap_port,bootstrap_room,bootstrap_pair_key,data_parallel_rank,routed_dp_rank,disagg_prefill_dp_rank" absent:"none" doc:"Fields of request bodies that reach the pool's workers although they name other hosts or place the request inside an engine. All others of these fields are removed."`
	ResponseHeaders []string `yaml:"response_headers" form:"header" absent:"none" doc:"Further answer headers of the pool's workers that reach clients, such as x-inference-pod. Headers of content, caching, rate limits, OpenAI and Anthropic pass without being named; see docs/operations.md."`
}

// Tier is one model tier with the workers that serve it: a pool without the keys that
// only pools have.
type Tier PoolConfig

// Retry bounds how often a request is tried.
type Retry struct {
	Attempts int     `yaml:"attempts" min:"1" max:"5" doc:"Attempts for each request, the first included. A request that creates or stores an object on its engine, such as a response without 'store: false', is not retried once its body was sent."`
	Budget   float64 `yaml:"budget" max:"1" doc:"Retries allowed as a share of all requests, in addition to 10 per second. When the budget is spent, errors carry x-should-retry: false, unless the workers rest after 429 or 503 and Retry-After tells when they are back."`
}

// Timeouts bound each stage of a request.
type Timeouts struct {
	Connect     time.Duration `yaml:"connect" doc:"To connect to a worker."`
	FirstByte   time.Duration `yaml:"first_byte" doc:"Limit from the end of the request to the first event of a stream. Answers that are not streamed have only the limit 'total'."`
	Idle        time.Duration `yaml:"idle" doc:"Between two pieces of an answer that has begun."`
	Total       Total         `yaml:"total" doc:"Limit for a whole request, including its time in the queue, by class. Its expiry is no failure of the worker, and the request is not retried."`
	ClientStall time.Duration `yaml:"client_stall" doc:"How long a write to the client may be pending, or its request body may pause, before the connection is closed. Does not count while the worker is silent."`
}

// Total bounds whole requests by class.
type Total struct {
	Interactive time.Duration `yaml:"interactive" doc:"For interactive requests."`
	Background  time.Duration `yaml:"background" doc:"For background requests."`
	Batch       time.Duration `yaml:"batch" doc:"For batch requests."`
}

// CORS says which browser pages may call the data plane. Without origins none
// may.
type CORS struct {
	Origins []string      `yaml:"origins" form:"origin" doc:"Origins, such as https://app.example.com; '*' alone is any. Empty: none."`
	MaxAge  time.Duration `yaml:"max_age" zero:"true" doc:"How long a browser may remember the permission."`
}

// Log says what is logged. Lines are JSON; the access log is on standard output.
type Log struct {
	Level  string `yaml:"level" enum:"debug,info,warn,error" doc:"Least level that is logged."`
	Access bool   `yaml:"access" doc:"Log one line a request."`
}

// Default returns the configuration of an empty file. It serves nothing: tiers
// or pools and tenants' keys have to come to it.
func Default() File {
	return File{
		Listen:           "127.0.0.1:8080",
		Admin:            Admin{Listen: "127.0.0.1:8081"},
		Auth:             Auth{Required: true},
		MaxBodyBytes:     32 << 20,  // 200 pages as images in base64 fit
		MaxResponseBytes: 256 << 20, // 2,048 embeddings of 4,096 numbers in JSON come to about 170 MB
		// A load balancer that asks /readyz every second or two has seen the
		// refusal after 5 s; a long answer takes minutes.
		Drain:  Drain{AcceptGrace: 5 * time.Second, Timeout: 300 * time.Second},
		Policy: routing.Config{Name: "chwbl"}, // a prompt's beginning finds the worker that knows it, and none is overrun
		// The thresholds depend on the tiers: tiers.DefaultRules has them.
		Classifier: tiers.Rules{Mode: "max", Preset: "groups", Unavailable: "up",
			Sticky: tiers.Sticky{Enabled: new(true), Idle: 30 * time.Minute}},
		Breaker: breaker.Default(),
		Health:  workers.DefaultHealth(),
		Retry:   Retry{Attempts: 2, Budget: 0.2},
		Timeouts: Timeouts{
			Connect:   2 * time.Second,   // a SYN is sent again after 1 s
			FirstByte: 300 * time.Second, // of a stream: a long prompt behind others on a busy engine
			Idle:      120 * time.Second,
			Total: Total{
				Interactive: 600 * time.Second, // the clients' own default
				Background:  600 * time.Second,
				Batch:       1200 * time.Second,
			},
			ClientStall: 30 * time.Second,
		},
		Queue:          defaultQueue(),
		Saturation:     defaultSaturation(),
		RoutingHeaders: true,
		CORS:           CORS{MaxAge: 10 * time.Minute},
		// A gateway of models sees hundreds of requests a second, not hundreds of thousands, so that all
		// are traced. One graph can show 50 lines; each tenant costs about ten series.
		Telemetry: Telemetry{Sample: 1, Clients: "parent", Tenants: 50},
		// Minutes of a busy gateway, in about 10 MB; files of 50,000 records, which an editor still opens.
		Decisions: Decisions{Keep: 2000, MaxSize: 100 << 20, MaxFiles: 5},
		Log:       Log{Level: "info", Access: true},
		Store:     Store{SQL: "sqlite://tierway.db", Retention: 90 * 24 * time.Hour}, // a quarter, as bills are checked
		Gateways:  1,
	}
}

// Warnings returns what deserves a look in a configuration that works.
func (f *File) Warnings() Problems { return f.warnings }

// Telemetry says where traces go and how finely requests are told apart. Secrets
// that a collector asks for stand in OTEL_EXPORTER_OTLP_HEADERS, never here.
type Telemetry struct {
	OTLP    string  `yaml:"otlp" form:"web" way:"write the collector's address, such as http://127.0.0.1:4318; what it asks for stands in OTEL_EXPORTER_OTLP_HEADERS" reload:"restart" doc:"Where traces go: the address of a collector that speaks OTLP/HTTP, such as http://127.0.0.1:4318, where /v1/traces is added unless it has a path. Empty: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, and without these no traces. Without user and password: a collector's key stands in OTEL_EXPORTER_OTLP_HEADERS."`
	Sample  float64 `yaml:"sample" max:"1" doc:"Part of the requests that are traced. One that a known client traces already is traced if the client's is."`
	TraceUI string  `yaml:"trace_ui" form:"web" way:"write where people open Jaeger, such as http://127.0.0.1:16686" doc:"Where people look at traces, such as Jaeger's http://127.0.0.1:16686. Decisions link to it: /trace/ and the trace's id are added."`
	Clients string  `yaml:"clients" enum:"parent,link" reload:"restart" doc:"What the trace of a known client is: 'parent' goes on with it, 'link' starts one of its own that links to it."`
	Tenants int     `yaml:"tenants" max:"1000" zero:"true" doc:"Tenants that metrics name, those with the most requests; all others are one tenant, 'other'."`
}

// TraceURL returns the page of a trace, as Jaeger names it; empty without a
// trace_ui or an id.
func (t Telemetry) TraceURL(id string) string {
	if t.TraceUI == "" || id == "" {
		return ""
	}
	return strings.TrimRight(t.TraceUI, "/") + "/trace/" + id
}

// Decisions says which records of decisions are kept.
type Decisions struct {
	Keep     int    `yaml:"keep" max:"100000" zero:"true" doc:"Records that stay in memory, the newest, for the admin plane. 0: none."`
	File     string `yaml:"file" form:"file" way:"write a path such as decisions.jsonl; a relative one lies beside this file" reload:"restart" doc:"File that every record is added to, as JSON lines. A relative path lies beside this file. Empty: none."`
	MaxSize  Size   `yaml:"max_size" reload:"restart" doc:"Length at which the file is put aside for a new one: at least 1 MiB."`
	MaxFiles int    `yaml:"max_files" min:"1" max:"100" reload:"restart" doc:"Files that are kept, the one that is written included. The oldest goes."`
}
