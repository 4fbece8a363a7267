package config

import (
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"tierway/openai"
	"tierway/queue"
	"tierway/routing"
	"tierway/tenants"
	"tierway/workers"
)

// Pool is a tier or pool with all inherited values resolved.
type Pool struct {
	Name           string
	Model          string // model that its workers serve; "" passes the client's name
	Tier           bool   // it is a tier
	Engine         openai.Engine
	Serves         []openai.Dialect
	Models         []string // model names that select the pool, including Model
	Paths          []string // exact, or ending in * for everything below
	Tenant         string   // the only tenant that it serves; "" is all
	MaxUploadBytes int64    // limit of streamed bodies on Paths; 0: none are streamed
	Context        int64    // context length in tokens, prompt and output; 0: unknown
	LowerMaxTokens bool     // lower output limits to what fits into Context
	Price          tenants.Price
	Policy         routing.Config
	Rules          []PolicyRule // that select another policy, in order
	Workers        []workers.Spec
	Queue          queue.Config
	Saturation     routing.Saturation
	HealthWeight   routing.HealthWeight
	HeartbeatAfter time.Duration

	AllowFields     []string // those of openai.EngineFields that reach its workers
	CacheControl    bool     // mark the prompts of messages for the prompt cache
	ResponseHeaders []string // more response headers that reach clients; canonical

	ResponseCache *PoolCache // nil: no answers are kept

	Handover          string         // how workers hand a computed prompt over, such as HandoverNIXL; "": not at all
	PrefillPolicy     routing.Config // of the prefill stage
	UncachedThreshold int64          // routing.Handover.Threshold
	HandoverLease     time.Duration  // time for which a prefill engine keeps a prompt that no engine has read
}

// ResolvedPools returns the tiers, then the pools, both in the order of the file. The caller
// owns the result.
func (f *File) ResolvedPools() []Pool {
	pools := make([]Pool, 0, len(f.Tiers)+len(f.Pools))
	for _, s := range f.sections() {
		pools = append(pools, f.poolOf(f.resolveSection(s), s.tier))
	}
	return pools
}

// resolveSection returns a tier or pool with all inherited values.
func (f *File) resolveSection(s section) PoolConfig {
	c := s.PoolConfig
	c.Engine = cmp.Or(c.Engine, string(openai.EngineAuto))
	if s.tier && len(c.Serves) == 0 {
		// The dialects of chat models. Embeddings need other models.
		c.Serves = []string{"chat", "completions", "responses", "messages", "tokenize"}
		if c.Engine == string(openai.EngineAnthropic) {
			c.Serves = []string{openai.Messages.String()}
		}
	}
	if c.Price != nil {
		c.Price = new(*c.Price)
		c.Price.CachedInput = copyOf(c.Price.CachedInput)
	}
	if c.Policy.Name == "" {
		c.Policy = f.Policy
	}
	c.Policy, c.PolicyRules = policyCopy(c.Policy), rulesCopy(c.PolicyRules)
	c.Fallback = slices.Clone(c.Fallback)
	c.Queue, c.Saturation = overlay(c.Queue, f.Queue), overlay(c.Saturation, f.Saturation)
	c.HealthWeight = overlay(c.HealthWeight, f.HealthWeight)
	health := f.healthOf(c.Health)
	events := f.eventsOf(c.KVEvents)
	c.Health, c.KVEvents, c.Workers = &health, eventsCopy(events), slices.Clone(c.Workers)
	for i := range c.Workers {
		w := &c.Workers[i]
		w.Weight = new(*cmp.Or(w.Weight, new(1)))
		w.Health, w.Models = new(overlay(valueOf(w.Health), health)), slices.Clone(w.Models)
		w.KVEvents = eventsCopy(overlay(valueOf(w.KVEvents), events))
		if w.TLS == nil && strings.HasPrefix(strings.ToLower(w.URL), "https:") {
			w.TLS = c.TLS
		}
		w.TLS, w.Headers = copyOf(w.TLS), w.Headers.Over(c.Headers)
	}
	c.TLS, c.Headers = copyOf(c.TLS), maps.Clone(c.Headers)
	c.resolveHandover()
	c.resolveCache()
	return c
}

// poolOf returns the Pool of a resolved section.
func (f *File) poolOf(c PoolConfig, tier bool) Pool {
	p := Pool{Name: c.Name, Model: c.Model, Tier: tier, Engine: openai.Engine(c.Engine), Models: slices.Clone(c.Models),
		Paths: slices.Clone(c.Paths), MaxUploadBytes: int64(c.MaxUpload), Tenant: c.Tenant, Context: c.Context,
		Price: valueOf(c.Price), Policy: c.Policy, Rules: c.PolicyRules, Queue: c.Queue.config(),
		HeartbeatAfter: c.Queue.HeartbeatAfter, Saturation: c.Saturation.config(), HealthWeight: c.HealthWeight.config(),
		AllowFields: slices.Clone(c.AllowFields), CacheControl: c.CacheControl,
		LowerMaxTokens: c.LowerMaxTokens, Handover: c.Handover, PrefillPolicy: c.PrefillPolicy,
		HandoverLease: c.HandoverLease}
	if c.ResponseCache.Caches() {
		p.ResponseCache = c.ResponseCache
	}
	if c.Handover != "" {
		p.UncachedThreshold = *cmp.Or(c.UncachedThreshold, new(int64(routing.AutoThreshold)))
	}
	if c.PolicyRules == nil {
		p.Rules = rulesCopy(f.PolicyRules)
	}
	if c.Model != "" && !slices.Contains(p.Models, c.Model) {
		p.Models = slices.Insert(p.Models, 0, c.Model)
	}
	for _, word := range c.Serves {
		if dialect, ok := openai.ParseDialect(word); ok {
			p.Serves = append(p.Serves, dialect)
		}
	}
	for _, name := range c.ResponseHeaders {
		p.ResponseHeaders = append(p.ResponseHeaders, http.CanonicalHeaderKey(name))
	}
	for _, w := range c.Workers {
		s := workers.Spec{Config: w, Pool: c.Name, Engine: c.Engine, Model: c.Model,
			ConnectTimeout: f.Timeouts.Connect, StaleAfter: c.Saturation.StaleAfter}
		if w.APIKeyEnv != "" && f.keys != nil {
			s.Key = f.keys(w.APIKeyEnv)
		}
		for _, rank := range s.PerRank() {
			if weight, ok := f.rankWeights[rank.Name]; ok && w.Ranks > 0 {
				rank.Weight = &weight
			}
			p.Workers = append(p.Workers, rank)
		}
	}
	return p
}

// WorkerCount returns the number of workers of all tiers and pools. Each rank of a server is one.
func (f *File) WorkerCount() (n int) {
	count := func(list []workers.Config) {
		for i := range list {
			n += max(1, list[i].Ranks)
		}
	}
	for i := range f.Tiers {
		count(f.Tiers[i].Workers)
	}
	for i := range f.Pools {
		count(f.Pools[i].Workers)
	}
	return n
}

// healthOf returns the health section of a tier or pool with the file's values for absent keys.
func (f *File) healthOf(own *workers.Health) workers.Health { return overlay(valueOf(own), f.Health) }

// rulesCopy returns a copy that shares nothing, with the canonical names of its headers.
func rulesCopy(rules []PolicyRule) []PolicyRule {
	rules = slices.Clone(rules)
	for i := range rules {
		r := &rules[i]
		r.Policy, r.Header, r.Stream = policyCopy(r.Policy), http.CanonicalHeaderKey(r.Header), copyOf(r.Stream)
	}
	return rules
}

// policyCopy returns a copy that shares no number, with the canonical name of its header.
func policyCopy(c routing.Config) routing.Config {
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		if number, ok := v.Field(i).Interface().(*float64); ok {
			v.Field(i).Set(reflect.ValueOf(copyOf(number)))
		}
	}
	c.KeyHeader, c.WorkerMap = http.CanonicalHeaderKey(c.KeyHeader), maps.Clone(c.WorkerMap)
	return c
}

// copyOf returns a pointer to a copy of the value; nil for nil.
func copyOf[T any](value *T) *T {
	if value == nil {
		return nil
	}
	return new(*value)
}

// overlay returns own with base's values for its absent keys.
func overlay[T any](own, base T) T {
	inherit(reflect.ValueOf(&own).Elem(), reflect.ValueOf(base))
	return own
}

// inherit sets every zero field of a section to base's value.
func inherit(section, base reflect.Value) {
	for i := range section.NumField() {
		switch v := section.Field(i); {
		case v.Kind() == reflect.Struct:
			inherit(v, base.Field(i))
		case v.IsZero():
			v.Set(base.Field(i))
		}
	}
}

// Specs returns every worker of the file, in order, including the workers' keys: do not print
// them. The caller owns the result.
func (f *File) Specs() []workers.Spec {
	var specs []workers.Spec
	for _, p := range f.ResolvedPools() {
		specs = append(specs, p.Workers...)
	}
	return specs
}

// resolved returns a copy in which every tier, pool, worker and key has its inherited values.
func (f *File) resolved() *File {
	out := *f
	out.Tiers, out.Pools = slices.Clone(f.Tiers), slices.Clone(f.Pools)
	for i, s := range f.sections() {
		c := f.resolveSection(s)
		if c.Price != nil && c.Price.CachedInput == nil {
			c.Price.CachedInput = &c.Price.Input
		}
		if s.tier {
			out.Tiers[i] = Tier(c)
		} else {
			out.Pools[i-len(f.Tiers)] = c
		}
	}
	out.Hooks = resolvedHooks(f.Hooks)
	out.Classifier.Default, out.Classifier.Preset = f.catalogConfig().Default, f.Classifier.PresetName()
	out.Classifier.Keywords = slices.Clone(f.Classifier.Keywords)
	for i := range out.Classifier.Keywords {
		k := &out.Classifier.Keywords[i]
		if k.Weight == 0 {
			k.Weight = 1
		}
		if k.In == nil {
			k.In = []string{"user"}
		}
	}
	out.Auth.Keys = slices.Clone(f.Auth.Keys)
	for i := range out.Auth.Keys {
		k := &out.Auth.Keys[i]
		if k.Priority == "" {
			k.Priority = tenants.Interactive.String()
		}
		k.Weight = max(1, k.Weight)
		if k.DefaultPriority == "" {
			k.DefaultPriority = k.Priority
		}
		k.SHA256 = strings.ToLower(k.SHA256)
	}
	return &out
}
