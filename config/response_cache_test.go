package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// cachedFile is a tier with a response cache, and a pool that embeds. more precedes them.
func cachedFile(more, cache string) string {
	return more + `
store: { sql: "" }
tiers:
- name: small
  model: m
  response_cache: ` + cache + `
  workers: [ { name: a, url: "http://a" } ]
pools:
- name: embedder
  model: embed-1
  serves: [embeddings]
  workers: [ { name: e, url: "http://e" } ]
`
}

// sharingFile is a file with groups of tenants that share answers, with a cache at its tier.
func sharingFile(groups string) string {
	keys := ""
	for _, key := range []string{"name: a, response_cache: true", "name: b, response_cache: true",
		"name: c, response_cache: true", "name: forbidden", "name: apart, response_cache: true, isolate_cache: true"} {
		keys += "  - { " + key + ", sha256: " + digestOf(key) + " }\n"
	}
	return cachedFile("auth:\n  keys:\n"+keys+"response_cache: { shared: "+groups+" }", "{ exact: {} }")
}

// TestResponseCachesAreChecked: every problem names the key, the value and the way out.
func TestResponseCachesAreChecked(t *testing.T) {
	const keyless = "auth: { required: false }"
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"exact":    {cachedFile(keyless, "{ exact: {} }"), nil},
		"semantic": {cachedFile(keyless, "{ semantic: { embeddings: embed-1, threshold: 0.9, shadow: true } }"), nil},
		"alias":    {cachedFile(keyless+"\nmodels: { vectors: embedder }", "{ semantic: { embeddings: vectors } }"), nil},
		"nothing": {cachedFile(keyless, "{ cached_price: 0 }"), []string{
			"tiers[0].response_cache: has no effect: it turns nothing on (write response_cache: { exact: {} }, or remove the key)"}},
		"a free tier": {cachedFile(keyless, "{ exact: {}, cached_price: 0.5 }"), []string{
			"tiers[0].response_cache.cached_price: has no effect: the tier is free (set tiers[0].price, or remove the key)"}},
		"a low threshold": {cachedFile(keyless, "{ semantic: { embeddings: embed-1, threshold: 0.89 } }"), []string{
			`tiers[0].response_cache.semantic.threshold: want a number from 0.9 to 1, got "0.89"`}},
		"no embeddings": {cachedFile(keyless, "{ semantic: {} }"), []string{
			"tiers[0].response_cache.semantic.embeddings: missing (add embeddings: model that embeds the texts, of a pool of " +
				"this gateway with `serves: [embeddings]`)"}},
		"other embeddings": {cachedFile(keyless, "{ semantic: { embeddings: m } }"), []string{
			`tiers[0].response_cache.semantic.embeddings: "m" is no model of a pool that serves embeddings to all tenants ` +
				`(add a pool with this model and serves: [embeddings], or name the model of one)`}},
		"no Redis": {cachedFile(keyless+"\nresponse_cache: { store: redis }", "{ exact: {} }"), []string{
			"response_cache.store: there is no Redis (set store.redis, or write store: memory)"}},
		"a short secret": {cachedFile(keyless+"\nresponse_cache: { store: redis, encrypt: abc }", "{ exact: {} }"), []string{
			"response_cache.store: there is no Redis (set store.redis, or write store: memory)",
			"response_cache.encrypt: has 3 characters; the least is 32 (generate one with `openssl rand -hex 32`)"}},
		"an empty secret": {cachedFile("auth: { required: false }\nresponse_cache: { store: redis, encrypt: \"\" }",
			"{ exact: {} }"), []string{
			"response_cache.store: there is no Redis (set store.redis, or write store: memory)",
			"response_cache.encrypt: is empty, so answers in Redis would be plain text (generate a secret with " +
				"`openssl rand -hex 32`, or remove the key)"}},
		"a secret for memory": {cachedFile(keyless+"\nresponse_cache: { encrypt: abc }", "{ exact: {} }"), []string{
			"response_cache.encrypt: has no effect: answers are in memory (write store: redis, or remove the key)"}},
		"no tenant": {cachedFile("auth: { keys: [ { name: a, sha256: "+digestOf("a")+" } ] }", "{ exact: {} }"), []string{
			"warning: auth.keys: no tenant may get answers from the response cache of a tier or pool (write response_cache: true " +
				"at the keys of tenants whose answers may be kept)"}},
		"no tenant beside requests without a key": {cachedFile("auth: { required: false, keys: [ { name: a, sha256: "+digestOf("a")+
			" } ] }", "{ exact: {} }"), []string{
			"warning: auth.keys: no tenant may get answers from the response cache of a tier or pool (write response_cache: true " +
				"at the keys of tenants whose answers may be kept)"}},
		"a tenant": {cachedFile("auth: { keys: [ { name: a, sha256: "+digestOf("a")+", response_cache: true } ] }",
			"{ exact: {} }"), nil},
		"memory without a cache": {keyless + "\nstore: { sql: \"\" }\nresponse_cache: { max_bytes: 1MiB }\n" +
			"tiers: [ { name: s, model: m, workers: [ { name: a, url: \"http://a\" } ] } ]\n", []string{
			"warning: response_cache.max_bytes: has no effect: no tier or pool has a response_cache (write response_cache: " +
				"{ exact: {} } at a tier or pool, or remove the key)"}},
		"groups": {sharingFile("[ { name: a, tenants: [b, a] } ]"), nil},
		"a tenant in two groups": {sharingFile("[ { name: x, tenants: [a, b] }, { name: y, tenants: [c, a] } ]"), []string{
			`response_cache.shared[1].tenants[1]: "a" is in response_cache.shared[0] too; a tenant is in at most one group ` +
				`(remove it from one of them, or make them one group)`}},
		"names of groups": {sharingFile("[ { name: x, tenants: [a, a] }, { name: x, tenants: [b, c] }, { tenants: [] } ]"),
			[]string{
				`response_cache.shared[0].tenants[1]: "a" is listed twice (remove one of them)`,
				`response_cache.shared[1].name: "x" is already the name at response_cache.shared[0].name (choose a unique name)`,
				"response_cache.shared[2].name: missing (add name: name of the group, for records)",
				"response_cache.shared[2].tenants: the list is empty (names of tenants in `auth.keys` or the database)"}},
		"tenants that share nothing": {sharingFile("[ { name: x, tenants: [a, missing, forbidden, apart] }, { name: y, tenants: [b] } ]"),
			[]string{
				`warning: response_cache.shared[0].tenants[1]: "missing" has no key, so it shares nothing (write the name of a tenant ` +
					`of auth.keys, or set store.sql)`,
				`warning: response_cache.shared[0].tenants[2]: "forbidden" may not get kept answers, so it shares nothing (write ` +
					`response_cache: true at auth.keys[3], or remove the name)`,
				`warning: response_cache.shared[0].tenants[3]: "apart" keeps its answers apart, so it shares nothing (remove ` +
					`isolate_cache at auth.keys[4], or the name here)`,
				`warning: response_cache.shared[1]: has no effect: the group has one tenant (add the tenants that share answers with ` +
					`it, or remove the group)`}},
		"a tenant of the database": {strings.Replace(sharingFile("[ { name: x, tenants: [a, missing] } ]"), `sql: ""`,
			`sql: "sqlite://:memory:"`, 1), nil},
		"no tenant at all": {sharingFile("[ { name: x, tenants: [a, anonymous] } ]"), []string{
			`response_cache.shared[0].tenants[1]: "anonymous" is not a tenant name (use 1 to 63 of a-z, 0-9 and -)`}},
		"groups without a cache": {strings.Replace(sharingFile("[ { name: x, tenants: [a, b] } ]"),
			"  response_cache: { exact: {} }\n", "", 1), []string{
			"warning: response_cache.shared: has no effect: no tier or pool has a response_cache (write response_cache: " +
				"{ exact: {} } at a tier or pool, or remove the key)"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := problemsOf(t, c.src, nil)
			for i := range got {
				got[i] = positionOf.ReplaceAllString(got[i], "")
			}
			if diff := cmp.Diff(c.want, got); diff != "" && len(c.want)+len(got) > 0 {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestASecretOfAnEmptyVariableIsAnError: it would leave the answers in Redis as plain text.
func TestASecretOfAnEmptyVariableIsAnError(t *testing.T) {
	src := cachedFile("auth: { required: false }\nresponse_cache: { store: redis, encrypt: \"${SECRET}\" }",
		"{ exact: {} }")
	for secret, want := range map[string]int{"": 2, strings.Repeat("s", 32): 1} { // there is no Redis
		got := problemsOf(t, src, map[string]string{"SECRET": secret})
		if empty := strings.Contains(strings.Join(got, "\n"), "response_cache.encrypt: is empty"); len(got) != want ||
			empty != (secret == "") {
			t.Errorf("%q: %q", secret, got)
		}
	}
}

// TestResponseCachesHaveDefaults: an empty section turns the cache on.
func TestResponseCachesHaveDefaults(t *testing.T) {
	f := parsed(t, cachedFile("auth: { required: false }", "{ exact: {}, semantic: { embeddings: embed-1 } }"), nil)
	c := f.ResolvedPools()[0].ResponseCache
	want := &PoolCache{Exact: &ExactCache{TTL: time.Minute}, Semantic: &SemanticCache{Embeddings: "embed-1",
		TTL: 5 * time.Minute, Threshold: new(0.97), Timeout: 100 * time.Millisecond}}
	if diff := cmp.Diff(want, c); diff != "" || f.ResolvedPools()[1].ResponseCache != nil {
		t.Error(diff)
	}
	if f.Tiers[0].ResponseCache.Exact.TTL != 0 {
		t.Error("the defaults changed the file")
	}
}
