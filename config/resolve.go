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

// ResolvedPools returns the tiers, then the pools, both in the order of the file. Workers share
// values that they inherit, and nothing with f.
func (f *File) ResolvedPools() []Pool {
	pools := make([]Pool, 0, len(f.Tiers)+len(f.Pools))
	for _, s := range f.sections() {
		pools = append(pools, f.poolOf(f.inheritedBy(s), s.tier))
	}
	return pools
}

// serves returns the kinds of request that a tier or pool serves.
func (s section) serves() []string {
	switch {
	case !s.tier || len(s.Serves) > 0:
		return s.Serves
	case s.Engine == string(openai.EngineAnthropic):
		return []string{openai.Messages.String()}
	}
	// The dialects of chat models. Embeddings need other models.
	return []string{"chat", "completions", "responses", "messages", "tokenize"}
}

// resolveSection returns a tier or pool with all inherited values. Its workers share the values that they inherit.
func (f *File) resolveSection(s section) PoolConfig {
	c := f.inheritedBy(s)
	c.Workers = slices.Clone(c.Workers)
	for i := range c.Workers {
		c.resolveWorker(&c.Workers[i], new(int))
	}
	return c
}

// inheritedBy returns a tier or pool with all inherited values, but with its workers as the file has them.
func (f *File) inheritedBy(s section) PoolConfig {
	c := s.PoolConfig
	c.Engine, c.Serves = cmp.Or(c.Engine, string(openai.EngineAuto)), s.serves()
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
	c.Health, c.KVEvents = new(f.healthOf(c.Health)), eventsCopy(f.eventsOf(c.KVEvents))
	c.TLS, c.Headers = copyOf(c.TLS), maps.Clone(c.Headers)
	c.resolveHandover()
	c.resolveCache()
	return c
}

// resolveWorker sets the values that a worker inherits from its resolved tier or pool. weight
// gets the weight.
func (c *PoolConfig) resolveWorker(w *workers.Config, weight *int) {
	if *weight = 1; w.Weight != nil {
		*weight = *w.Weight
	}
	w.Weight, w.Models = weight, slices.Clone(w.Models)
	if w.Health == nil {
		w.Health = c.Health
	} else {
		w.Health = new(overlay(*w.Health, *c.Health))
	}
	if w.KVEvents == nil {
		w.KVEvents = c.KVEvents
	} else {
		w.KVEvents = eventsCopy(overlay(*w.KVEvents, *c.KVEvents))
	}
	if w.TLS == nil && len(w.URL) > len("https:") && strings.EqualFold(w.URL[:len("https:")], "https:") {
		w.TLS = c.TLS
	}
	w.TLS, w.Headers = copyOf(w.TLS), w.Headers.Over(c.Headers)
	c.resolveRole(w)
}

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
	p.Workers = f.appendSpecs(make([]workers.Spec, 0, len(c.Workers)), &c)
	return p
}

// appendSpecs appends the workers of a section with all inherited values.
func (f *File) appendSpecs(to []workers.Spec, c *PoolConfig) []workers.Spec {
	weights := make([]int, len(c.Workers))
	for i := range c.Workers {
		w, first := &c.Workers[i], len(to)
		s := workers.Spec{Config: *w, Pool: c.Name, Engine: c.Engine, Model: c.Model, Key: f.Key(w.APIKeyEnv),
			ConnectTimeout: f.Timeouts.Connect, StaleAfter: c.Saturation.StaleAfter}
		c.resolveWorker(&s.Config, &weights[i])
		to = s.AppendRanks(to)
		if w.Ranks == 0 {
			continue
		}
		for r := first; r < len(to); r++ {
			if weight, ok := f.rankWeights[to[r].Name]; ok {
				to[r].Weight = new(weight)
			}
		}
	}
	return to
}

// WorkerCount returns the number of workers of all tiers and pools. Each rank of a server is one.
func (f *File) WorkerCount() (n int) {
	for _, c := range f.lists() {
		for i := range c.Workers {
			n += max(1, c.Workers[i].Ranks)
		}
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
// them. They share the values that they inherit, and nothing with f.
func (f *File) Specs() []workers.Spec {
	specs := make([]workers.Spec, 0, f.WorkerCount())
	for _, s := range f.sections() {
		c := f.inheritedBy(s)
		specs = f.appendSpecs(specs, &c)
	}
	return specs
}

// resolved returns a copy in which every tier, pool, worker and key has its inherited values.
func (f *File) resolved() *File {
	out, at := f.withLists(), 0
	sections := f.sections()
	for _, c := range out.lists() {
		*c = f.resolveSection(sections[at])
		if c.Price != nil && c.Price.CachedInput == nil {
			c.Price.CachedInput = &c.Price.Input
		}
		at++
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
	return out
}
