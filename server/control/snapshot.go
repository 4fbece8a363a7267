package control

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/hooks"
	"tierway/openai"
	"tierway/openai/tokens"
	"tierway/routing"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/tierscore"
)

// Snapshot is one configuration with its pools and directory. It is immutable. A request loads
// it once and keeps it to its end.
type Snapshot struct {
	Configuration
	Identity *Identity
	proxies  []netip.Prefix
	Catalog  *tiers.Catalog
	Pools    []*Pool // tiers in order, then pools
	ByName   map[string]*Pool

	Hooks     *hooks.Chain         // nil without hooks
	Extractor *tierscore.Extractor // nil without learning.hash_key

	SessionKeys []string // where the key of a session is found, in order; headers in canonical form
	Vocabulary  string   // counts the tokens of prompts near a threshold; "" if there is no threshold
	DefaultTier *Pool    // nil without tiers

	answerGroups map[string]*AnswerGroup // by tenant
}

// Configuration is a configuration as it was read, with the live overrides.
type Configuration struct {
	File       *config.File   // with the live overrides
	Base       *config.File   // without them; its restart-only values are those of the start
	Hash       string         // of the last file that was read
	Generation int64          // number of configurations that were put in force, from 1
	LoadedAt   time.Time      // when Base was put in force
	weights    map[string]int // weights of the overrides, by worker
}

// withWeights returns the configuration with the weights of live overrides.
func (c Configuration) withWeights(weights map[string]int) Configuration {
	c.File, c.weights = c.Base.WithOverrides(weights), weights
	return c
}

// Outcomes and Dialects are the label values of tierway_requests_total.
var (
	Outcomes = []string{string(decisions.OK), string(decisions.Refused), string(decisions.Failed),
		string(decisions.Truncated), string(decisions.ClientGone)}
	Dialects = []string{openai.Other.String(), openai.Chat.String(), openai.Completions.String(),
		openai.Responses.String(), openai.Messages.String(), openai.Embeddings.String(), openai.Rerank.String(),
		openai.Score.String(),
		openai.Pooling.String(), openai.Tokenize.String(), openai.Moderations.String(), openai.Images.String(),
		openai.Audio.String()}
)

// newSnapshot builds the parts of a snapshot that can fail. It puts nothing in force: Pools.connect then
// connects the pools with their live state. A pool that has the same policy in live keeps that policy
// with its memory. The hooks are added by addHooks.
func newSnapshot(c Configuration, identity *Identity, live *Snapshot) (*Snapshot, error) {
	f := c.File
	snap := &Snapshot{
		Configuration: c,
		Identity:      identity,
		proxies:       f.TrustedProxies(),
		Catalog:       f.Catalog(),
		Extractor:     f.Extractor(),
		ByName:        map[string]*Pool{},
		SessionKeys:   sessionKeys(f.SessionKeys),
		answerGroups:  answerGroups(f.ResponseCache.Shared),
	}
	for _, c := range f.ResolvedPools() {
		p := &Pool{Pool: c, tokenizer: f.Tokenizer(lookupPolicy(&c)), regions: newRegions(f, c)}
		p.setServers(live.ByName[c.Name])
		for _, d := range c.Serves {
			p.Served[d] = true
		}
		var err error
		if was := live.ByName[c.Name]; was != nil && reflect.DeepEqual(was.Policies(), c.Policies()) {
			p.Picker = was.Picker
		} else if p.Picker, err = routing.Compose(c.Policy, c.RulePolicies()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		if err = p.setPrefillPolicy(live.ByName[c.Name]); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		snap.Pools = append(snap.Pools, p)
		snap.ByName[p.Name] = p
	}
	snap.DefaultTier = snap.ByName[snap.Catalog.Default()]
	snap.Vocabulary = snap.vocabulary()
	return snap, nil
}

// setPrefillPolicy sets the policy of the prefill stage, that of was if it is the same.
func (p *Pool) setPrefillPolicy(was *Pool) (err error) {
	switch {
	case p.Handover == "":
	case was != nil && was.Prefill != nil && reflect.DeepEqual(was.PrefillPolicy, p.PrefillPolicy):
		p.Prefill = was.Prefill
	default:
		p.Prefill, err = routing.Compose(p.PrefillPolicy, nil)
	}
	return err
}

// sessionKeys returns the names with those of headers in canonical form. Fields of the body have no hyphen.
func sessionKeys(names []string) []string {
	keys := slices.Clone(names)
	for i, name := range keys {
		if strings.Contains(name, "-") {
			keys[i] = http.CanonicalHeaderKey(name)
		}
	}
	return keys
}

// vocabulary returns the name of the vocabulary that counts prompts: the nearest one to the default
// tier's model, or "" if no decision depends on the length of a prompt.
func (snap *Snapshot) vocabulary() string {
	bounded := func(p *Pool) bool { return p.Context > 0 }
	switch {
	case len(snap.File.Tiers) <= 1 && !slices.ContainsFunc(snap.Pools, bounded):
		return ""
	case snap.DefaultTier == nil:
		return tokens.NameFor("")
	}
	return tokens.NameFor(snap.DefaultTier.Model)
}

// Private reports whether all objects that the workers of a pool store belong to one caller: the pool
// belongs to a tenant, or no keys are required, so that all requests count as one caller's.
func (snap *Snapshot) Private(p *Pool) bool { return p.Tenant != "" || !snap.File.Auth.Required }

// MayUse reports whether a caller may use the tier or pool of that name.
func (snap *Snapshot) MayUse(c *tenants.Caller, name string) bool {
	p := snap.ByName[name]
	return c.MayUseTier(name) && (p == nil || p.Admits(c))
}

// ClientIP returns the address of a request's client: the address of the peer, or the address that
// trusted proxies report. Proxies append to X-Forwarded-For, so its last address that is not a trusted
// proxy's is the client's.
func (snap *Snapshot) ClientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if !snap.trusts(host) {
		return host
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, ip := range slices.Backward(forwarded) {
		ip = strings.TrimSpace(ip)
		if _, err := netip.ParseAddr(ip); err != nil {
			break
		}
		if host = ip; !snap.trusts(host) {
			break
		}
	}
	return host
}

// trusts reports whether the address belongs to a trusted proxy.
func (snap *Snapshot) trusts(ip string) bool {
	if len(snap.proxies) == 0 {
		return false
	}
	addr, err := netip.ParseAddr(ip)
	addr = addr.Unmap().WithZone("")
	return err == nil && slices.ContainsFunc(snap.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Serving returns the first pool that serves the dialect and that the caller may use; nil if
// there is none.
func (snap *Snapshot) Serving(d openai.Dialect, c *tenants.Caller) *Pool {
	for _, p := range snap.Pools {
		if p.Served[d] && snap.MayUse(c, p.Name) {
			return p
		}
	}
	return nil
}

// TierNamed returns the tier of that name, without regard to case; nil if there is none.
func (snap *Snapshot) TierNamed(name string) *Pool {
	for _, p := range snap.Pools {
		if p.Tier && strings.EqualFold(p.Name, name) {
			return p
		}
	}
	return nil
}
