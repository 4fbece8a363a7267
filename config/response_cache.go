package config

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tierway/openai"
	"tierway/tenants"
)

// ResponseCache configures where answers are kept for requests that come again.
type ResponseCache struct {
	Store    string `yaml:"store" enum:"memory,redis" absent:"'memory'" reload:"restart" doc:"Where answers to equal requests are kept. 'redis': in 'store.redis', for all gateways that use it; a failure of Redis is a miss after at most 20 ms. Redis then has the texts of answers. Answers of 'semantic' are always kept in memory."`
	Encrypt  string `yaml:"encrypt" secret:"true" absent:"answers in Redis are plain text" doc:"With 'store: redis': secret of at least 32 characters, from which the key of each tenant and group is derived. Answers are encrypted with it (AES-GCM). All gateways need the same secret. Write it as ${NAME} of an environment variable."`
	MaxBytes Size   `yaml:"max_bytes" doc:"Memory for kept answers, of all tiers and pools together. When it is full, the answers that were not used for longest are removed, first those of tenants with more than an equal share."`

	Shared []SharedCache `yaml:"shared" absent:"none: no tenant gets answers of another tenant" doc:"Groups of tenants that share kept answers. A tenant is in at most one group. If its list changes, a group starts without answers."`
}

// SharedCache is a group of tenants that share kept answers.
type SharedCache struct {
	Name    string   `yaml:"name" required:"true" form:"name" doc:"Name of the group, for records. A tenant of the same name is in the group only if 'tenants' lists it."`
	Tenants []string `yaml:"tenants" required:"true" form:"owner" doc:"Names of tenants in 'auth.keys' or the database. Each tenant needs 'response_cache: true'. A tenant with 'isolate_cache' neither gets nor gives answers."`
}

// PoolCache configures which answers of a tier or pool are kept.
type PoolCache struct {
	Exact       *ExactCache    `yaml:"exact" absent:"off" doc:"Answer a request that equals an earlier one from its kept answer. '{}' turns it on with the defaults."`
	Semantic    *SemanticCache `yaml:"semantic" absent:"off" doc:"Answer a request from the kept answer of an earlier one that differs only in the last text of the user, if both texts mean the same by their embeddings. For requests with 'temperature: 0' only."`
	CachedPrice float64        `yaml:"cached_price" max:"1" absent:"'0': free" doc:"Share of 'price' that an answer from the cache costs its tenant. 1: as much as an answer of an engine."`
}

// ExactCache configures answers for equal requests.
type ExactCache struct {
	TTL            time.Duration `yaml:"ttl" absent:"'60s'" doc:"Time for which an answer is kept."`
	AnyTemperature bool          `yaml:"any_temperature" doc:"Also keep answers of requests with a 'temperature' above 0 or without one. All requests then get the same random answer."`
}

// SemanticCache configures answers for requests that mean the same.
type SemanticCache struct {
	Embeddings string        `yaml:"embeddings" required:"true" doc:"Model that embeds the texts, of a pool of this gateway with 'serves: [embeddings]'. Its tokens are those of the tenant '_gateway'."`
	TTL        time.Duration `yaml:"ttl" absent:"'300s'" doc:"Time for which an answer is kept."`
	Threshold  *float64      `yaml:"threshold" min:"0.9" max:"1" absent:"'0.97'" doc:"Least similarity (cosine) of two texts that mean the same. Find it for your model and texts with 'shadow'."`
	Timeout    time.Duration `yaml:"timeout" absent:"'100ms'" doc:"Limit for embedding a text. Without an embedding in time, the request goes to a worker."`
	Shadow     bool          `yaml:"shadow" doc:"Look for an answer, but let a worker answer. Records and metrics have the similarity of the texts and whether both answers are equal. 'exact' still answers equal requests from the cache."`
}

// leastSecret is the least length of the secret that encrypts answers: 128 bits in hexadecimal digits.
const leastSecret = 32

// CacheInRedis is the store of answers that gateways share.
const CacheInRedis = "redis"

// Defaults of kept answers.
const (
	defaultCacheBytes   = 64 << 20 // 20,000 answers of 500 words
	defaultExactTTL     = time.Minute
	defaultSemanticTTL  = 5 * time.Minute
	defaultThreshold    = 0.97 // the answers of lower ones are wrong too often, as reports about other gateways show
	defaultEmbedTimeout = 100 * time.Millisecond
)

func (c *PoolConfig) resolveCache() {
	if c.ResponseCache == nil {
		return
	}
	cache := *c.ResponseCache
	cache.Exact, cache.Semantic = copyOf(cache.Exact), copyOf(cache.Semantic)
	if e := cache.Exact; e != nil {
		e.TTL = cmp.Or(e.TTL, defaultExactTTL)
	}
	if s := cache.Semantic; s != nil {
		s.TTL, s.Threshold = cmp.Or(s.TTL, defaultSemanticTTL), new(*cmp.Or(s.Threshold, new(defaultThreshold)))
		s.Timeout = cmp.Or(s.Timeout, defaultEmbedTimeout)
	}
	c.ResponseCache = &cache
}

// Caches reports whether answers of the pool are kept.
func (c *PoolCache) Caches() bool { return c != nil && (c.Exact != nil || c.Semantic != nil) }

// AnyTemperature reports whether requests with a temperature get kept answers.
func (c *PoolCache) AnyTemperature() bool { return c.Exact != nil && c.Exact.AnyTemperature }

func (d *decoder) checkCaches(f *File) {
	on := false
	for _, s := range f.sections() {
		path := s.path + ".response_cache"
		if s.ResponseCache == nil {
			continue
		}
		generates := func(word string) bool {
			dialect, ok := openai.ParseDialect(word)
			return ok && dialect.Generates()
		}
		switch {
		case !s.ResponseCache.Caches():
			d.report(path, "has no effect: it turns nothing on", "write response_cache: { exact: {} }, or remove the key")
		case !slices.ContainsFunc(s.serves(), generates):
			d.report(path, "has no effect: the "+s.kind()+" serves nothing whose answers are kept",
				"add chat, completions, responses or messages to serves, or remove the key")
		default:
			on = true
			if s.ResponseCache.CachedPrice > 0 && s.Price == nil {
				d.report(path+".cached_price", "has no effect: the "+s.kind()+" is free", "set "+s.path+".price, or remove the key")
			}
			d.checkEmbeddings(f, path+".semantic", s.ResponseCache.Semantic)
		}
	}
	if f.ResponseCache.Store == CacheInRedis && f.Store.Redis == "" {
		d.report("response_cache.store", "there is no Redis", "set store.redis, or write store: memory")
	}
	switch secret := f.ResponseCache.Encrypt; {
	case !d.written("response_cache.encrypt"):
	case secret == "":
		d.report("response_cache.encrypt", "is empty, so answers in Redis would be plain text",
			"generate a secret with `openssl rand -hex 32`, or remove the key")
	case f.ResponseCache.Store != CacheInRedis:
		d.report("response_cache.encrypt", "has no effect: answers are in memory", "write store: redis, or remove the key")
	case len(secret) < leastSecret:
		d.report("response_cache.encrypt", fmt.Sprintf("has %d characters; the least is %d", len(secret), leastSecret),
			"generate one with `openssl rand -hex 32`").hide = true
	}
	for _, path := range []string{"response_cache.max_bytes", "response_cache.shared"} {
		if !on && d.written(path) {
			d.warn(path, "has no effect: no tier or pool has a response_cache",
				"write response_cache: { exact: {} } at a tier or pool, or remove the key")
		}
	}
	permitted := func(k tenants.KeyConfig) bool { return k.ResponseCache }
	switch {
	case !on:
	case (f.Auth.Required || len(f.Auth.Keys) > 0) && f.Store.SQL == "" &&
		!slices.ContainsFunc(f.Auth.Keys, permitted):
		d.warn("auth.keys", "no tenant may get answers from the response cache of a tier or pool",
			"write response_cache: true at the keys of tenants whose answers may be kept")
	default:
		d.checkShared(f)
	}
}

// checkShared checks the groups of tenants that share kept answers.
func (d *decoder) checkShared(f *File) {
	names, groups := map[string]string{}, map[string]string{}
	for i, g := range f.ResponseCache.Shared {
		path := itemPath("response_cache.shared", i)
		d.checkUnique(names, path+".name", g.Name)
		if len(g.Tenants) == 1 {
			d.warn(path, "has no effect: the group has one tenant",
				"add the tenants that share answers with it, or remove the group")
		}
		for j, tenant := range g.Tenants {
			at := itemPath(path+".tenants", j)
			if first, twice := groups[tenant]; twice && first != path {
				d.report(at, d.shown(at, tenant)+" is in "+first+" too; a tenant is in at most one group",
					"remove it from one of them, or make them one group")
				continue
			}
			groups[tenant] = path
			d.checkSharing(f, at, tenant)
		}
	}
}

// checkSharing warns of a tenant that shares no answers. Tenants of the database are unknown here.
func (d *decoder) checkSharing(f *File, path, tenant string) {
	i := slices.IndexFunc(f.Auth.Keys, func(k tenants.KeyConfig) bool { return k.Name == tenant })
	key := itemPath("auth.keys", i)
	switch {
	case i < 0 && f.Store.SQL == "":
		d.warn(path, d.shown(path, tenant)+" has no key, so it shares nothing",
			"write the name of a tenant of auth.keys, or set store.sql")
	case i < 0:
	case !f.Auth.Keys[i].ResponseCache:
		d.warn(path, d.shown(path, tenant)+" may not get kept answers, so it shares nothing",
			"write response_cache: true at "+key+", or remove the name")
	case f.Auth.Keys[i].IsolateCache:
		d.warn(path, d.shown(path, tenant)+" keeps its answers apart, so it shares nothing",
			"remove isolate_cache at "+key+", or the name here")
	}
}

// checkEmbeddings checks that a pool serves the model of a semantic cache.
func (d *decoder) checkEmbeddings(f *File, path string, c *SemanticCache) {
	if c == nil || c.Embeddings == "" {
		return
	}
	_, alias := f.Models[c.Embeddings]
	serves := func(s section) bool {
		named := s.tier && s.Name == c.Embeddings || s.Model == c.Embeddings || slices.Contains(s.Models, c.Embeddings)
		return named && s.Tenant == "" && slices.Contains(s.Serves, openai.Embeddings.String())
	}
	if !alias && !slices.ContainsFunc(f.sections(), serves) {
		at := path + ".embeddings"
		d.report(at, d.shown(at, c.Embeddings)+" is no model of a pool that serves embeddings to all tenants",
			"add a pool with this model and serves: [embeddings], or name the model of one")
	}
}
