package intake

import (
	"cmp"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"tierway/decisions"
	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/tierscore"
)

// ResolveOptions selects the further state that Resolve reads and returns.
type ResolveOptions struct {
	Chats     *tiers.Chats            // chats that stay at their tier; nil: none
	Evidence  bool                    // return the evidence of the classification
	Explore   bool                    // select the tier of learning.exploration's share of the requests at random
	Explained *tiers.ClassifierReport // receives the classifier's explanation if it runs; nil: not requested
}

// Resolve resolves the names or the content of a request to a tier or pool that the caller may use and
// that serves the dialect. The resolution of a refused request is incomplete.
func (it *Intake) Resolve(in *Inbound, c *Caller, p *Parsed, options ResolveOptions) (Resolution, error) {
	return it.resolver(in, c, p).resolve(options)
}

// Targets returns whether each tier, the pool of res and each target of its list could serve the request.
func (it *Intake) Targets(in *Inbound, c *Caller, p *Parsed, res *Resolution) (targets []decisions.TierTarget) {
	r := it.resolver(in, c, p)
	list := in.Snap.Catalog.List(res.Resolution)
	for _, pool := range in.Snap.Pools {
		if pool.Tier || pool == res.Pool || slices.Contains(list, pool.Name) {
			targets = append(targets, decisions.TierTarget{
				Name:    pool.Name,
				Allowed: r.mayUse(pool.Name),
				Served:  pool.Served[in.Dialect],
				Context: pool.Context,
				Fits:    r.fits(pool.Name),
				Up:      r.available(pool.Name),
			})
		}
	}
	return targets
}

// ModelNames returns the model names that a caller may use.
func ModelNames(in *Inbound, c *Caller) []string {
	return in.Snap.Catalog.Models(catalogQuery(in.Snap, c.Caller, ""))
}

// ModelContext returns the context length of a model name that the caller may use; 0 if it is unknown. A request that
// leaves the choice to the gateway moves up to the tier that it fits, so the longest context of the tiers counts.
func ModelContext(in *Inbound, c *Caller, name string) (longest int64) {
	q := catalogQuery(in.Snap, c.Caller, name)
	v, err := in.Snap.Catalog.Resolve(q)
	if err != nil {
		return 0
	}
	if !in.Snap.Catalog.Classifies(q) {
		return in.Snap.ByName[v.Target].Context
	}
	for _, p := range in.Snap.Pools {
		switch {
		case !p.Tier || !in.Snap.MayUse(c.Caller, p.Name):
		case p.Context == 0:
			return 0
		default:
			longest = max(longest, p.Context)
		}
	}
	return longest
}

// CheckModel returns an error if a caller may not use a model name.
func CheckModel(in *Inbound, c *Caller, name string) error {
	if _, err := in.Snap.Catalog.Resolve(catalogQuery(in.Snap, c.Caller, name)); err != nil {
		return modelNotFound(name)
	}
	return nil
}

func modelNotFound(name string) error {
	return &openai.Error{Code: openai.CodeModelNotFound, Param: "model",
		Message: "The model " + openai.Quoted(name) +
			" does not exist or you do not have access to it. GET /v1/models lists the available models."}
}

// catalogQuery returns the query of the catalog for a caller's permissions.
func catalogQuery(snap *control.Snapshot, c *tenants.Caller, model string) tiers.Query {
	return tiers.Query{Model: model, Allowed: func(name string) bool { return snap.MayUse(c, name) },
		AllowedModel: c.MayUseModel}
}

// resolver finds the tier or pool of one request.
type resolver struct {
	it     *Intake
	in     *Inbound
	caller *Caller
	parsed *Parsed
	now    time.Time
	res    Resolution // filled by resolve
	methods
}

// methods are the method values of a resolver. Each is an allocation, so a pooled prompt keeps them.
type methods struct {
	query tiers.Query // with its functions only
	count func() (int64, bool)
}

// bindMethods creates the method values.
func (r *resolver) bindMethods() {
	r.methods = methods{count: r.countTokens, query: tiers.Query{Allowed: r.mayUse, AllowedModel: r.mayUseModel,
		Fits: r.fits, Available: r.available, Blocked: r.blocked, Moves: &r.res.Moves}}
}

// resolver resets and returns the resolver of a request, which is a part of its prompt. The result of an earlier call
// is not valid any more.
func (it *Intake) resolver(in *Inbound, c *Caller, p *Parsed) *resolver {
	of := p.Prompt
	if of == nil {
		of = new(Prompt)
	}
	if of.resolver.count == nil {
		of.resolver.bindMethods()
	}
	of.resolver = resolver{it: it, in: in, caller: c, parsed: p, now: in.Start, methods: of.resolver.methods}
	return &of.resolver
}

// newQuery returns the query of the catalog for the request, without the features of its content.
func (r *resolver) newQuery() tiers.Query {
	q := r.query
	q.Model, q.Header = r.parsed.Req.Model, r.in.HTTP.Header.Get("X-Model-Tier")
	return q
}

func (r *resolver) resolve(options ResolveOptions) (Resolution, error) {
	req, res := r.parsed.Req, &r.res
	res.Requested = "other"
	v, err := r.queryCatalog(options)
	if req.Model == "" && (errors.Is(err, tiers.ErrUnknownModel) ||
		err == nil && !r.in.Snap.ByName[v.Target].Served[r.in.Dialect]) {
		v, err = r.resolveUnnamed(v)
	}
	res.Resolution, res.Pool = v, r.in.Snap.ByName[v.Target]
	if r.in.tierDropped && r.in.HTTP.Header.Get("X-Model-Tier") == "" {
		res.AddNote(tiers.NoteHookModel)
	}
	switch {
	case errors.Is(err, tiers.ErrUnknownModel):
		return *res, modelNotFound(req.Model)
	case errors.Is(err, tiers.ErrTooLong):
		// The estimate may be wrong, and the engine counts exactly: reject only a request that
		// is certainly too long.
		if r.surelyTooLong(res.Pool) {
			res.Resolution = tiers.Resolution{Model: v.Model}
			return *res, r.tooLong(res.Pool)
		}
		res.Overlong = true
	case err != nil:
		return *res, err
	}
	res.Requested, res.ModelName = req.Model, cmp.Or(v.Model, req.Model)
	if !res.Pool.Served[r.in.Dialect] {
		return *res, &openai.Error{Code: openai.CodeEndpointNotSupported, Param: "model",
			Message: "The model " + openai.Quoted(req.Model) + " is not served on " + r.in.HTTP.URL.Path +
				"; it is served on: " + servedPaths(res.Pool) + "."}
	}
	return *res, CheckHandover(r.in, r.parsed, res.Pool)
}

// queryCatalog resolves the request by the catalog. A request that continues a stored response and does
// not name its tier goes to the pool of that response. If Redis could not look it up, it is refused, unless it goes to
// the only holder in any case.
func (r *resolver) queryCatalog(options ResolveOptions) (tiers.Resolution, error) {
	q := r.newQuery()
	q.Report = options.Explained
	if options.Evidence {
		q.Evidence = &r.res.Evidence
	}
	if !r.in.Snap.Catalog.Classifies(q) {
		return r.in.Snap.Catalog.Resolve(q)
	}
	q.Input, q.Chats, q.Recent, q.Pending = r.classifierInput(), options.Chats, r.it.recent, &r.res.Score
	r.res.Classified = r.in.Dialect.Generates() && !r.in.counts
	if share := r.in.Snap.File.Learning.Exploration; options.Explore && share > 0 && r.res.Classified &&
		!r.parsed.FollowsUp() {
		q.Explore = tiers.Exploration{Share: share, Rand: r.it.rand()}
	}
	v, err := r.in.Snap.Catalog.Resolve(q)
	if err != nil || r.parsed.Req.PreviousResponseID == "" {
		return v, err
	}
	id := r.parsed.Req.PreviousResponseID
	at, known, err := r.it.lookUpResponse(r.in, r.caller.Tenant, id)
	if err != nil && !IsOnlyHolder(r.in.Snap, r.caller.Caller, r.in.Snap.ByName[v.Target], false) {
		return v, storedUnavailable(id, err)
	}
	if !known || at.Foreign || at.Pool == v.Target {
		return v, nil
	}
	// The tenant owns the response, whatever model names it may use now.
	q.Model, q.Header, q.Input, q.AllowedModel, q.Evidence = at.Pool, "", nil, nil, nil
	if home, err := r.in.Snap.Catalog.Resolve(q); err == nil && home.Target == at.Pool {
		home.Rule, home.Note = "sticky", v.Rule+" selected "+v.Target
		return home, nil
	}
	return v, nil
}

// mayUse reports whether the caller may use the tier or pool of that name.
func (r *resolver) mayUse(name string) bool { return r.in.Snap.MayUse(r.caller.Caller, name) }

// mayUseModel reports whether the caller may use a model name.
func (r *resolver) mayUseModel(name string) bool { return r.caller.MayUseModel(name) }

// available reports whether a tier or pool can take requests, now or after a release.
func (r *resolver) available(target string) bool {
	return r.in.Snap.ByName[target].HasWorkers(r.now)
}

// blocked returns why a target of a list cannot take the request now; empty if it can. Other targets can,
// so that the request does not wait for the end of a backoff.
func (r *resolver) blocked(target string) string {
	switch p := r.in.Snap.ByName[target]; {
	case !p.Served[r.in.Dialect]:
		return "does not serve the endpoint"
	case !p.HasWorkers(r.now):
		return WhyNoWorker
	case !p.Ready(r.now):
		return "has only workers in backoff"
	}
	return ""
}

// fits reports whether the prompt, by its estimate, and max_tokens fit into the context of a tier or
// pool.
func (r *resolver) fits(target string) bool {
	p := r.in.Snap.ByName[target]
	return r.parsed.fitsContext(p, p.Routing.Learned().PromptTokens(r.parsed.RawTokens))
}

// surelyTooLong reports whether the prompt is too long for the pool even if the estimate is too high. A
// count by a vocabulary other than the engine's is off by 10 to 20 %. An estimate by characters may be
// off by half, because runs of spaces and long words need few tokens.
func (r *resolver) surelyTooLong(p *control.Pool) bool {
	if p.Context == 0 {
		return false
	}
	least := p.Routing.Learned().PromptTokens(r.parsed.RawTokens) / 2
	if counted, ok := r.countTokens(); ok {
		least = counted * 3 / 4
	}
	return !r.parsed.fitsContext(p, least)
}

// tooLong returns the answer to a prompt that certainly exceeds the pool's context.
func (r *resolver) tooLong(p *control.Pool) error {
	tokens, answer, d := p.Routing.Learned().PromptTokens(r.parsed.RawTokens), r.parsed.Req.MaxTokens, r.in.Dialect
	e := openai.ContextExceeded(d, promptField(d), p.Context, tokens, answer)
	if answer > p.Context/2 && answer > tokens {
		e.Param = maxTokensField(d)
	}
	return e
}

func maxTokensField(d openai.Dialect) string {
	if d == openai.Responses {
		return "max_output_tokens"
	}
	return "max_tokens"
}

func promptField(d openai.Dialect) string {
	switch d {
	case openai.Chat, openai.Messages:
		return "messages"
	case openai.Completions:
		return "prompt"
	}
	return "input"
}

// classifierInput returns the features of the request for the classifier. The text is extracted only on
// demand.
func (r *resolver) classifierInput() *tiers.ClassifierInput {
	p, req := r.parsed.Prompt, r.parsed.Req
	// mixed, or a session with the name of its tenant would cancel it
	tenant := routing.Mix(maphash.String(r.it.seed, r.caller.Tenant))
	f := &p.input
	*f = tiers.ClassifierInput{Now: r.in.Start, PromptTokens: r.parsed.Estimate,
		MaxTokens: req.MaxTokens, LimitRequired: r.in.Dialect.RequiresMaxTokens(), Tools: req.Tools,
		Tenant: tenant, Count: r.count, User: r.parsed.userText, System: r.parsed.systemText}
	// Not prompt_cache_key: an application may use one key for all its chats.
	if r.in.Snap.Extractor != nil {
		f.Features = func() *tierscore.Features { return r.parsed.Features(r.in, r.caller) }
	}
	session := cmp.Or(r.in.HTTP.Header.Get("X-Session-Id"), r.in.HTTP.Header.Get("Session-Id"), req.SessionParamsID,
		req.SessionID,
		req.ConversationID)
	if session != "" {
		f.Session = routing.Mix(tenant + maphash.String(r.it.seed, session))
	}
	p.turns = p.turns[:0]
	for _, b := range p.chain {
		if b.Message {
			p.turns = append(p.turns, routing.Mix(tenant+b.Hash))
		}
	}
	f.Turns = p.turns
	return f
}

// countTokens counts the prompt's tokens by the vocabulary closest to the default tier's model. It
// returns false while that is not loaded, and for prompts that prompt.CountTokens cannot count.
func (r *resolver) countTokens() (int64, bool) {
	v := r.it.control.Vocabularies.Get(r.in.Snap.Vocabulary)
	if v == nil {
		return 0, false
	}
	return prompt.CountTokens(r.parsed.Req, v)
}

// degrade moves a request with a spent budget to the cheapest tier that its tenant may use and that
// fits. It returns false if there is none, or if the request names an engine's model or a pool: such
// requests never move and stay refused.
func (r *resolver) degrade(res Resolution, spent tenants.Limit) (Resolution, bool) {
	if res.Pinned || !res.Tier {
		return res, false
	}
	var best *control.Pool
	for _, p := range r.in.Snap.Pools { // in ascending order, so that the lowest tier wins at equal prices
		if p.Tier && r.caller.MayUseTier(p.Name) && p.Served[r.in.Dialect] && r.fits(p.Name) &&
			(best == nil || p.Price.Input+p.Price.Output < best.Price.Input+best.Price.Output) {
			best = p
		}
	}
	if best == nil {
		return res, false
	}
	note := "the " + string(spent) + " budget is spent"
	if best != res.Pool {
		note += "; " + res.Rule + " selected " + res.Pool.Name
	}
	res.Moves = append(res.Moves, tiers.Move{Tier: res.Pool.Name, Rule: res.Rule, By: "budget"})
	res.Resolution = tiers.Resolution{Target: best.Name, Tier: true, Model: best.Model, Rule: "budget", Note: note,
		Pinned: true}
	res.Pool, res.ModelName = best, best.Model
	return res, true
}

// resolveUnnamed resolves a request without a model if the default tier does not serve its endpoint: to
// the lowest tier that does, else to the only pool that does. Several pools have no order, so the client
// must choose. v is the resolution of the catalog.
func (r *resolver) resolveUnnamed(v tiers.Resolution) (tiers.Resolution, error) {
	p := r.in.Snap.Serving(r.in.Dialect, r.caller.Caller)
	if p != nil && r.caller.MayUseModel("") && (p.Tier || !r.servedTwice(p)) {
		return tiers.Resolution{
			Target: p.Name,
			Tier:   p.Tier,
			Model:  cmp.Or(p.Model, p.Models[0]),
			Rule:   cmp.Or(v.Rule, "default"),
		}, nil
	}
	names := r.servedNames()
	if len(names) == 0 {
		return tiers.Resolution{}, &openai.Error{Code: openai.CodeEndpointNotSupported,
			Message: "No model that you may use is served on " + r.in.HTTP.URL.Path + ". Ask the operator for access."}
	}
	return tiers.Resolution{}, &openai.Error{Code: openai.CodeMissingField, Param: "model",
		Message: "The field model is missing: send one of " + strings.Join(names, ", ") + "."}
}

// servedTwice reports whether another pool than p serves the request's endpoint too.
func (r *resolver) servedTwice(p *control.Pool) bool {
	return slices.ContainsFunc(r.in.Snap.Pools, func(other *control.Pool) bool {
		return other != p && other.Served[r.in.Dialect] && r.mayUse(other.Name)
	})
}

// namesShown is the largest number of names in an error message.
const namesShown = 10

// servedNames returns the first model names that the caller may use on the endpoint of the request,
// quoted for a message.
func (r *resolver) servedNames() (names []string) {
	for _, name := range r.in.Snap.Catalog.Models(catalogQuery(r.in.Snap, r.caller.Caller, "")) {
		v, err := r.in.Snap.Catalog.Resolve(catalogQuery(r.in.Snap, r.caller.Caller, name))
		if err != nil || !r.in.Snap.ByName[v.Target].Served[r.in.Dialect] {
			continue
		}
		if names = append(names, openai.Quoted(name)); len(names) == namesShown {
			return append(names, "… (GET /v1/models lists all)")
		}
	}
	return names
}
