package config

import (
	"net/http"
	"slices"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/tenants"
	"tierway/workers"
)

// Pool is a tier or pool with everything resolved that it inherits.
type Pool struct {
	Name           string
	Model          string // what its workers serve; "" sends the client's name on
	Tier           bool   // one of the tiers, whose order is theirs
	Engine         openai.Engine
	Serves         []openai.Dialect
	Models         []string // every name that pins the pool, Model included
	Paths          []string // exact, or ending in * for everything below
	Tenant         string   // the only one that it serves; "" is all
	MaxUploadBytes int64    // of a body on Paths that streams; 0: none does
	Context        int64    // tokens of prompt and answer that its model takes; 0 is not known
	Price          tenants.Price
	Policy         routing.Config
	Workers        []workers.Spec
	Queue          queue.Config
	Saturation     routing.Saturation
	HeartbeatAfter time.Duration

	AllowFields     []string // of openai.EngineFields, which reach its workers
	ResponseHeaders []string // of its workers, which reach clients; canonical
}

// ResolvedPools returns the tiers in their order, then the pools in theirs.
// The caller owns the result.
func (f *File) ResolvedPools() []Pool {
	pools := make([]Pool, 0, len(f.Tiers)+len(f.Pools))
	for _, t := range f.Tiers {
		p := f.resolve(PoolConfig{Name: t.Name, Model: t.Model, Engine: t.Engine, Serves: t.Serves,
			Context: t.Context, Price: t.Price, Policy: t.Policy, Queue: t.Queue, Saturation: t.Saturation, Health: t.Health, Workers: t.Workers,
			AllowFields: t.AllowFields, ResponseHeaders: t.ResponseHeaders})
		p.Tier = true
		if len(t.Serves) == 0 {
			p.Serves = tierServes()
		}
		pools = append(pools, p)
	}
	for _, c := range f.Pools {
		pools = append(pools, f.resolve(c))
	}
	return pools
}

// resolve fills in what a tier or pool inherits.
func (f *File) resolve(c PoolConfig) Pool {
	waits := c.Queue.over(f.Queue)
	p := Pool{Name: c.Name, Model: c.Model, Engine: openai.Engine(c.Engine), Models: slices.Clone(c.Models),
		Paths: slices.Clone(c.Paths), MaxUploadBytes: int64(c.MaxUpload), Tenant: c.Tenant,
		Context: c.Context, Policy: c.Policy, Queue: waits.config(), HeartbeatAfter: waits.HeartbeatAfter,
		Saturation: c.Saturation.over(f.Saturation).config(), AllowFields: slices.Clone(c.AllowFields)}
	for _, name := range c.ResponseHeaders {
		p.ResponseHeaders = append(p.ResponseHeaders, http.CanonicalHeaderKey(name))
	}
	if c.Price != nil {
		p.Price = *c.Price
		p.Price.CachedInput = copyOf(p.Price.CachedInput)
	}
	if p.Engine == "" {
		p.Engine = openai.EngineAuto
	}
	if c.Model != "" && !slices.Contains(p.Models, c.Model) {
		p.Models = slices.Insert(p.Models, 0, c.Model)
	}
	for _, word := range c.Serves {
		if dialect, ok := openai.ParseDialect(word); ok {
			p.Serves = append(p.Serves, dialect)
		}
	}
	if p.Policy.Name == "" {
		p.Policy = f.Policy
	}
	p.Policy.Epsilon, p.Policy.Slack = copyOf(p.Policy.Epsilon), copyOf(p.Policy.Slack)
	health := overlay(f.Health, c.Health)
	for _, w := range c.Workers {
		p.Workers = append(p.Workers, f.spec(w, p, health))
	}
	return p
}

// copyOf returns a number of the same value, if there is one.
func copyOf(number *float64) *float64 {
	if number == nil {
		return nil
	}
	return new(*number)
}

// spec resolves one worker, so that equal settings make equal Specs however
// they were written.
func (f *File) spec(w workers.Config, p Pool, health workers.Health) workers.Spec {
	weight := 1
	if w.Weight != nil {
		weight = *w.Weight
	}
	health = overlay(health, w.Health)
	w.Weight, w.Health, w.Models = &weight, &health, slices.Clone(w.Models)
	s := workers.Spec{Config: w, Pool: p.Name, Engine: string(p.Engine), Model: p.Model, ConnectTimeout: f.Timeouts.Connect, StaleAfter: p.Saturation.StaleAfter}
	if w.APIKeyEnv != "" && f.keys != nil {
		s.Key = f.keys(w.APIKeyEnv)
	}
	return s
}

// overlay returns base with what over sets.
func overlay(base workers.Health, over *workers.Health) workers.Health {
	if over == nil {
		return base
	}
	if over.Path != "" {
		base.Path = over.Path
	}
	if over.Interval != 0 {
		base.Interval = over.Interval
	}
	if over.Timeout != 0 {
		base.Timeout = over.Timeout
	}
	if over.DownAfter != 0 {
		base.DownAfter = over.DownAfter
	}
	if over.UpAfter != 0 {
		base.UpAfter = over.UpAfter
	}
	return base
}

// Specs returns every worker of the file, in order. They hold the workers'
// keys and are not for printing. The caller owns the result.
func (f *File) Specs() []workers.Spec {
	var specs []workers.Spec
	for _, p := range f.ResolvedPools() {
		specs = append(specs, p.Workers...)
	}
	return specs
}

// Directory returns the tenants' keys, for tenants to make its directory of.
// The caller owns the result.
func (f *File) Directory() []tenants.KeyConfig { return slices.Clone(f.Auth.Keys) }
