package control

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/config"
	"tierway/http1"
	"tierway/openai"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/tokenizer"
	"tierway/workers/prompttokens"
)

// promptTokens knows the tokens of the prompts of one pool, while the pool's policy uses them.
type promptTokens struct {
	*prompttokens.Source
	live *livePool
	// lookups has the members of a pool that looks prompts up in LMCache's controller: their events may be unknown.
	lookups atomic.Pointer[[]*Member]
	next    atomic.Uint64 // calls that took one of them
}

// openTokens gives the pool of a new snapshot its source of tokens, if its policy uses what
// workers have cached. The source of was, the previous pool of that name, is kept if the policy is
// the same and the content of its tokenizer.json too.
func (ps *Pools) openTokens(p, was *Pool) {
	if !p.usesCaches() && (p.lmcache == nil || !p.lmcache.config.LooksUp()) {
		return
	}
	if was != nil && was.tokens != nil && was.Picker == p.Picker && sameTokenizer(was.tokenizer, p.tokenizer) {
		p.tokens, p.tokenizer = was.tokens, was.tokenizer
		return
	}
	t := &promptTokens{live: p.livePool}
	c := prompttokens.Config{LookupTimeout: lookupPolicy(&p.Pool).LookupTimeout, Worker: t.worker, Busy: t.busy,
		Log: ps.log, Recover: ps.recover.Try}
	if p.tokenizer != nil {
		c.Tokenizer = p.tokenizer
	}
	t.Source = prompttokens.New(c)
	p.tokens = t
}

// setLookupMembers sets the members of a new snapshot that may be asked for tokens before a look-up.
func (p *Pool) setLookupMembers() {
	if p.tokens == nil {
		return
	}
	if p.lmcache == nil || !p.lmcache.config.LooksUp() {
		p.tokens.lookups.Store(nil)
		return
	}
	all := make([]*Member, 0, len(p.Members))
	for i := range p.Workers {
		all = append(all, p.Members[p.Workers[i].Name])
	}
	p.tokens.lookups.Store(&all)
}

// lookupPolicy returns the first policy of a pool, or of its rules, that uses what workers have cached.
func lookupPolicy(p *config.Pool) routing.Config {
	all := append(p.Policies(), p.PrefillPolicy)
	for _, uses := range []func(routing.Config) bool{routing.Config.UsesCaches, routing.Config.LooksUp} {
		if i := slices.IndexFunc(all, uses); i >= 0 {
			return all[i]
		}
	}
	return p.Policy
}

// sameTokenizer reports whether two policies of one configuration key have read the same file. The file
// may change at its path.
func sameTokenizer(a, b *tokenizer.Tokenizer) bool {
	return a == b || a != nil && b != nil && a.Hash() == b.Hash()
}

// tokenizeBackoff is the pause after a failed request for tokens to a worker, while there is another one.
// A tokenizer that hangs holds one of few places for 5 s at each request.
const tokenizeBackoff = 30 * time.Second

// worker returns a worker that is up and whose events are read; nil if there is none. It prefers workers
// without a recent failure.
func (t *promptTokens) worker() prompttokens.Poster {
	up := func(ref any) bool {
		s := ref.(*Member).Worker.Status()
		return s.Up && s.Suspended == ""
	}
	now := time.Now()
	m, ok := t.live.Caches.Pick(func(ref any) bool {
		return up(ref) && now.UnixNano() >= ref.(*Member).tokenizeAfter.Load()
	}).(*Member)
	if !ok {
		m, ok = t.live.Caches.Pick(up).(*Member)
	}
	if !ok {
		if m = t.lookupMember(now, up); m == nil {
			return nil
		}
	}
	return tokenizeServer{m}
}

// lookupMember returns a member of a pool that looks prompts up; nil if none is up. Successive calls begin with
// successive members, and members without a recent failure are preferred.
func (t *promptTokens) lookupMember(now time.Time, up func(ref any) bool) (failed *Member) {
	all := t.lookups.Load()
	if all == nil {
		return nil
	}
	first := t.next.Add(1)
	for i := range *all {
		switch m := (*all)[(first+uint64(i))%uint64(len(*all))]; {
		case !up(m):
		case now.UnixNano() >= m.tokenizeAfter.Load():
			return m
		case failed == nil:
			failed = m
		}
	}
	return failed
}

// busy reports whether a request would wait for a worker, or for other requests of its worker.
func (t *promptTokens) busy() bool {
	return t.live.WaitQueue.Waiting() > 0 || t.live.Routing.Busy(time.Now())
}

// tokenizeServer sends requests for tokens to a worker.
type tokenizeServer struct{ *Member }

// Send implements prompttokens.Poster.
func (s tokenizeServer) Send(ctx context.Context, r *http1.Request) (*http1.Response, error) {
	answer, err := s.Worker.Send(ctx, r)
	if err != nil || answer.Status >= http.StatusInternalServerError {
		s.tokenizeAfter.Store(time.Now().Add(tokenizeBackoff).UnixNano())
	}
	return answer, err
}

// cacheSource is a source of what the workers have cached, with work of its own.
type cacheSource interface{ Run(ctx context.Context) }

// cacheSources returns the sources of the pool.
func (p *Pool) cacheSources() (all []cacheSource) {
	if p.tokens != nil {
		all = append(all, p.tokens)
	}
	if p.lmcache != nil {
		all = append(all, p.lmcache)
	}
	return all
}

// runCacheSources runs the sources of the snapshots until ctx ends. It returns when all have ended.
func (ps *Pools) runCacheSources(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	running := map[cacheSource]context.CancelFunc{}
	for {
		wanted := map[cacheSource]bool{}
		for _, p := range ps.current.Load().Pools {
			for _, s := range p.cacheSources() {
				wanted[s] = true
				if running[s] == nil {
					var own context.Context
					own, running[s] = context.WithCancel(ctx)
					all.Go(func() { s.Run(own) })
				}
			}
		}
		for s, stop := range running {
			if !wanted[s] {
				stop()
				delete(running, s)
			}
		}
		select {
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return
		case <-ps.connected:
		}
	}
}

// LookupCaches sets what the workers' KV-cache events say about a request's prompt, and the length of
// the prompt if it is known. q has no block size. An engine is asked for the tokens of an unknown
// prompt if ask is set; LookupCaches then waits for them, at most the lookup timeout. keys is a buffer. The
// result has the buffer, possibly enlarged, and what JudgePrompt needs.
func (p *Pool) LookupCaches(ctx context.Context, q *prompttokens.Query, facts *routing.Request, keys []uint64,
	ask bool) (found prompttokens.Prompt) {
	var sizes [4]int // engines of one pool have one size, or few
	found.Keys = keys
	for i, size := range p.Caches.BlockSizes(sizes[:0]) {
		if q.BlockSize = size; ask && i == 0 { // later ones find the same tokens
			found = p.tokens.Lookup(ctx, q, found.Keys[:0])
		} else {
			found = p.tokens.Remembered(q, found.Keys[:0])
		}
		if found.Tokens > 0 {
			facts.PromptTokens = found.Tokens
		}
		if found.Tokens > 0 || len(found.Keys) > 0 {
			p.Caches.Lookup(facts, q.BlockSize, found.Keys, found.Tokens > 0)
		}
	}
	if facts.Unplaced {
		averageRanks(facts.Cached)
	}
	return found
}

// JudgePrompt compares the prompt that LookupCaches has returned for a request with the prompt tokens that its engine
// counted.
func (p *Pool) JudgePrompt(found prompttokens.Prompt, counted int64) {
	if p.tokens != nil {
		p.tokens.Judge(found.Form, found.Tokens, counted)
	}
}

// TokenGauges returns what is known of each pool's prompts, for a scrape of the metrics.
func (ps *Pools) TokenGauges() []telemetry.TokenGauges {
	var out []telemetry.TokenGauges
	for _, p := range ps.current.Load().Pools {
		if p.tokens == nil {
			continue
		}
		c := p.tokens.Counts()
		out = append(out, telemetry.TokenGauges{Tier: p.Name, Known: c.Known, Answered: c.Answered, Beginning: c.Beginning,
			Unknown: c.Unknown, TimedOut: c.TimedOut, Busy: c.Busy, Asked: c.Asked, Parts: c.Parts, Failed: c.Failed,
			Mismatched: c.Mismatched, Miscounted: c.Miscounted, Bytes: c.Bytes})
	}
	return out
}

// Lookups returns the number of requests of which the prompt was looked up, and those that got its tokens too late.
func (p *Pool) Lookups() (all, late int64) {
	if p.tokens == nil {
		return 0, 0
	}
	c := p.tokens.Counts()
	return c.Known + c.Answered + c.Beginning + c.Unknown, c.TimedOut + c.Busy
}

// IgnoresRanks reports whether an engine of the pool chooses the rank of requests of a dialect, although ranks are
// workers.
func (p *Pool) IgnoresRanks(d openai.Dialect) bool {
	for _, m := range p.Members {
		if m.Worker != nil && m.Worker.IgnoresRank(d) { // a draft's new worker has no server
			return true
		}
	}
	return false
}

// averageRanks gives each rank the mean cached tokens of the ranks of its server: the engine chooses one of them.
func averageRanks(all []routing.CachedPrefix) {
	means := make([]routing.CachedPrefix, len(all))
	for i := range all {
		of := all[i].Ref.(*Member).Worker
		n, more := int64(0), true
		for k := range all {
			if all[k].Ref.(*Member).Worker.SharesServer(of) {
				means[i].Tokens, means[i].Load, n = means[i].Tokens+all[k].Tokens, means[i].Load+all[k].Load, n+1
				more = more && all[k].More
			}
		}
		means[i] = routing.CachedPrefix{Ref: all[i].Ref, Tokens: means[i].Tokens / n, Load: means[i].Load / time.Duration(n),
			More: more}
	}
	copy(all, means)
}

// UsesCaches reports whether a policy of the pool uses the workers' KV-cache events.
func (p *Pool) UsesCaches() bool { return p.readsEvents }

// UsesEvents reports whether the workers' KV-cache events are used for requests of a policy of the pool, or for their
// prefill stage. LookupCaches must not be called otherwise.
func (p *Pool) UsesEvents(policy *routing.Config) bool {
	return p.readsEvents && (policy.UsesCaches() || p.PrefillPolicy.UsesCaches())
}

// Adapter returns the model if it is a LoRA adapter on a worker of the pool, else "".
func (p *Pool) Adapter(model string) string {
	for _, m := range p.Members {
		if adapters := m.adapters.Load(); adapters != nil && slices.Contains(*adapters, model) {
			return model
		}
	}
	return ""
}
