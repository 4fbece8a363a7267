package workers

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"tierway/openai"
	"tierway/workers/kvcache"
)

// Roles of a worker in a pool with a hand-over.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
	RoleBoth    = "both"
)

// Config is one worker in config.yaml. If Weight is nil, the weight is 1. If Models, Health or
// KVEvents is nil, the value of the pool applies.
type Config struct {
	Name              string   `yaml:"name" required:"true" form:"name" doc:"Name of the worker, unique in the file. X-Routed-To shows it."`
	URL               string   `yaml:"url" required:"true" reload:"drain" doc:"Address of the server: http://host:port, https://host/base or unix:///path. A user or password is not allowed. 'http://host:port@2' is rank 2 of a data-parallel server. A server with several models has one entry in each of their tiers or pools. It is checked once for all entries; limits apply to each entry separately."`
	Ranks             int      `yaml:"ranks" min:"1" max:"64" reload:"drain" absent:"the engine chooses the rank of a request" doc:"Number of data-parallel ranks of the server. Each rank is a worker of its own, named 'name@0', 'name@1' and so on. 'weight', the limits and 'cache_tokens' apply to each rank."`
	Weight            *int     `yaml:"weight" max:"100" absent:"'1'" doc:"Share of requests, relative to the other workers of the pool. 0: no new requests. 'round_robin' and 'random' ignore all values except 0."`
	MaxInflight       int      `yaml:"max_inflight" doc:"Maximum number of requests in flight. 0: no limit."`
	MaxTokensInflight int64    `yaml:"max_tokens_inflight" doc:"Maximum number of tokens in flight, of prompts and expected output. An idle worker accepts a request of any size. 0: no limit."`
	Priority          int      `yaml:"priority" doc:"Failover group. The lowest number is used first. A higher one is used only while all workers with lower numbers are down, drained, ejected, in backoff or already tried."`
	Models            []string `yaml:"models" absent:"all" doc:"Models of the tier or pool that this worker serves, such as the adapters that it has loaded."`
	Region            string   `yaml:"region" form:"name" absent:"none" doc:"Region of the worker. Within a 'priority' group, requests use the nearest region. They use a farther one only while all nearer workers are full, saturated or not usable. A worker without a region is the farthest."`
	APIKeyEnv         string   `yaml:"api_key_env" form:"variable" secret:"true" doc:"Environment variable with the worker's key. It is sent as a bearer token, or as x-api-key to the engine 'anthropic'."`
	APIKeyFile        string   `yaml:"api_key_file" doc:"File with the worker's key, in place of 'api_key_env'. It is read again when it changes. A relative file is resolved against the working directory of the process."`
	Headers           Headers  `yaml:"headers" json:"-" secret:"true" absent:"the tier's or pool's 'headers'" doc:"Headers of everything that is sent to this worker, by name: of requests, health checks and metrics. They replace the client's. Values may contain ${NAME}; no output shows them. Other headers of the tier or pool apply too."`
	TLS               *TLS     `yaml:"tls" absent:"the tier's or pool's 'tls'" doc:"Certificates for the connections to the worker. Its URL must begin with https."`
	Health            *Health  `yaml:"health" absent:"the tier's or pool's 'health', then the file's" doc:"Health checks of this worker. Each key replaces the inherited one."`
	// KVEvents inherits from the tier or pool, key by key.
	KVEvents    *kvcache.Config `yaml:"kv_events" absent:"the tier's or pool's 'kv_events'" doc:"KV-cache events of this worker's engine. Each key replaces the inherited one."`
	CacheTokens int64           `yaml:"cache_tokens" absent:"the size that the engine reports" doc:"Size of the engine's KV cache in tokens, of all its data-parallel ranks together. For a worker that is one rank: of that rank. Needed only for engines without a metric for it: vLLM and SGLang have one."`

	Role          string `yaml:"role" enum:"prefill,decode,both" absent:"'both', with 'handover' of the tier or pool" doc:"Stages that the worker serves, with 'handover' of its tier or pool. 'prefill': it computes prompts for other workers. 'decode': it generates answers. 'both': an engine that can do both ('nixl', 'shared'), or one that serves whole requests only ('p2p_nccl', 'sglang')."`
	BootstrapPort int    `yaml:"bootstrap_port" min:"1" max:"65535" absent:"'8998' for prefill workers of 'sglang'" doc:"Port of the engine's '--disaggregation-bootstrap-port', for prefill workers of 'handover: sglang'."`
	KVAddress     string `yaml:"kv_address" form:"kvaddress" absent:"none" doc:"host:port of the engine's 'kv_port', by which other engines reach it, for 'handover: p2p_nccl'. Required for its prefill and decode workers."`
}

// TLS names the certificates of connections to a worker. All files are PEM.
type TLS struct {
	CA   string `yaml:"ca" absent:"those of the system" doc:"File of the authorities that sign the server's certificate. It is read again every five minutes. Relative files of this section are resolved against the working directory of the process."`
	Cert string `yaml:"cert" absent:"none" doc:"File of the gateway's own certificate, for a server that requires one. It is read for each connection."`
	Key  string `yaml:"key" absent:"none" doc:"File of the private key of 'cert'. It is read for each connection."`
}

// Equal reports whether two entries are written the same. An absent and an empty list differ.
func (c *Config) Equal(o *Config) bool {
	return c.Name == o.Name && c.URL == o.URL && c.Ranks == o.Ranks && equalPointers(c.Weight, o.Weight) &&
		c.MaxInflight == o.MaxInflight && c.MaxTokensInflight == o.MaxTokensInflight && c.Priority == o.Priority &&
		(c.Models == nil) == (o.Models == nil) && slices.Equal(c.Models, o.Models) &&
		c.Region == o.Region && c.APIKeyEnv == o.APIKeyEnv && c.APIKeyFile == o.APIKeyFile &&
		(c.Headers == nil) == (o.Headers == nil) && maps.Equal(c.Headers, o.Headers) &&
		equalPointers(c.TLS, o.TLS) && equalPointers(c.Health, o.Health) && c.equalEvents(o) &&
		c.CacheTokens == o.CacheTokens && c.Role == o.Role && c.BootstrapPort == o.BootstrapPort &&
		c.KVAddress == o.KVAddress
}

func (c *Config) equalEvents(o *Config) bool {
	if c.KVEvents == nil || o.KVEvents == nil || c.KVEvents == o.KVEvents {
		return c.KVEvents == o.KVEvents
	}
	a, b := *c.KVEvents, *o.KVEvents
	same := equalPointers(a.Enabled, b.Enabled) && equalPointers(a.Rank, b.Rank)
	a.Enabled, b.Enabled, a.Rank, b.Rank = nil, nil, nil, nil
	return same && a == b
}

// equalPointers reports whether both are nil or point to equal values.
func equalPointers[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// Health is the configuration of health checks.
type Health struct {
	Path      string        `yaml:"path" form:"health" doc:"Path of the check, 'auto' (/health, else /v1/models; in the opposite order with the engine 'anthropic') or 'off' (no checks, always up)."`
	Interval  time.Duration `yaml:"interval" doc:"Time between two checks."`
	Timeout   time.Duration `yaml:"timeout" doc:"Timeout of a check. At most 'interval'."`
	DownAfter int           `yaml:"down_after" min:"1" max:"1000" doc:"Consecutive failed checks until the worker counts as down."`
	UpAfter   int           `yaml:"up_after" min:"1" max:"1000" doc:"Consecutive passed checks until a worker that is down counts as up. One passed check is enough if it is the first of a new worker, or the first after a change of key or 'health'."`
}

// Spec is one worker with all inherited values resolved. Two Specs with the same name, pool, URL,
// rank, engine and model describe the same worker: the fleet keeps it over a reload, with its load and
// health. Only a change of ConnectTimeout closes its idle connections.
type Spec struct {
	Config
	Rank           *int   // data-parallel rank of the server; nil: the engine chooses the rank
	Pool           string // the tier or pool of the worker
	Engine         string // an openai.Engine
	Model          string // model name sent to the worker; "" forwards the client's name
	Key            string `json:"-"` // value of APIKeyEnv; never printed
	ConnectTimeout time.Duration
	// StaleAfter is the age at which the worker's load is stale. The load is read often enough to
	// stay younger. If StaleAfter is 0, it is read only after each health check.
	StaleAfter time.Duration
}

// DefaultHealth returns the default health checks. They detect a dead engine in 10 to 15 seconds. A
// single slow check does not mark a busy engine down.
func DefaultHealth() Health {
	return Health{Path: pathAuto, Interval: 5 * time.Second, Timeout: 5 * time.Second, DownAfter: 3, UpAfter: 2}
}

// health returns the worker's health checks with defaults filled in.
func (s Spec) health() Health {
	usual, h := DefaultHealth(), cmp.Or(s.Health, new(Health))
	return Health{
		Path:      cmp.Or(h.Path, usual.Path),
		Interval:  cmp.Or(h.Interval, usual.Interval),
		Timeout:   cmp.Or(h.Timeout, usual.Timeout),
		DownAfter: cmp.Or(h.DownAfter, usual.DownAfter),
		UpAfter:   cmp.Or(h.UpAfter, usual.UpAfter),
	}
}

// SameWorker reports whether s and o are the same engine at the same address. Connection, health
// and price settings may differ: an engine has the same load and speed under another key.
func (s *Spec) SameWorker(o *Spec) bool {
	return s.Name == o.Name && s.URL == o.URL && s.sameRank(o) && s.Pool == o.Pool && s.Engine == o.Engine &&
		s.Model == o.Model
}

// Equal reports whether all values of two Specs are equal. An absent and an empty list differ.
func (s *Spec) Equal(o *Spec) bool {
	return s.Config.Equal(&o.Config) && s.sameRank(o) && s.Pool == o.Pool && s.Engine == o.Engine &&
		s.Model == o.Model && s.Key == o.Key && s.ConnectTimeout == o.ConnectTimeout && s.StaleAfter == o.StaleAfter
}

// anthropic reports whether the worker speaks Anthropic's API, whose key has a header of its own.
func (s Spec) anthropic() bool { return openai.Engine(s.Engine) == openai.EngineAnthropic }

// keySource names the setting of the worker's key.
func (s Spec) keySource() string {
	if s.APIKeyFile != "" {
		return "api_key_file (" + s.APIKeyFile + ")"
	}
	if s.APIKeyEnv == "" && len(s.Headers) > 0 {
		return "headers"
	}
	return "api_key_env (" + cmp.Or(s.APIKeyEnv, "none is set") + ")"
}

func (s Spec) tls() TLS {
	if s.TLS == nil {
		return TLS{}
	}
	return *s.TLS
}

func (s Spec) events() kvcache.Config {
	if s.KVEvents == nil {
		return kvcache.Config{}
	}
	return *s.KVEvents
}

func (s Spec) clone() Spec {
	if s.Weight != nil {
		s.Weight = new(*s.Weight)
	}
	if s.Health != nil {
		s.Health = new(*s.Health)
	}
	if s.TLS != nil {
		s.TLS = new(*s.TLS)
	}
	if s.KVEvents != nil {
		s.KVEvents = new(*s.KVEvents)
	}
	if s.Rank != nil {
		s.Rank = new(*s.Rank)
	}
	s.Headers, s.Models = maps.Clone(s.Headers), slices.Clone(s.Models)
	return s
}

// String describes the worker without its key.
func (s Spec) String() string {
	return fmt.Sprintf("worker %s of pool %s at %s (engine %s, key %s)", s.Name, s.Pool, s.URL, s.Engine, s.keyState())
}

// Format prints the result of String under every verb, so that no format shows the key.
func (s Spec) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue keeps the key out of structured logs.
func (s Spec) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("name", s.Name), slog.String("pool", s.Pool), slog.String("url", s.URL),
		slog.String("engine", s.Engine), slog.String("key", s.keyState()))
}

func (s Spec) keyState() string {
	if s.Key == "" {
		return "none"
	}
	return "set"
}
