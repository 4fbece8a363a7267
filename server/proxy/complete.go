package proxy

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"tierway/openai"
	"tierway/openai/prompt"
	"tierway/routing"
	"tierway/server/control"
	"tierway/tenants"
)

// complete serves a request that is routed by its model, one stage a line.
func (x *exchange) complete() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	if err := x.read(); err != nil {
		return err
	}
	if err := x.resolve(false); err != nil {
		return err
	}
	if err := x.admission.charge(x.admission.take); err != nil {
		return err
	}
	x.gather()
	return x.dispatch.forward()
}

// besideResponses serves what belongs to POST /v1/responses and few engines have.
// Where no pool serves that dialect, a pool's paths may take it.
func (x *exchange) besideResponses() error {
	if err := x.authenticate(); err != nil {
		return err
	}
	if x.snap.Serving(x.in.dialect, x.caller.Caller) != nil {
		return x.complete()
	}
	return passUnrouted(x)
}

// notServed is the answer where the engines of the request's pool lack its endpoint.
func notServed(x *exchange) *openai.Error {
	return &openai.Error{Code: openai.CodeEndpointNotSupported,
		Message: "The engines of " + quoted(x.resolution.pool.Name) + " do not serve " + x.in.workerPath + "."}
}

// authenticate finds the caller by the request's key.
func (x *exchange) authenticate() (err error) {
	inLedger := x.caller.inLedger // a request of a route may go on as one without
	x.caller, err = x.s.authenticate(x.snap, x.in.r, x.in.start)
	x.caller.inLedger = x.caller.inLedger || inLedger
	return err
}

// authenticate finds the caller of a request by its key. Missing, malformed and unknown
// keys get the same answer, so that it does not tell which keys exist.
func (px *Proxy) authenticate(snap *control.Snapshot, r *http.Request, now time.Time) (caller, error) {
	key, given := control.Credential(r.Header)
	is, err := (*tenants.Caller)(nil), tenants.ErrUnknownKey
	if given {
		is, err = snap.Identity.Directory.Authenticate(key, now)
	}
	keyless := false
	switch {
	case err == nil:
	case errors.Is(err, tenants.ErrDisabled):
		return caller{Caller: is, disabled: true, inLedger: true}, refusedKey(err)
	case snap.File.Auth.Required, px.unread(snap.Identity, key):
		return caller{}, px.unknownKey(snap, r, key, now)
	default:
		if err := checkKeyless(r, snap.File); err != nil {
			return caller{}, err
		}
		is, keyless = tenants.Anonymous(), true
	}
	return caller{Caller: is, keyless: keyless, trace: px.traces.Begin(r.Header, true, now)}, nil
}

// refusedKey is the answer to a key that a tenant has and that may not be used; nil for one
// that may.
func refusedKey(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, tenants.ErrDisabled):
		return tenantDisabled()
	}
	return badKey()
}

// unread tells whether a key may be a good one that only the database knows, which
// was never read.
func (px *Proxy) unread(who *control.Identity, key string) bool {
	return px.control.Stores.SQL != nil && who.ReadAt.IsZero() && strings.HasPrefix(key, tenants.TenantPrefix) && tenants.WellFormed(key)
}

// unknownKey is the answer to a key that no tenant has. While the database was never
// read, a well-formed key may be a good one.
func (px *Proxy) unknownKey(snap *control.Snapshot, r *http.Request, key string, now time.Time) error {
	if px.unread(snap.Identity, key) {
		return &openai.Error{Code: openai.CodeAuthBackendUnavailable, RetryAfter: control.AskEvery, Message: "Keys cannot be checked right now. Try again."}
	}
	px.metrics.AuthFailures.Inc()
	if px.control.Stores.SQL != nil && tenants.WellFormed(key) {
		px.control.Database.RequestRefresh() // it may be new
	}
	if key == "" {
		return badKey() // a request without a key guesses none
	}
	if tooMany, wait := px.control.AuthFailures.Add(snap.ClientIP(r), now); tooMany {
		return &openai.Error{Code: openai.CodeRateLimitExceeded, RetryAfter: wait, NoRetry: true,
			Message: "Too many requests with incorrect API keys came from this address. Send a valid key."}
	}
	return badKey()
}

// read takes the body in, decodes it and parses what routing needs.
func (x *exchange) read() error {
	x.caller.inLedger = true
	if err := checkHeaders(x.in.r.Header); err != nil {
		return err
	}
	if strings.EqualFold(x.in.r.Header.Get("Upgrade"), "websocket") {
		return noWebSocket()
	}
	body, err := readBody(x)
	if err != nil {
		return err
	}
	req, err := x.parse(body)
	if err != nil {
		return err
	}
	req.Dialect = x.in.dialect
	p := &x.parsed
	p.req, p.rawTokens = req, req.PromptTokens()
	p.class, p.askedClass = x.in.class(x.caller.Caller, req.ServiceTier)
	p.estimate = p.rawTokens
	if usual := x.snap.Usual; usual != nil {
		p.estimate = usual.Routing.Learned().PromptTokens(p.rawTokens)
	}
	if req.CacheSalt != "" || x.caller.IsolateCache {
		p.salt = openai.CacheSalt(x.caller.Tenant, req.CacheSalt)
	}
	p.prompt = x.s.scratch.prompts.Get().(*promptFacts)
	p.prompt.chain, p.prompt.first = prompt.AppendChain(p.prompt.chain[:0], req, control.NameHash(p.salt))
	return nil
}

// parse parses a body by its Content-Type.
func (x *exchange) parse(body []byte) (*openai.Request, error) {
	contentType := x.in.r.Header.Get("Content-Type")
	switch kind := mediaType(contentType); {
	case kind == "multipart/form-data" && (x.in.dialect == openai.Audio || x.in.dialect == openai.Images):
		return openai.ParseMultipart(contentType, body)
	case kind == "application/json" || kind == "" && (!x.caller.keyless || len(body) == 0): // a web page can send a body without a type
		return openai.Parse(x.in.dialect, body, openai.Limits{})
	case contentType == "":
		return nil, &openai.Error{Code: openai.CodeUnsupportedMediaType, Message: "The request has no Content-Type; send application/json."}
	}
	return nil, &openai.Error{Code: openai.CodeUnsupportedMediaType,
		Message: "Content-Type " + quoted(contentType) + " is not taken here; send application/json."}
}

// gatherFacts collects the facts that the policy decides by.
func (x *exchange) gatherFacts() {
	p := x.resolution.pool.Routing.Learned()
	x.facts = routing.Request{Rand: x.s.rand(), Stream: x.parsed.generatesStream(), Model: control.NameHash(x.resolution.model),
		PromptTokens: p.PromptTokens(x.parsed.rawTokens), OutputTokens: p.OutputTokens(x.parsed.req.MaxTokens)}
	x.setBlocks()
}

// gather collects the facts that the policy decides by, and starts the clocks.
func (x *exchange) gather() {
	x.gatherFacts()
	x.s.metrics.Decided(x.resolution.pool.Name, x.resolution.Rule)
	if x.parsed.req.Stream && x.in.dialect.Generates() {
		x.answer.startBeats(x.resolution.pool.HeartbeatAfter, func() { h := setInto(x.answer.header()); x.openHeaders(&h) })
	}
	x.overhead = time.Since(x.in.readAt)
	x.s.metrics.Overhead.Observe(ms(x.overhead) / 1000)
}
