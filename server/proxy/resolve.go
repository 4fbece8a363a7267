package proxy

import (
	"cmp"
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
	"tierway/tiers"
)

// resolver finds the tier or pool of one request.
type resolver struct {
	s      *Proxy
	snap   *control.Snapshot
	in     *inbound
	caller *caller
	parsed *parsed
}

// resolve finds the request's tier or pool. With signals it returns what each signal
// says, and changes no chat.
func (x *exchange) resolve(signals bool) (err error) {
	x.resolution, err = x.resolver.resolve(keepsRecords(x), signals)
	return err
}

// resolve resolves the request's names, or its content, to a tier or pool that the
// tenant may use and that speaks the dialect. The resolution of a refused request is
// as far as it got.
func (r *resolver) resolve(evidence, signals bool) (resolution, error) {
	req := r.parsed.req
	res := resolution{requested: "other"}
	v, err := r.ask(&res, evidence || signals, signals)
	if req.Model == "" && (errors.Is(err, tiers.ErrUnknownModel) || err == nil && !r.snap.ByName[v.Target].Served[r.in.dialect]) {
		v, err = r.resolveUnnamed(v)
	}
	res.Verdict, res.pool = v, r.snap.ByName[v.Target]
	switch {
	case errors.Is(err, tiers.ErrUnknownModel):
		return res, modelNotFound(req.Model)
	case errors.Is(err, tiers.ErrTooLong):
		// The estimate may be wrong, and the engine knows: only what is surely too
		// long is refused here.
		if r.surelyTooLong(res.pool) {
			res.Verdict = tiers.Verdict{Model: v.Model, Explained: v.Explained}
			return res, r.tooLong(res.pool)
		}
		res.overlong = true
	case err != nil:
		return res, err
	}
	res.requested, res.model = req.Model, cmp.Or(v.Model, req.Model)
	if !res.pool.Served[r.in.dialect] {
		return res, &openai.Error{Code: openai.CodeEndpointNotSupported, Param: "model",
			Message: "The model " + quoted(req.Model) + " is not served on " + r.in.r.URL.Path + "; it is served on: " + servedPaths(res.pool) + "."}
	}
	return res, nil
}

// query is what the catalogue is asked for the caller's rights.
func (r *resolver) query(model string) tiers.Query {
	return tiers.Query{Model: model, Allowed: r.mayUse, AllowedModel: r.caller.MayUseModel}
}

// ask asks the catalogue where the request goes. One that continues a stored response
// and leaves its tier to the gateway goes where that lies.
func (r *resolver) ask(res *resolution, evidence, signals bool) (tiers.Verdict, error) {
	q := r.query(r.parsed.req.Model)
	q.Header, q.Fits, q.Available = r.in.r.Header.Get("X-Model-Tier"), r.fits, r.available
	q.Explain, q.Moves = signals, &res.moves
	if evidence {
		q.Evidence = &res.evidence
	}
	if !r.snap.Catalog.Classifies(q) {
		return r.snap.Catalog.Resolve(q)
	}
	q.Features, q.Chats = r.features(), r.s.chats
	v, err := r.snap.Catalog.Resolve(q)
	if err != nil || r.parsed.req.PreviousResponseID == "" {
		return v, err
	}
	at, known := r.s.stored.Get(r.parsed.req.PreviousResponseID)
	if !known || at.Tenant != r.caller.Tenant || at.Pool == v.Target {
		return v, nil
	}
	// The response is the tenant's own, whatever names it may ask by.
	q.Model, q.Header, q.Features, q.AllowedModel, q.Evidence = at.Pool, "", nil, nil, nil
	if home, err := r.snap.Catalog.Resolve(q); err == nil && home.Target == at.Pool {
		home.Rule, home.Note = "sticky", v.Rule+" asked for "+v.Target
		return home, nil
	}
	return v, nil
}

// mayUse reports whether the caller may use the tier or pool of that name.
func (r *resolver) mayUse(name string) bool { return r.snap.MayUse(r.caller.Caller, name) }

// available tells whether a tier or pool can take requests, now or after a release.
func (r *resolver) available(target string) bool { return r.snap.ByName[target].HasWorkers(r.in.start) }

// fits tells whether a tier's or pool's context holds the prompt and the output
// that it allows, as far as the estimate goes.
func (r *resolver) fits(target string) bool {
	p := r.snap.ByName[target]
	return p.Context == 0 || p.Routing.Learned().PromptTokens(r.parsed.rawTokens)+r.parsed.req.MaxTokens <= p.Context
}

// surelyTooLong tells whether the prompt is too long for the pool whatever the
// estimate is worth. A count by another vocabulary than the engine's is off by a
// tenth or two; characters alone may be off by half, since runs of spaces and long
// words take few tokens.
func (r *resolver) surelyTooLong(p *control.Pool) bool {
	if p.Context == 0 {
		return false
	}
	least := p.Routing.Learned().PromptTokens(r.parsed.rawTokens) / 2
	if counted, ok := r.countTokens(); ok {
		least = counted * 3 / 4
	}
	return least+r.parsed.req.MaxTokens > p.Context
}

// tooLong is the refusal of a prompt that the pool's context surely does not hold.
func (r *resolver) tooLong(p *control.Pool) error {
	tokens, answer, d := p.Routing.Learned().PromptTokens(r.parsed.rawTokens), r.parsed.req.MaxTokens, r.in.dialect
	e := openai.ContextExceeded(d, promptField(d), p.Context, tokens, answer)
	if answer > p.Context/2 && answer > tokens {
		e.Param = maxTokensField(d)
	}
	return e
}

// features are what the classifier may ask about the request. The text is read
// only when it does.
func (r *resolver) features() *tiers.Features {
	p, req := r.parsed.prompt, r.parsed.req
	tenant := routing.Mix(maphash.String(r.s.seed, r.caller.Tenant)) // spread, or a session named like its tenant would cancel it out
	f := &p.features
	*f = tiers.Features{Now: r.in.start, PromptTokens: r.parsed.estimate,
		MaxTokens: req.MaxTokens, LimitRequired: r.in.dialect.RequiresMaxTokens(), Tools: req.Tools,
		Count: r.countTokens, User: r.userText, System: r.systemText}
	// Not prompt_cache_key: one application may send one key with all its chats.
	session := cmp.Or(r.in.r.Header.Get("X-Session-Id"), r.in.r.Header.Get("Session-Id"), req.SessionID, req.ConversationID)
	if session != "" {
		f.Session = routing.Mix(tenant + maphash.String(r.s.seed, session))
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

func (r *resolver) userText() []byte {
	p := r.parsed.prompt
	p.user = prompt.AppendUserText(p.user[:0], r.parsed.req, tiers.TextLimit)
	return p.user
}

func (r *resolver) systemText() []byte {
	p := r.parsed.prompt
	p.system = prompt.AppendSystemText(p.system[:0], r.parsed.req, tiers.TextLimit)
	return p.system
}

// countTokens counts the prompt's tokens exactly, by the vocabulary that comes
// nearest to the default tier's model; false while that is not loaded and for
// prompts that prompt.CountTokens does not count.
func (r *resolver) countTokens() (int64, bool) {
	v := r.s.control.Vocabularies.Get(r.snap.Vocabulary)
	if v == nil {
		return 0, false
	}
	return prompt.CountTokens(r.parsed.req, v)
}

// degrade moves a request whose budget is spent to the cheapest tier that its tenant may
// use and that can take it; false when it has to stay refused: it names an engine's
// model or a pool, which are never moved.
func (r *resolver) degrade(res resolution, spent tenants.Limit) (resolution, bool) {
	if res.Pinned || !res.Tier {
		return res, false
	}
	var best *control.Pool
	for _, p := range r.snap.Pools { // the least capable first, so that it wins where prices are the same
		if p.Tier && r.caller.MayUseTier(p.Name) && p.Served[r.in.dialect] && r.fits(p.Name) && (best == nil || cheaper(p.Price, best.Price)) {
			best = p
		}
	}
	if best == nil {
		return res, false
	}
	note := "the " + string(spent) + " budget is spent"
	if best != res.pool {
		note += "; " + res.Rule + " asked for " + res.pool.Name
	}
	res.moves = append(res.moves, tiers.Move{Tier: res.pool.Name, Rule: res.Rule, By: "budget"})
	res.Verdict = tiers.Verdict{Target: best.Name, Tier: true, Model: best.Model, Rule: "budget", Note: note, Explained: res.Explained}
	res.pool, res.model = best, best.Model
	return res, true
}

// cheaper compares two prices by what a prompt and an answer of one length cost.
func cheaper(a, b tenants.Price) bool { return a.Input+a.Output < b.Input+b.Output }

// resolveUnnamed resolves a request without a model that the default tier cannot
// answer: to the lowest tier that serves its endpoint, else to the only pool that does.
// Several pools have no order, so that the client must choose. v is what the catalogue
// said.
func (r *resolver) resolveUnnamed(v tiers.Verdict) (tiers.Verdict, error) {
	p := r.snap.Serving(r.in.dialect, r.caller.Caller)
	if p != nil && r.caller.MayUseModel("") && (p.Tier || !r.servedTwice(p)) {
		return tiers.Verdict{Target: p.Name, Tier: p.Tier, Model: cmp.Or(p.Model, p.Models[0]), Rule: cmp.Or(v.Rule, "default")}, nil
	}
	names := r.servedNames()
	if len(names) == 0 {
		return tiers.Verdict{}, &openai.Error{Code: openai.CodeEndpointNotSupported,
			Message: "No model that you may use is served on " + r.in.r.URL.Path + "."}
	}
	return tiers.Verdict{}, &openai.Error{Code: openai.CodeMissingField, Param: "model",
		Message: "The field model is missing: send one of " + strings.Join(names, ", ") + "."}
}

// servedTwice reports whether another pool than p serves the request's endpoint too.
func (r *resolver) servedTwice(p *control.Pool) bool {
	return slices.ContainsFunc(r.snap.Pools, func(other *control.Pool) bool {
		return other != p && other.Served[r.in.dialect] && r.mayUse(other.Name)
	})
}

// namesShown bounds the names of an error's message.
const namesShown = 10

// servedNames returns the first model names that the caller may ask by and whose tier
// or pool serves the request's endpoint, quoted for a message.
func (r *resolver) servedNames() (names []string) {
	for _, name := range r.snap.Catalog.Models(r.query("")) {
		v, err := r.snap.Catalog.Resolve(r.query(name))
		if err != nil || !r.snap.ByName[v.Target].Served[r.in.dialect] {
			continue
		}
		if names = append(names, quoted(name)); len(names) == namesShown {
			return append(names, "… (GET /v1/models lists all)")
		}
	}
	return names
}
