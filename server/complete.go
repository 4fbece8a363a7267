package server

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"tierway/openai"
	"tierway/routing"
	"tierway/tenants"
	"tierway/tiers"
)

// complete is the line a request walks, one step a line.
func (x *exchange) complete() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	x.inLedger = true
	if err := x.checkHeaders(); err != nil {
		return err
	}
	if err := x.read(); err != nil {
		return err
	}
	if err := x.choosePool(); err != nil {
		return err
	}
	if err := x.charge(); err != nil {
		return err
	}
	x.gather()
	return x.forward()
}

// besideResponses serves what belongs to POST /v1/responses and few engines have.
// Where no pool serves that dialect, a pool's paths may take it.
func (x *exchange) besideResponses() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	if x.snap.serving(x.dialect, x.caller) != nil {
		return x.complete()
	}
	return x.passUnrouted()
}

// isBeside reports whether the request is of a route that besideResponses serves.
func (x *exchange) isBeside() bool { return x.d.Route == routeInputTokens || x.d.Route == routeCompact }

// notServed is the answer where the engines of the request's pool lack its endpoint.
func notServed(x *exchange) *openai.Error {
	return &openai.Error{Code: openai.CodeEndpointNotSupported,
		Message: "The engines of " + quoted(x.pool.Name) + " do not serve " + x.workerPath + "."}
}

// authenticate finds who asks by the request's key. Every refusal of a key is the
// same answer, so that it says nothing about which keys exist.
func (x *exchange) authenticate() error {
	if x.explanation != nil {
		return x.explainedCaller()
	}
	who := x.snap.people
	key, given := credential(x.r.Header)
	err := tenants.ErrUnknownKey
	if given {
		x.caller, err = who.directory.Authenticate(key, x.start)
	}
	switch {
	case err == nil:
	case errors.Is(err, tenants.ErrDisabled):
		x.d.Tenant, x.inLedger = x.caller.Tenant, true
		return errTenantDisabled
	case x.snap.file.Auth.Required, x.unread(who, key):
		return x.unknownKey(who, key)
	default:
		if err := x.checkKeyless(); err != nil {
			return err
		}
		x.caller, x.keyless = tenants.Anonymous(), true
	}
	x.d.Tenant, x.d.Key = x.caller.Tenant, x.caller.Key
	x.trace = x.s.traces.Begin(x.r.Header, true, x.s.rand)
	return nil
}

// unread tells whether a key may be a good one that only the database knows, which
// was never read.
func (x *exchange) unread(who *people, key string) bool {
	return x.s.sql != nil && who.readAt.IsZero() && strings.HasPrefix(key, tenants.TenantPrefix) && tenants.WellFormed(key)
}

// unknownKey is the answer to a key that nobody has. While the database was never
// read, a well-formed key may be a good one.
func (x *exchange) unknownKey(who *people, key string) error {
	x.caller = nil
	if x.unread(who, key) {
		return &openai.Error{Code: openai.CodeAuthBackendUnavailable, RetryAfter: askEvery, Message: "Keys cannot be checked right now. Try again."}
	}
	x.s.metrics.AuthFailures.Inc()
	if x.s.sql != nil && tenants.WellFormed(key) {
		x.s.doubt() // it may be new
	}
	if key == "" {
		return errBadKey // nobody guesses by leaving the key out
	}
	if tooMany, wait := x.s.guesses.another(x.s.clientIP(x.r), x.start); tooMany {
		return &openai.Error{Code: openai.CodeRateLimitExceeded, RetryAfter: wait, NoRetry: true,
			Message: "Too many requests with incorrect API keys came from this address. Send a valid key."}
	}
	return errBadKey
}

// read takes the body in, decodes it and parses what routing needs.
func (x *exchange) read() (err error) {
	if strings.EqualFold(x.r.Header.Get("Upgrade"), "websocket") {
		return errWebSocket
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	contentType := x.r.Header.Get("Content-Type")
	switch kind := mediaType(contentType); {
	case kind == "multipart/form-data" && (x.dialect == openai.Audio || x.dialect == openai.Images):
		x.req, err = openai.ParseMultipart(contentType, body)
	case kind == "application/json" || kind == "" && (!x.keyless || len(body) == 0): // a web page can send a body without a type
		x.req, err = openai.Parse(x.dialect, body, openai.Limits{})
	case contentType == "":
		return &openai.Error{Code: openai.CodeUnsupportedMediaType, Message: "The request has no Content-Type; send application/json."}
	default:
		return &openai.Error{Code: openai.CodeUnsupportedMediaType, Param: "",
			Message: "Content-Type " + quoted(contentType) + " is not taken here; send application/json."}
	}
	if err != nil {
		return err
	}
	x.req.Dialect = x.dialect
	x.class = x.priority()
	x.d.Class, x.d.MaxTokens = x.class.String(), x.req.MaxTokens
	x.rawTokens = x.req.PromptTokens()
	x.d.PromptTokens = x.rawTokens
	if usual := x.snap.usual; usual != nil {
		x.d.PromptTokens = usual.routing.PromptTokens(x.rawTokens)
	}
	x.readPrompt()
	return nil
}

// choosePool resolves the request's names, or its content, to a tier or pool
// that the tenant may use and that speaks the dialect.
func (x *exchange) choosePool() error {
	x.d.RequestedModel = "other"
	v, err := x.resolve()
	x.describeTier()
	if x.req.Model == "" && (errors.Is(err, tiers.ErrUnknownModel) || err == nil && !x.snap.byName[v.Target].served[x.dialect]) {
		v, err = x.resolveUnnamed(v)
	}
	x.verdict, x.pool = v, x.snap.byName[v.Target]
	switch {
	case errors.Is(err, tiers.ErrUnknownModel):
		return modelNotFound(x.req.Model)
	case errors.Is(err, tiers.ErrTooLong):
		// The estimate may be wrong, and the engine knows: only what is surely too
		// long is refused here.
		if x.surelyTooLong(x.pool) {
			return x.tooLong()
		}
		if e := x.explanation; e != nil {
			e.Notes = append(e.Notes, fmt.Sprintf("longer than the context of %d tokens by the estimate; the engine decides", x.pool.Context))
		}
	case err != nil:
		return err
	}
	x.d.RequestedModel, x.d.Rule, x.d.RuleNote = x.req.Model, v.Rule, v.Note
	x.d.Tier, x.d.Policy = x.pool.Name, x.pool.Policy.Name
	x.d.Model = x.verdict.Model
	if x.d.Model == "" {
		x.d.Model = x.req.Model
	}
	if !x.pool.served[x.dialect] {
		return &openai.Error{Code: openai.CodeEndpointNotSupported, Param: "model",
			Message: "The model " + quoted(x.req.Model) + " is not served on " + x.r.URL.Path + "; it is served on: " + x.pool.servedPaths() + "."}
	}
	return nil
}

// resolve asks the catalogue where the request goes. One that continues a
// stored response and leaves its tier to the gateway goes where that lies.
func (x *exchange) resolve() (tiers.Verdict, error) {
	q := tiers.Query{
		Model: x.req.Model, Header: x.r.Header.Get("X-Model-Tier"),
		Allowed: x.mayUse, AllowedModel: x.caller.MayUseModel,
		Fits: x.fits, Available: x.available, Explain: x.explanation != nil,
	}
	if x.explanation != nil {
		q.Moves = &x.explanation.walk.moves
	}
	if x.keepsRecords() {
		q.Evidence = &x.seen
	}
	if !x.snap.catalog.Classifies(q) {
		return x.snap.catalog.Resolve(q)
	}
	q.Features, q.Chats = x.features(), x.s.chats
	v, err := x.snap.catalog.Resolve(q)
	if err != nil || x.req.PreviousResponseID == "" {
		return v, err
	}
	at, known := x.s.stored.get(x.req.PreviousResponseID)
	if !known || at.tenant != x.caller.Tenant || at.pool == v.Target {
		return v, nil
	}
	// The response is the tenant's own, whatever names it may ask by.
	q.Model, q.Header, q.Features, q.AllowedModel, q.Evidence = at.pool, "", nil, nil, nil
	if home, err := x.snap.catalog.Resolve(q); err == nil && home.Target == at.pool {
		home.Rule, home.Note = "sticky", v.Rule+" asked for "+v.Target
		return home, nil
	}
	return v, nil
}

// available tells whether a tier or pool can take requests, now or after a
// release.
func (x *exchange) available(target string) bool {
	if x.draft != nil {
		return x.draft.up(target, x.start)
	}
	return x.snap.byName[target].routing.Up(x.start)
}

// gather collects the facts that the policy decides by, and starts the clocks.
func (x *exchange) gather() {
	x.d.PromptTokens = x.pool.routing.PromptTokens(x.rawTokens)
	x.facts = routing.Request{Rand: x.s.rand(), Stream: x.generatesStream(), Model: nameHash(x.d.Model),
		PromptTokens: x.d.PromptTokens, OutputTokens: x.pool.routing.OutputTokens(x.req.MaxTokens)}
	x.setBlocks()
	x.describePrompt()
	if x.explanation != nil {
		return
	}
	x.s.metrics.Decided(x.d.Tier, x.d.Rule)
	if x.req.Stream && eventful(x.dialect) {
		x.answer.startBeats(x.pool.HeartbeatAfter, func() { h := setInto(x.w.Header()); x.openHeaders(&h) })
	}
	x.d.OverheadMs = ms(time.Since(x.readAt))
	x.s.metrics.Overhead.Observe(x.d.OverheadMs / 1000)
}

// eventful tells whether a dialect's streams are relayed event by event, so that
// a comment can stand between two.
func eventful(d openai.Dialect) bool {
	return d == openai.Chat || d == openai.Completions || d == openai.Responses || d == openai.Messages
}
