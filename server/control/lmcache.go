package control

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tierway/config"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/workers/kvcache"
	"tierway/workers/lmcache"
	"tierway/workers/prompttokens"
)

// lmcacheSource is the client of LMCache's controller for one pool, while a policy of the pool uses it.
type lmcacheSource struct {
	*lmcache.Controller
	config routing.Config
	key    string // for the controller
	// instances has the members by instance, for the present snapshot.
	instances atomic.Pointer[func(instance string) *Member]
	stored    atomic.Pointer[storedKeys]
}

// storedKeys are the numbers of keys of one listing, by member.
type storedKeys struct {
	listing *lmcache.Listing
	members *func(string) *Member
	keys    []routing.StoredKeys
}

// openLMCache gives the pool of a new snapshot its client of LMCache's controller, if a policy uses one. The client of
// was, the previous pool of that name, is kept if its options are the same.
func (ps *Pools) openLMCache(p, was *Pool, f *config.File) {
	c, uses := lmcachePolicy(&p.Pool)
	if !uses {
		return
	}
	key := f.Key(c.ControllerKey)
	if was != nil && was.lmcache != nil && was.lmcache.key == key && reflect.DeepEqual(was.lmcache.config, c) {
		p.lmcache = was.lmcache
		return
	}
	s := &lmcacheSource{config: c, key: key}
	none := func(string) *Member { return nil }
	s.instances.Store(&none)
	series := ps.metrics.LMCache(p.Name)
	s.Controller = lmcache.New(lmcache.Config{URL: c.ControllerURL, Key: key, Lookups: c.LooksUp(),
		PollInterval: c.PollInterval, Timeout: c.ControllerLimit, Dial: ps.dial, Log: ps.log.With("pool", p.Name),
		Recover: ps.recover.Try, OnLookup: func(took time.Duration) { series.Observe(took.Seconds()) },
		Known: func(instance string) bool { return s.memberOf(instance) != nil }})
	p.lmcache = s
}

// lmcachePolicy returns the first policy of a pool, or of its rules, that uses LMCache's controller.
func lmcachePolicy(p *config.Pool) (c routing.Config, uses bool) {
	all := append(p.Policies(), p.PrefillPolicy)
	i := slices.IndexFunc(all, routing.Config.UsesLMCache)
	if i < 0 {
		return c, false
	}
	return all[i], true
}

// setInstances sets the members of a new snapshot.
func (p *Pool) setInstances() {
	if p.lmcache == nil {
		return
	}
	workerOf := p.InstanceOf(p.lmcache.config)
	of := func(instance string) *Member { return p.Members[workerOf(instance)] }
	p.lmcache.instances.Store(&of)
}

// draftLMCache gives a draft's pool the client of the live pool, if its options are the same. The draft's answers then
// name the live members.
func (p *Pool) draftLMCache(live *Pool) {
	if c, uses := lmcachePolicy(&p.Pool); uses && live.lmcache != nil && reflect.DeepEqual(live.lmcache.config, c) {
		p.lmcache = live.lmcache
		if c.LooksUp() {
			p.tokens = live.tokens
		}
	}
}

func (s *lmcacheSource) memberOf(instance string) *Member { return (*s.instances.Load())(instance) }

// UsesLMCache reports whether LMCache's controller is used for requests of a policy of the pool, or for their prefill
// stage.
func (p *Pool) UsesLMCache(policy *routing.Config) bool {
	return p.lmcache != nil && (policy.UsesLMCache() || p.PrefillPolicy.UsesLMCache())
}

// LooksUp reports whether prompts are looked up in LMCache's controller. LookUp must not be called otherwise.
func (p *Pool) LooksUp() bool { return p.lmcache != nil && p.lmcache.config.LooksUp() }

// LookUp sets which workers have a request's prompt by LMCache's controller. An engine is asked for the tokens of an
// unknown prompt if ask is set. It takes the lookup timeout and lmcache.LookupLimit at most. ids is a buffer, which is
// returned, possibly enlarged. found is for JudgePrompt.
func (p *Pool) LookUp(ctx context.Context, q *prompttokens.Query, facts *routing.Request, ids []uint32,
	ask bool) (found prompttokens.Prompt, buffer []uint32) {
	// The controller knows a prompt by its tokens alone: another salt or adapter would match as well.
	if p.tokens == nil || q.Salt != "" || q.Adapter != "" {
		return found, ids
	}
	t := p.tokens.LookupTokens(ctx, q, ask, ids[:0])
	if t.Whole {
		found.Form, found.Tokens = t.Form, int64(len(t.IDs))
		facts.PromptTokens = found.Tokens
	}
	if len(t.IDs) == 0 {
		return found, t.IDs
	}
	var buf [8]lmcache.Match
	matches := buf[:0]
	if ask {
		matches, _ = p.lmcache.Lookup(ctx, t.IDs, t.Repeated >= lmcache.Chunk, matches)
	} else {
		matches = p.lmcache.Peek(ctx, t.IDs, matches)
	}
	for _, m := range matches {
		if of := p.lmcache.memberOf(m.Instance); of != nil {
			facts.Cached = append(facts.Cached, routing.CachedPrefix{Ref: of, Tokens: m.Tokens,
				Load: kvcache.LoadTime(m.Tokens, inCPU(m.Location)), Lookup: true})
		}
	}
	return found, t.IDs
}

// inCPU reports whether a location of LMCache is memory of the engine's machine. An old controller states none.
func inCPU(location string) bool { return location == "" || strings.Contains(location, "CPU") }

// StoredKeys returns the keys of the workers in LMCache; nil while they are not known or not used.
func (p *Pool) StoredKeys() []routing.StoredKeys {
	if p.lmcache == nil || p.lmcache.config.LooksUp() {
		return nil
	}
	return p.lmcache.storedKeys()
}

func (s *lmcacheSource) storedKeys() []routing.StoredKeys {
	listing, members := s.Listing(), s.instances.Load()
	if listing == nil || !listing.Counted {
		return nil
	}
	if k := s.stored.Load(); k != nil && k.listing == listing && k.members == members {
		return k.keys
	}
	k := &storedKeys{listing: listing, members: members}
	for _, i := range listing.Instances {
		m := (*members)(i.ID)
		if m == nil {
			continue
		}
		at := slices.IndexFunc(k.keys, func(has routing.StoredKeys) bool { return has.Ref == any(m) })
		if at < 0 {
			at, k.keys = len(k.keys), append(k.keys, routing.StoredKeys{Ref: m})
		}
		k.keys[at].Keys += i.Keys
	}
	s.stored.Store(k)
	return k.keys
}

// LMCacheView returns the state of the pool's client of LMCache's controller; ok is false if it has none.
func (p *Pool) LMCacheView() (v lmcache.View, ok bool) {
	if p.lmcache == nil {
		return v, false
	}
	return p.lmcache.View(), true
}

// LMCacheGauges returns the state of LMCache's controllers, for a scrape of the metrics.
func (ps *Pools) LMCacheGauges() []telemetry.LMCacheGauges {
	var out []telemetry.LMCacheGauges
	for _, p := range ps.current.Load().Pools {
		v, ok := p.LMCacheView()
		if !ok {
			continue
		}
		n := &v.Counts
		out = append(out, telemetry.LMCacheGauges{Tier: p.Name, Up: v.State == lmcache.StateUp, Workers: v.Known,
			Keys: v.Keys, Matched: n.Matched, Missed: n.Missed, Failed: n.Failed, TimedOut: n.TimedOut,
			Suspended: n.Suspended, Skipped: n.Skipped})
	}
	return out
}
