// Package config is config.yaml: its shape, its defaults and its checks. Load
// reads a file strictly and reports everything that is wrong with it at once,
// each problem with its line, column, path and a way out. The package composes
// the sections that other packages declare and owns those that only the server
// reads.
package config

import (
	"time"

	"tierway/breaker"
	"tierway/openai"
	"tierway/routing"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/workers"
)

// File is a whole configuration. The zero File is not usable: start from
// Default, Load, Parse or FromFlags. A File that one of the latter three
// returned is checked and must not be changed.
type File struct {
	Listen           string            `yaml:"listen"`
	TLS              TLS               `yaml:"tls"`
	Insecure         bool              `yaml:"insecure"`
	Hosts            []string          `yaml:"hosts"`           // lower case, without a port
	Proxies          []string          `yaml:"trusted_proxies"` // as written; TrustedProxies reads them
	Watch            bool              `yaml:"watch"`
	Admin            Admin             `yaml:"admin"`
	Metrics          Metrics           `yaml:"metrics"`
	Store            Store             `yaml:"store"`
	Gateways         int               `yaml:"gateways"` // that share the traffic, this one included; at least 1
	Auth             Auth              `yaml:"auth"`
	MaxBodyBytes     Size              `yaml:"max_body_bytes"`
	MaxBufferedBytes Size              `yaml:"max_buffered_bytes"` // of all request bodies together; 0: a quarter of the memory limit
	MaxResponseBytes Size              `yaml:"max_response_bytes"`
	Drain            Drain             `yaml:"drain"`
	Policy           routing.Config    `yaml:"policy"`
	Tiers            []Tier            `yaml:"tiers"`
	Pools            []PoolConfig      `yaml:"pools"`
	Models           map[string]string `yaml:"models"`
	Classifier       tiers.Rules       `yaml:"classifier"`
	Breaker          breaker.Config    `yaml:"breaker"`
	Health           workers.Health    `yaml:"health"`
	Retry            Retry             `yaml:"retry"`
	Timeouts         Timeouts          `yaml:"timeouts"`
	Queue            Queue             `yaml:"queue"`
	Saturation       Saturation        `yaml:"saturation"`
	RoutingHeaders   bool              `yaml:"routing_headers"`
	CORS             CORS              `yaml:"cors"`
	Telemetry        Telemetry         `yaml:"telemetry"`
	Decisions        Decisions         `yaml:"decisions"`
	Log              Log               `yaml:"log"`

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
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// On reports whether a certificate is configured.
func (t TLS) On() bool { return t.Cert != "" || t.Key != "" }

// Admin is the admin plane. Without keys, here or in the database, it is closed.
type Admin struct {
	Listen   string     `yaml:"listen"`
	TLS      TLS        `yaml:"tls"`
	Insecure bool       `yaml:"insecure"`
	Keys     []AdminKey `yaml:"keys"`
}

// AdminKey is one key of the admin plane, known by its digest only.
type AdminKey struct {
	Name   string `yaml:"name"`
	SHA256 string `yaml:"sha256"` // 64 hex digits
	Role   string `yaml:"role"`   // admin or viewer; a checked File has no other
}

// Metrics is where /metrics is served. An empty Listen is the admin plane's
// address.
type Metrics struct {
	Listen   string `yaml:"listen"`
	Insecure bool   `yaml:"insecure"`
}

// Auth says who may use the data plane.
type Auth struct {
	Required bool                `yaml:"required"`
	Keys     []tenants.KeyConfig `yaml:"keys"`
}

// Drain says how the program stops: it goes on accepting for AcceptGrace while
// /readyz already refuses, then waits up to Timeout for requests under way.
type Drain struct {
	AcceptGrace time.Duration `yaml:"accept_grace"`
	Timeout     time.Duration `yaml:"timeout"`
}

// Store says where what outlives the process is kept, and what several gateways
// share. Its URLs may hold passwords: no printing shows more of one than scheme,
// host and the file.
type Store struct {
	SQL       string        `yaml:"sql"`       // empty: no database
	Redis     string        `yaml:"redis"`     // empty: none
	Retention time.Duration `yaml:"retention"` // of the ledger's rows; 0 keeps all
}

// Tier is one model tier with the workers that serve it. What is left empty is
// inherited from the file's section of the same name.
type Tier struct {
	Name       string           `yaml:"name"`
	Model      string           `yaml:"model"`
	Engine     string           `yaml:"engine"`
	Serves     []string         `yaml:"serves"`
	Context    int64            `yaml:"context"` // tokens of prompt and answer; 0 is not known
	Price      *tenants.Price   `yaml:"price"`   // nil: free
	Policy     routing.Config   `yaml:"policy"`
	Queue      Queue            `yaml:"queue"`
	Saturation Saturation       `yaml:"saturation"`
	Health     *workers.Health  `yaml:"health"`
	Workers    []workers.Config `yaml:"workers"`

	AllowFields     []string `yaml:"allow_fields"`     // of openai.EngineFields, which reach its workers
	ResponseHeaders []string `yaml:"response_headers"` // of its workers, which reach clients
}

// PoolConfig is one pool outside the tiers. What is left empty is inherited from
// the file's section of the same name.
type PoolConfig struct {
	Name       string           `yaml:"name"`
	Model      string           `yaml:"model"`
	Models     []string         `yaml:"models"`
	Engine     string           `yaml:"engine"`
	Serves     []string         `yaml:"serves"`
	Context    int64            `yaml:"context"` // tokens of prompt and answer; 0 is not known
	Price      *tenants.Price   `yaml:"price"`   // nil: free
	Paths      []string         `yaml:"paths"`
	Tenant     string           `yaml:"tenant"`           // the only one that the pool serves; empty is all
	MaxUpload  Size             `yaml:"max_upload_bytes"` // of a body on Paths that streams; 0: none does
	Policy     routing.Config   `yaml:"policy"`
	Queue      Queue            `yaml:"queue"`
	Saturation Saturation       `yaml:"saturation"`
	Health     *workers.Health  `yaml:"health"`
	Workers    []workers.Config `yaml:"workers"`

	AllowFields     []string `yaml:"allow_fields"`     // of openai.EngineFields, which reach its workers
	ResponseHeaders []string `yaml:"response_headers"` // of its workers, which reach clients
}

// Retry bounds how often a request is tried.
type Retry struct {
	Attempts int     `yaml:"attempts"` // counts the first
	Budget   float64 `yaml:"budget"`   // further attempts as a share of requests; 3 a second are always allowed
}

// Timeouts bound each stage of a request.
type Timeouts struct {
	Connect     time.Duration `yaml:"connect"`
	FirstByte   time.Duration `yaml:"first_byte"`
	Idle        time.Duration `yaml:"idle"`
	Total       Total         `yaml:"total"`
	ClientStall time.Duration `yaml:"client_stall"`
}

// Total bounds whole requests by class.
type Total struct {
	Interactive time.Duration `yaml:"interactive"`
	Background  time.Duration `yaml:"background"`
	Batch       time.Duration `yaml:"batch"`
}

// CORS says which browser pages may call the data plane. Without origins none
// may.
type CORS struct {
	Origins []string      `yaml:"origins"`
	MaxAge  time.Duration `yaml:"max_age"`
}

// Log says what is logged. Lines are JSON; the access log is on standard output.
type Log struct {
	Level  string `yaml:"level"` // debug, info, warn or error
	Access bool   `yaml:"access"`
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
		Health:  workers.Health{Path: "auto", Interval: 5 * time.Second, Timeout: 5 * time.Second, DownAfter: 3, UpAfter: 2},
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
		Telemetry:      defaultTelemetry(),
		Decisions:      defaultDecisions(),
		Log:            Log{Level: "info", Access: true},
		Store:          Store{SQL: "sqlite://tierway.db", Retention: 90 * 24 * time.Hour}, // a quarter, as bills are checked
		Gateways:       1,
	}
}

// Warnings returns what deserves a look in a configuration that works.
func (f *File) Warnings() Problems { return f.warnings }

// tierServes are the dialects of a tier that names none: what an engine of
// chat models speaks. Embeddings come from other models and so from pools.
func tierServes() []openai.Dialect {
	return []openai.Dialect{openai.Chat, openai.Completions, openai.Responses, openai.Messages, openai.Tokenize}
}
