package config

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tierway/openai"
	"tierway/tenants"
	"tierway/workers"
)

// section is a tier or pool as the file writes it, with its path.
type section struct {
	PoolConfig
	path string
	tier bool
}

// sections returns the tiers, then the pools.
func (f *File) sections() []section {
	var all []section
	for path, c := range f.lists() {
		all = append(all, section{PoolConfig: *c, path: path, tier: len(all) < len(f.Tiers)})
	}
	return all
}

func (d *decoder) checkPools(f *File) {
	if len(f.Tiers)+len(f.Pools) == 0 {
		d.report("tiers", "there are no tiers and no pools, so no request could be served",
			"add a tier with a name, a model and workers")
	}
	paths := map[string]string{}
	for _, s := range f.sections() {
		if len(s.Serves) == 0 && d.written(s.path+".serves") {
			d.report(s.path+".serves", "the list is empty", "list kinds of request, or remove the key")
		}
		if !s.tier {
			d.checkPurpose(s)
			d.checkUpload(f, s)
		}
		if messages := openai.Messages.String(); s.CacheControl && !slices.Contains(s.serves(), messages) {
			d.report(s.path+".inject_cache_control", "has no effect: the "+s.kind()+" serves no "+messages,
				"add "+messages+" to serves, or remove the key")
		}
		if s.LowerMaxTokens && s.Context == 0 {
			d.report(s.path+".lower_max_tokens", "has no effect: the context of the "+s.kind()+" is unknown",
				"set "+s.path+".context, or remove the key")
		}
		d.checkPolicy(s.path+".policy", s.Policy)
		d.checkPolicy(s.path+".prefill_policy", s.PrefillPolicy)
		d.checkRules(s.path+".policy_rules", s.PolicyRules)
		d.checkModels(s)
		d.checkTenant(f, s)
		d.checkPaths(f, s, paths)
		health := f.healthOf(s.Health)
		if s.Health != nil {
			d.checkHealth(s.path+".health", health)
		}
		for i, w := range s.Workers {
			if w.Health != nil {
				d.checkHealth(itemPath(s.path+".workers", i)+".health", overlay(*w.Health, health))
			}
		}
	}
}

// checkPurpose reports a pool that no request can reach.
func (d *decoder) checkPurpose(s section) {
	named := s.Model != "" || len(s.Models) > 0
	switch {
	case !named && len(s.Paths) == 0:
		d.report(s.path+".models", "the pool has no model and no paths, so no request can reach it",
			"list the names that clients request")
	case named && len(s.Serves) == 0:
		d.report(s.path+".serves", "missing", "list the kinds of request that its models serve, such as [embeddings]")
	case !named && len(s.Serves) > 0:
		d.report(s.path+".models", "missing, but serves is set", "list the models that clients request, or remove serves")
	}
}

// checkUpload reports a max_upload_bytes without effect.
func (d *decoder) checkUpload(f *File, s section) {
	path := s.path + ".max_upload_bytes"
	switch {
	case s.MaxUpload == 0:
	case len(s.Paths) == 0:
		d.report(path, "has no effect: the pool has no paths", "add paths, or remove the key")
	case s.MaxUpload <= f.MaxBodyBytes:
		d.report(path, fmt.Sprintf("%v does not exceed max_body_bytes (%v), so no body is streamed",
			s.MaxUpload, f.MaxBodyBytes), "raise it, or remove the key")
	}
}

// checkTenant checks the tenant of a pool. Tenants of the database are unknown here.
func (d *decoder) checkTenant(f *File, s section) {
	known := func(k tenants.KeyConfig) bool { return k.Name == s.Tenant }
	if path := s.path + ".tenant"; s.Tenant != "" && f.Store.SQL == "" && !slices.ContainsFunc(f.Auth.Keys, known) {
		d.report(path, d.shown(path, s.Tenant)+" has no key, so no request can use the pool",
			"set a tenant of auth.keys, or set store.sql")
	}
}

// checkPaths checks the paths of a pool. seen maps each path, prefixed by its pool's tenant, to
// its position in the file.
func (d *decoder) checkPaths(f *File, s section, seen map[string]string) {
	for i, p := range s.Paths {
		path := fmt.Sprintf("%s.paths[%d]", s.path, i)
		if first := seen[s.Tenant+p]; first != "" {
			d.report(path, d.shown(path, p)+" is already listed at "+first, "remove one of them: a path belongs to one pool")
			continue
		}
		seen[s.Tenant+p] = path
		if method := openai.OwnMethod(p); method != "" {
			d.warn(path, d.shown(path, p)+" receives no "+method+" requests: the gateway serves them itself",
				"remove it; the API's own endpoints reach a pool through models and serves")
		}
		// /v1/responses/* passes only POST requests and known responses.
		kind := openai.StoredKind(http.MethodPost, strings.Replace(p, "*", "x", 1))
		if kind != "" && s.Tenant == "" && f.Auth.Required {
			d.warn(path, d.shown(path, p)+" never passes a request: engines store "+kind+" without separating tenants",
				"set "+s.path+".tenant to the only tenant that may use them")
		}
	}
}

// checkWorkers checks names, URLs, keys and weights of workers.
func (d *decoder) checkWorkers(f *File) {
	names, elsewhere := make(map[string]string, f.WorkerCount()), map[string]string{}
	for _, s := range f.sections() {
		usable, here := len(s.Workers) == 0, make(map[string][]serverEntry, len(s.Workers))
		d.checkCertificates(s.path+".tls", s.TLS, slices.ContainsFunc(s.Workers, func(w workers.Config) bool {
			return strings.HasPrefix(strings.ToLower(w.URL), "https:")
		}))
		d.checkPoolHeaders(s)
		for i := range s.Workers {
			w, path := &s.Workers[i], itemPath(s.path+".workers", i)
			d.checkUnique(names, path+".name", w.Name)
			d.checkURL(here, elsewhere, path, w)
			if w.APIKeyEnv != "" || w.APIKeyFile != "" || len(w.Headers) > 0 {
				d.checkKey(path+".api_key_env", w.APIKeyEnv, "the worker's key")
				d.checkKeyFile(path, w.APIKeyFile, w.APIKeyEnv)
				d.checkHeaders(path+".headers", w.Headers, "the worker's key", keyHeader(s.Engine, *w))
			}
			if w.TLS != nil {
				d.checkCertificates(path+".tls", w.TLS, strings.HasPrefix(strings.ToLower(w.URL), "https:"))
			}
			usable = usable || w.Weight == nil || *w.Weight > 0
		}
		for url, entries := range here {
			if elsewhere[url] == "" {
				elsewhere[url] = entries[0].path
			}
		}
		d.checkRankFields(s)
		if !usable {
			d.report(s.path+".workers", "every worker has weight 0, so none receives requests",
				"set the weight of one worker to 1 or more")
		}
	}
}

type canonicalServer struct {
	url string
	err error
}

// canonical is workers.Canonical, computed once for each URL.
func (d *decoder) canonical(url string) (string, error) {
	c, known := d.servers[url]
	if !known {
		c.url, c.err = workers.Canonical(url)
		d.servers[url] = c
	}
	return c.url, c.err
}

func (d *decoder) serverOf(w workers.Config) (string, error) { return d.canonical(w.Server()) }

// checkRankFields reports fields with which clients would choose the rank in place of the gateway.
func (d *decoder) checkRankFields(s section) {
	isRank := func(w workers.Config) bool { return w.Ranks > 0 || w.Server() != w.URL }
	if !slices.ContainsFunc(s.Workers, isRank) {
		return
	}
	for i, name := range s.AllowFields {
		if name == "data_parallel_rank" || name == "routed_dp_rank" {
			path := fmt.Sprintf("%s.allow_fields[%d]", s.path, i)
			d.report(path, d.shown(path, name)+" names a rank, but the gateway chooses the ranks of the workers",
				"remove it, or remove the ranks of the workers")
		}
	}
}

// serverEntry is an entry of a server in a tier or pool.
type serverEntry struct {
	path   string // of its URL
	rank   int
	ranked bool // the URL has the rank
}

// checkURL checks the URL of the worker at path. A server may back a worker in several tiers or
// pools, once in each, or once for each of its ranks. here has the entries of the same tier or pool
// by the URL of their server, elsewhere a path in an earlier one.
func (d *decoder) checkURL(here map[string][]serverEntry, elsewhere map[string]string, at string, w *workers.Config) {
	if w.URL == "" {
		return
	}
	path := at + ".url"
	shown := func() string { return d.shown(path, w.URL) }
	server, rank, ranked := workers.SplitRank(w.URL)
	canonical, err := d.canonical(server)
	if err != nil {
		d.report(path, strings.TrimPrefix(err.Error(), "url: "), "").hide = strings.ContainsAny(w.URL, "@?")
		return
	}
	switch {
	case ranked && w.Ranks > 0:
		d.report(at+".ranks", fmt.Sprintf("the url has the rank @%d: an entry is one rank, or all of them", rank),
			"remove the rank from the url, or remove ranks")
		return
	case rank >= workers.MaxRanks:
		d.report(path, fmt.Sprintf("%s has the rank %d; a server has at most %d ranks", shown(), rank, workers.MaxRanks),
			fmt.Sprintf("write a rank from 0 to %d", workers.MaxRanks-1))
		return
	}
	for _, e := range here[canonical] {
		switch {
		case e.ranked != ranked:
			d.report(path, shown()+" and "+e.path+" are one server, once with a rank and once without",
				"write every entry of the server with its rank, or keep one entry without")
			return
		case !ranked:
			d.report(path, shown()+" is already the URL of "+e.path,
				"remove one of them: a server appears once per tier or pool")
			return
		case e.rank == rank:
			d.report(path, shown()+" is already the rank of "+e.path, "remove one of them: a rank appears once per tier or pool")
			return
		}
	}
	here[canonical] = append(here[canonical], serverEntry{path, rank, ranked})
	if first := elsewhere[canonical]; first != "" {
		d.warn(path, shown()+" is also the server of "+first+
			": limits such as max_inflight apply to each entry separately",
			"divide the server's capacity among its entries")
	}
}

// checkKey checks that the environment has a key, and stores it. what names the key.
func (d *decoder) checkKey(path, variable, what string) {
	if variable == "" || d.draft {
		return
	}
	key, _ := d.env(variable)
	if strings.ContainsFunc(key, unicode.IsControl) {
		d.report(path, "the key in the environment variable "+strings.Trim(d.shown(path, variable), `"`)+
			" contains a line break or another control character, which HTTP headers do not allow",
			"remove the character: KEY=$(cat file) drops trailing line breaks")
		return
	}
	if key != "" {
		d.keys[variable] = key
		d.checkLength(path, "the key in the environment variable "+strings.Trim(d.shown(path, variable), `"`), key)
		return
	}
	if strings.ToUpper(variable) == variable {
		d.report(path, "the environment variable "+strings.Trim(d.shown(path, variable), `"`)+" is not set",
			"set it to "+what)
		return
	}
	// The value may be the key itself, written here by mistake: it must not appear in a log.
	d.report(path, "the environment variable that it names is not set",
		"write the variable's name here, never the key itself, and set the variable to the key").hide = true
}

// leastKey is the least length of a usual key in characters. Shorter ones are placeholders or truncated.
const leastKey = 8

// checkLength warns of a key that is too short. what names the key in the warning.
func (d *decoder) checkLength(path, what, key string) {
	switch n := utf8.RuneCountInString(key); {
	case n == 1:
		d.warn(path, what+" has 1 character", "check that it is the whole key; if the server needs none, remove this setting")
	case n < leastKey:
		d.warn(path, fmt.Sprintf("%s has %d characters", what, n),
			"check that it is the whole key; if the server needs none, remove this setting")
	}
}
