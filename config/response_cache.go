package config

import (
	"cmp"
	"slices"
	"time"

	"tierway/openai"
	"tierway/tenants"
)

// ResponseCache configures where answers are kept for requests that come again.
type ResponseCache struct {
	MaxBytes Size `yaml:"max_bytes" doc:"Memory for kept answers, of all tiers and pools together. When it is full, the answers that were not used for longest are removed, first those of tenants with more than an equal share."`
}

// PoolCache configures which answers of a tier or pool are kept.
type PoolCache struct {
	Exact       *ExactCache `yaml:"exact" absent:"off" doc:"Answer a request that equals an earlier one from its kept answer. '{}' turns it on with the defaults."`
	CachedPrice float64     `yaml:"cached_price" max:"1" absent:"'0': free" doc:"Share of 'price' that an answer from the cache costs its tenant. 1: as much as an answer of an engine."`
}

// ExactCache configures answers for equal requests.
type ExactCache struct {
	TTL            time.Duration `yaml:"ttl" absent:"'60s'" doc:"Time for which an answer is kept."`
	AnyTemperature bool          `yaml:"any_temperature" doc:"Also keep answers of requests with a 'temperature' above 0 or without one. All requests then get the same random answer."`
}

// Defaults of kept answers.
const (
	defaultCacheBytes = 64 << 20 // 20,000 answers of 500 words
	defaultExactTTL   = time.Minute
)

// resolveCache sets the defaults of a section with a cache.
func (c *PoolConfig) resolveCache() {
	c.ResponseCache = copyOf(c.ResponseCache)
	if c.ResponseCache == nil || c.ResponseCache.Exact == nil {
		return
	}
	exact := *c.ResponseCache.Exact
	exact.TTL = cmp.Or(exact.TTL, defaultExactTTL)
	c.ResponseCache.Exact = &exact
}

// Caches reports whether answers of the pool are kept.
func (c *PoolCache) Caches() bool { return c != nil && c.Exact != nil }

// checkCaches checks the caches of tiers and pools.
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
		case !slices.ContainsFunc(f.resolveSection(s).Serves, generates):
			d.report(path, "has no effect: the "+s.kind()+" serves nothing whose answers are kept",
				"add chat, completions, responses or messages to serves, or remove the key")
		default:
			on = true
			d.checkCachedPrice(path, s)
		}
	}
	permitted := func(k tenants.KeyConfig) bool { return k.ResponseCache }
	switch path := "response_cache.max_bytes"; {
	case !on && d.written(path):
		d.warn(path, "has no effect: no tier or pool has a response_cache",
			"write response_cache: { exact: {} } at a tier or pool, or remove the key")
	case on && f.Auth.Required && f.Store.SQL == "" && !slices.ContainsFunc(f.Auth.Keys, permitted):
		d.warn("auth.keys", "no tenant may get answers from the response cache of a tier or pool",
			"write response_cache: true at the keys of tenants whose answers may be kept")
	}
}

// checkCachedPrice reports a price without effect.
func (d *decoder) checkCachedPrice(path string, s section) {
	if s.ResponseCache.CachedPrice > 0 && s.Price == nil {
		d.report(path+".cached_price", "has no effect: the "+s.kind()+" is free", "set "+s.path+".price, or remove the key")
	}
}
