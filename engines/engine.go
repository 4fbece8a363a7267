package engines

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tierway/routing"
	"tierway/workers/zmtp"
)

// Config configures an engine. The zero value of every field is usable; an engine without a model
// needs AnyModel.
type Config struct {
	Name     string // in the Server header and in the demo
	Model    string // the one model it serves
	AnyModel bool   // accepts every model name, as llama.cpp does

	Prefill  float64       // prompt tokens per second; 0: no time
	PerToken time.Duration // time per output token of a request that runs alone
	Slots    int           // concurrent requests, others wait; 0: 64
	Priority Priority      // handling of a request's priority; the zero value ignores it
	Interval int           // output tokens per event of a stream after the first, as vLLM's --stream-interval; 0: 1

	CacheTokens int // capacity of the prefix cache; 0: no cache
	Context     int // maximum of prompt and answer together, in tokens; 0: 32768

	Seed uint64

	Handover  string        // how engines transfer prompts to each other, such as HandoverNIXL; empty: not at all
	Role      string        // RolePrefill, RoleDecode, or empty for whole requests; nixl and shared have no roles
	Peers     *Peers        // engines to transfer to and from; nil: none
	KVAddress string        // host:port at which other engines reach this one; empty: any
	Lease     time.Duration // time for which blocks are kept that no engine reads; 0: 30 s
	Transfer  time.Duration // per token, besides 1 ms; 0: 2 µs

	Network zmtp.Network // where PublishEvents binds its addresses

	Clock  func() time.Time                      // nil: time.Now
	Script func(path string, body []byte) Script // nil: the engine generates all answers
	Ended  func(r *http.Request, a Account)      // called by the request's goroutine when it has ended; nil: not called
}

// Script overrides the answer to one request. The zero value overrides nothing.
type Script struct {
	Text      string          // the literal answer
	Tokens    int             // length of the generated answer
	HoldAfter int             // the engine stops sending after this many tokens; 0: never
	Release   <-chan struct{} // closing it resumes the answer; nil: it never resumes
	NoObject  bool            // the blocks are not kept and the object is null, as after an abort in vLLM
	Refuse    int             // status with which the engine refuses the request, as with a full queue; 0: none
}

// MaxBody bounds a request's body in bytes: twice what the gateway accepts, so that a test of large
// bodies meets the gateway's bound first.
const MaxBody = 64 << 20

// Engine is one simulated inference engine, an http.Handler. It is safe for concurrent use. After
// background responses the caller must call Close.
type Engine struct {
	c       Config
	rank    int // see Ranks
	slots   *turnstile
	prefill *turnstile // there is one compute unit: prompts are read one after the other
	cache   *prefixCache
	events  *cacheEvents // nil: the engine publishes none
	backlog backlog
	stored  *responseStore
	process string      // id that a restart replaces; Peers.mu guards it
	killed  atomic.Bool // see Kill

	decoding  atomic.Int64
	loading   atomic.Int64 // requests that wait for blocks of other engines
	inUse     atomic.Int64 // tokens of running requests
	computed  atomic.Int64 // prompt tokens, answered or not
	generated atomic.Int64 // output tokens, delivered or not
	ids       atomic.Uint64
	counts    counters
	work      sync.WaitGroup // background responses
}

// New returns an engine. Negative values count as zero.
func New(c Config) *Engine {
	if c.Slots <= 0 {
		c.Slots = 64
	}
	if c.Context <= 0 {
		c.Context = 32768
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Interval = max(1, c.Interval)
	c.Lease, c.Transfer = cmp.Or(c.Lease, 30*time.Second), cmp.Or(c.Transfer, 2*time.Microsecond)
	if c.Handover != "" && c.Peers == nil {
		c.Peers = new(Peers)
	}
	e := &Engine{
		c:       c,
		slots:   newTurnstile(c.Slots),
		prefill: newTurnstile(1),
		cache:   newPrefixCache(max(c.CacheTokens, 0)/blockTokens, blockTokens),
		backlog: backlog{blocks: make(map[uint64]int)},
		stored:  newResponseStore(),
		counts:  counters{Stats: Stats{Requests: make(map[string]int64)}},
	}
	if c.Handover != "" {
		c.Peers.add(e)
	}
	return e
}

// Config returns the engine's configuration with its defaults filled in.
func (e *Engine) Config() Config { return e.c }

// Close cancels background responses and waits for them. It does not end requests in progress;
// these end with their connections.
func (e *Engine) Close() {
	e.stored.cancelAll()
	e.work.Wait()
	e.events.close()
}

// request is one call for the handlers. Its body is completely read, so that net/http detects a
// client that leaves.
type request struct {
	*http.Request
	body    []byte
	script  Script
	account *Account
}

type handler func(e *Engine, w http.ResponseWriter, r *request) error

type route struct {
	method string
	serve  handler
}

// routes is immutable. The paths are those of vLLM's server.
var routes = map[string]route{
	"/v1/chat/completions":        {http.MethodPost, (*Engine).chat},
	"/v1/completions":             {http.MethodPost, (*Engine).completions},
	"/v1/responses":               {http.MethodPost, (*Engine).responses},
	"/v1/messages":                {http.MethodPost, (*Engine).messages},
	"/v1/messages/count_tokens":   {http.MethodPost, (*Engine).countTokens},
	"/v1/embeddings":              {http.MethodPost, (*Engine).embeddings},
	"/v1/rerank":                  {http.MethodPost, (*Engine).rerank},
	"/rerank":                     {http.MethodPost, (*Engine).rerank},
	"/v1/score":                   {http.MethodPost, (*Engine).score},
	"/score":                      {http.MethodPost, (*Engine).score},
	"/v1/moderations":             {http.MethodPost, (*Engine).moderations},
	"/kv_event_sources":           {http.MethodGet, (*Engine).eventSources},
	"/pooling":                    {http.MethodPost, (*Engine).pooling},
	"/classify":                   {http.MethodPost, (*Engine).classify},
	"/tokenize":                   {http.MethodPost, (*Engine).tokenize},
	"/detokenize":                 {http.MethodPost, (*Engine).detokenize},
	"/v1/chat/completions/render": {http.MethodPost, (*Engine).renderChat},
	"/v1/completions/render":      {http.MethodPost, (*Engine).renderCompletions},
	"/v1/audio/transcriptions":    {http.MethodPost, (*Engine).transcribe},
	"/v1/audio/translations":      {http.MethodPost, (*Engine).transcribe},
	"/v1/audio/speech":            {http.MethodPost, (*Engine).speak},
	"/v1/images/generations":      {http.MethodPost, (*Engine).draw},
	"/v1/images/edits":            {http.MethodPost, (*Engine).editImage},
	"/v1/models":                  {http.MethodGet, (*Engine).models},
	"/health":                     {http.MethodGet, (*Engine).health},
	"/metrics":                    {http.MethodGet, (*Engine).metrics},
}

// find returns the route of a path and the name for its count.
func find(path string) (route, string, bool) {
	if rt, ok := routes[path]; ok {
		return rt, path, true
	}
	if id, ok := strings.CutPrefix(path, "/v1/responses/"); ok && id != "" {
		if base, ok := strings.CutSuffix(id, "/cancel"); ok && base != "" && !strings.Contains(base, "/") {
			return route{http.MethodPost, (*Engine).cancelResponse}, "/v1/responses/{id}/cancel", true
		}
		if !strings.Contains(id, "/") {
			return route{"", (*Engine).storedResponse}, "/v1/responses/{id}", true
		}
	}
	return route{}, "other", false
}

// ServeHTTP answers one request. If the client leaves, the engine detects it within one token,
// counts it and frees its slot.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt, name, known := find(r.URL.Path)
	e.counts.change(func(c *counters) { c.Requests[name]++; c.Open++ })
	defer e.counts.change(func(c *counters) { c.Open-- })
	account := &Account{Engine: e.c.Name, Began: e.c.Clock()}
	if e.c.Name != "" {
		w.Header().Set("Server", e.c.Name)
	}

	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	switch {
	case err != nil:
		err = bodyError(err)
	case !known:
		err = &apiError{status: http.StatusNotFound, message: fmt.Sprintf("the path %s does not exist", r.URL.Path)}
	case rt.method != "" && rt.method != r.Method:
		w.Header().Set("Allow", rt.method)
		err = &apiError{status: http.StatusMethodNotAllowed,
			message: fmt.Sprintf("%s takes %s, not %s", r.URL.Path, rt.method, r.Method)}
	default:
		req := &request{Request: r, body: body, account: account}
		if e.c.Script != nil {
			req.script = e.c.Script(r.URL.Path, body)
		}
		if err = rt.serve(e, w, req); err != nil {
			e.dropObject(req, err)
		}
	}
	e.closeAccount(r, account, err)
	e.conclude(w, r, err)
}

// conclude turns a handler's error into an answer or a count. Only *apiError is answered: handlers
// return it before they have written anything. A ResponseWriter that cuts the answer on purpose
// returns http.ErrAbortHandler, which is no cancellation.
func (e *Engine) conclude(w http.ResponseWriter, r *http.Request, err error) {
	var refused *apiError
	switch {
	case err == nil, errors.Is(err, http.ErrAbortHandler):
	case errors.As(err, &refused):
		refused.write(w, r.URL.Path)
	default: // the context ended or a write failed: the client does not read an answer
		e.counts.change(func(c *counters) { c.Cancelled++; c.CancelledAt = e.c.Clock() })
	}
}

func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return &apiError{status: http.StatusRequestEntityTooLarge,
			message: fmt.Sprintf("the body is longer than %d bytes", tooLarge.Limit)}
	}
	return fmt.Errorf("reading the body: %w", err)
}

// parse parses a JSON body, of which model is a field, and checks the model.
func (e *Engine) parse(r *request, into any, model *string) error {
	if err := decode(r.body, into); err != nil {
		return err
	}
	return e.checkModel(*model)
}

// checkModel rejects a model that the engine does not serve.
func (e *Engine) checkModel(model string) error {
	switch {
	case e.c.AnyModel || model == e.c.Model && model != "":
		return nil
	case model == "":
		return badRequest("model", "the field model is missing; this engine serves %q", e.c.Model)
	}
	return &apiError{status: http.StatusNotFound, param: "model", afterSchema: true,
		message: fmt.Sprintf("the model %q does not exist; this engine serves %q", model, e.c.Model)}
}

// modelName returns the model's name in answers: an engine that accepts every name repeats the
// client's.
func (e *Engine) modelName(asked string) string { return cmp.Or(asked, e.c.Model) }

// newID returns a new id that depends only on the seed and on the number of ids before. Seed and
// count enter differently, so that no two engines produce the same id.
func (e *Engine) newID(prefix string) string {
	return fmt.Sprintf("%s%016x", prefix, routing.Draw(routing.Draw(e.c.Seed)+e.ids.Add(1)))
}
