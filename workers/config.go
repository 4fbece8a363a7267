// Package workers manages the live workers: their health, their load and the connections to them. A
// Fleet keeps them over reloads and checks them; a Worker carries requests to its server.
package workers

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Config is one worker in config.yaml. A nil Weight is 1, nil Models are those of the pool, and a
// nil Health is the pool's.
type Config struct {
	Name              string   `yaml:"name" required:"true" form:"name" doc:"The worker's name, unique in the file, as X-Routed-To shows it."`
	URL               string   `yaml:"url" required:"true" reload:"drain" doc:"Where it listens: http://host:port, https://host/base or unix:///path. Without user and password. A server with several models stands in several tiers or pools, once in each; it is checked once, and bounds count for each entry alone."`
	Weight            *int     `yaml:"weight" max:"100" absent:"'1'" doc:"Its share beside its peers. 0 takes no new requests. 'round_robin' and 'random' ignore all but 0."`
	MaxInflight       int      `yaml:"max_inflight" doc:"Requests that it works on at once. 0 is no bound."`
	MaxTokensInflight int64    `yaml:"max_tokens_inflight" doc:"Tokens of prompts and expected answers that it works on at once. A worker with nothing to do takes any request. 0 is no bound."`
	Priority          int      `yaml:"priority" doc:"Its group. A lower number is used first, a higher one only while every worker below it is down, resting or tried."`
	Models            []string `yaml:"models" absent:"all" doc:"Which of its tier's or pool's models it serves, such as the adapters that it has loaded."`
	APIKeyEnv         string   `yaml:"api_key_env" form:"variable" secret:"true" doc:"The environment variable that holds the worker's own bearer key."`
	Health            *Health  `yaml:"health" absent:"the tier's or pool's 'health', then the file's" doc:"How this worker is checked, key by key."`
}

// Health is the configuration of health checks.
type Health struct {
	Path      string        `yaml:"path" form:"health" doc:"What is asked: a path, 'auto' (/health, else /v1/models) or 'off' (always up)."`
	Interval  time.Duration `yaml:"interval" doc:"Time between two checks."`
	Timeout   time.Duration `yaml:"timeout" doc:"How long a check may take. At most 'interval'."`
	DownAfter int           `yaml:"down_after" min:"1" max:"1000" doc:"Failed checks in a row before the worker counts as down."`
	UpAfter   int           `yaml:"up_after" min:"1" max:"1000" doc:"Good checks in a row before it counts as up again."`
}

// Spec is one worker with all inherited values resolved. Two Specs with the same name, pool, URL,
// engine and model describe the same worker: the fleet keeps it over a reload, with its load and
// health. Of all changes to such a worker only a new ConnectTimeout closes idle connections.
type Spec struct {
	Config
	Pool           string // the tier or pool of the worker
	Engine         string // an openai.Engine
	Model          string // model name sent to the worker; "" forwards the client's name
	Key            string `json:"-"` // value of APIKeyEnv; never printed
	ConnectTimeout time.Duration
	// StaleAfter is the age at which the worker's load is stale; it is read often enough to stay
	// younger. With 0 it is read only after each health check.
	StaleAfter time.Duration
}

// DefaultHealth returns the default health checks. They detect a dead engine in 10 to 15 seconds,
// and a single slow check does not take a busy engine out.
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
func (s Spec) SameWorker(o Spec) bool {
	return s.Name == o.Name && s.URL == o.URL && s.Pool == o.Pool && s.Engine == o.Engine && s.Model == o.Model
}

// clone returns a deep copy of s.
func (s Spec) clone() Spec {
	if s.Weight != nil {
		s.Weight = new(*s.Weight)
	}
	if s.Health != nil {
		s.Health = new(*s.Health)
	}
	s.Models = slices.Clone(s.Models)
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
