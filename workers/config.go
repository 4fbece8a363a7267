// Package workers keeps the live engines: whether each is up, how loaded it is and
// how a request is sent to it.
package workers

import (
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Config is one worker as config.yaml writes it.
type Config struct {
	Name              string   `yaml:"name"`                // unique in the whole file; shown in X-Routed-To
	URL               string   `yaml:"url"`                 // http://host:port, https://host[/base] or unix:///path
	Weight            *int     `yaml:"weight"`              // 0 to 100; nil is 1; 0 takes no new requests
	MaxInflight       int      `yaml:"max_inflight"`        // requests at once; 0 is no bound
	MaxTokensInflight int64    `yaml:"max_tokens_inflight"` // tokens of prompts and expected answers at once; 0 is no bound
	Priority          int      `yaml:"priority"`            // its group: a higher one is used only while no lower one can be
	Models            []string `yaml:"models"`              // which of its pool's models it serves; empty is all
	APIKeyEnv         string   `yaml:"api_key_env"`         // environment variable that holds the worker's own bearer key
	Health            *Health  `yaml:"health"`              // overrides the file's health section
}

// Health says how a worker is asked whether it is up.
type Health struct {
	Path      string        `yaml:"path"` // "auto": /health, else /v1/models; "off": always up
	Interval  time.Duration `yaml:"interval"`
	Timeout   time.Duration `yaml:"timeout"`
	DownAfter int           `yaml:"down_after"` // failed checks in a row before it counts as down
	UpAfter   int           `yaml:"up_after"`   // good checks in a row before it counts as up again
}

// Spec is one worker with everything resolved that its Config leaves to
// others. Two Specs of one name, pool, URL, engine and model are the same worker:
// the fleet keeps it over a reload, with its load and health. Only a changed
// ConnectTimeout drops its idle connections.
type Spec struct {
	Config
	Pool           string // the tier or pool that it belongs to
	Engine         string // an openai.Engine
	Model          string // what its pool asks it for; "" is the client's own name
	Key            string `json:"-"` // the value of APIKeyEnv; never printed
	ConnectTimeout time.Duration
	// StaleAfter is how old the worker's load may be to count: it is asked for often
	// enough to be younger. 0: it is only asked for after each health check.
	StaleAfter time.Duration
}

// The health section's values where neither the worker nor the file gives one:
// an engine that died is found in 10 to 15 seconds without a single slow check
// taking a busy one out.
const (
	defaultHealthPath = "auto"
	defaultInterval   = 5 * time.Second
	defaultTimeout    = 5 * time.Second
	defaultDownAfter  = 3
	defaultUpAfter    = 2
)

// health returns how the worker is checked, every value filled in.
func (s Spec) health() Health {
	var h Health
	if s.Health != nil {
		h = *s.Health
	}
	if h.Path == "" {
		h.Path = defaultHealthPath
	}
	if h.Interval <= 0 {
		h.Interval = defaultInterval
	}
	if h.Timeout <= 0 {
		h.Timeout = defaultTimeout
	}
	if h.DownAfter <= 0 {
		h.DownAfter = defaultDownAfter
	}
	if h.UpAfter <= 0 {
		h.UpAfter = defaultUpAfter
	}
	return h
}

// sameWorker reports whether s and o are the same engine in the same place. The
// way in which the gateway connects to it, checks it and pays it may differ: an
// engine has the same load and speed under another key.
func (s Spec) sameWorker(o Spec) bool {
	return s.Name == o.Name && s.URL == o.URL && s.Pool == o.Pool && s.Engine == o.Engine && s.Model == o.Model
}

// clone returns a copy that shares nothing with s.
func (s Spec) clone() Spec {
	if s.Weight != nil {
		weight := *s.Weight
		s.Weight = &weight
	}
	if s.Health != nil {
		health := *s.Health
		s.Health = &health
	}
	s.Models = slices.Clone(s.Models)
	return s
}

// String describes the worker without its key.
func (s Spec) String() string {
	return fmt.Sprintf("worker %s of pool %s at %s (engine %s, key %s)", s.Name, s.Pool, s.URL, s.Engine, s.keyState())
}

// Format prints what String says under every verb, so that no way of printing
// a Spec shows its key.
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
