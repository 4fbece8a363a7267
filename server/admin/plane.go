// Package admin is the admin API: operators read and change what Control holds, and have
// requests explained and replayed.
package admin

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"tierway/decisions"
	"tierway/server/control"
	"tierway/telemetry"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"
)

// Options is what a Plane is made from.
type Options struct {
	Control   *control.Control
	Decisions *decisions.Log
	// Explain explains a request, and returns the random number by which a worker was picked;
	// nil where none was.
	Explain  func(*http.Request, control.Question) (*decisions.Explanation, *uint64)
	Draining func() bool  // the gateway is shutting down
	Inflight func() int64 // requests of the data plane
	// Probes are the handlers of GET and HEAD by their path, which need no key.
	Probes  map[string]http.Handler
	Metrics http.Handler // of GET /metrics; nil: it is not served here
	Path    string       // of the configuration's file, for operators; may be empty
	Version string       // of the program, for operators; may be empty
	Log     *slog.Logger
	Counts  *telemetry.Metrics
	Rand    func() uint64 // uniform; safe for concurrent use
}

// Plane is the admin API: its routes and what all of them share.
type Plane struct {
	gateway
	engine     *gin.Engine
	api        huma.API
	guard      *guard
	decisions  *decisionAPI
	routes     *routeAPI
	operations []huma.Operation
}

// gateway is what the resources of the API have in common: the gateway's state and the
// answers to errors of its stores.
type gateway struct {
	control *control.Control
	log     *slog.Logger
}

// New builds the admin plane: everything under /admin/ with an admin key. Without
// admin keys it is closed, never open.
func New(o Options) *Plane {
	all := gateway{o.Control, o.Log}
	a := &Plane{gateway: all, engine: gin.New(),
		guard: &guard{gateway: all, counts: o.Counts, rand: o.Rand,
			routes: map[string]*operation{}, refused: map[string]refusals{}},
		decisions: &decisionAPI{gateway: all, records: o.Decisions, draining: o.Draining},
		routes:    &routeAPI{gateway: all, records: o.Decisions, explain: o.Explain}}
	e := a.engine
	e.RedirectTrailingSlash, e.HandleMethodNotAllowed = false, true
	e.Use(a.recoverRequest, a.guard.check)
	if o.Metrics != nil {
		e.GET("/metrics", gin.WrapH(o.Metrics))
	}
	for path, h := range o.Probes {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, gin.WrapH(h))
	}
	a.api = a.newAPI(o.Version)
	dir := &directory{gateway: all}
	a.register((&tenantAPI{dir}).operations())
	a.register((&keyAPI{dir}).operations())
	a.register((&adminAPI{all, a.guard}).operations())
	a.register((&auditAPI{all}).operations())
	a.register((&workerAPI{gateway: all}).operations())
	a.register((&queueAPI{o.Control}).operations())
	a.register(a.decisions.operations())
	a.register(a.routes.operations())
	a.register((&configAPI{gateway: all, path: o.Path, version: o.Version, started: time.Now(),
		draining: o.Draining, inflight: o.Inflight}).operations())
	a.register([]operation{{id: "get-openapi", route: "GET /admin/openapi.json", roles: anybody, register: handle(a.document),
		summary: "This API as an OpenAPI document"}})
	e.NoRoute(func(c *gin.Context) { Problem(c.Writer, http.StatusNotFound, "There is nothing at this address.") })
	e.NoMethod(func(c *gin.Context) {
		Problem(c.Writer, http.StatusMethodNotAllowed, "This address takes other methods: "+c.Writer.Header().Get("Allow")+".")
	})
	return a
}

// register adds operations to the API.
func (a *Plane) register(ops []operation) {
	for i := range ops {
		op := &ops[i]
		described := op.describe()
		a.operations = append(a.operations, described)
		a.guard.routes[ginPath(op.route)] = op
		op.register(a.api, described)
	}
}

// Operations returns the operations of the API in their order. The document has their
// parameters and answers.
func (a *Plane) Operations() []huma.Operation { return a.operations }

// OpenAPI returns the document of the API.
func (a *Plane) OpenAPI() *huma.OpenAPI { return a.api.OpenAPI() }

// Handler returns the handler of the plane's address.
func (a *Plane) Handler() http.Handler { return a.engine }

// Streams returns how many operators follow decisions.
func (a *Plane) Streams() int { return int(a.decisions.streams.Load()) }

// Problem answers with an error of RFC 9457.
func Problem(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) //nolint:errcheck // the client is gone
}

// recoverRequest turns a panic of the admin plane into a 500, or into a cut
// connection if part of the answer was sent.
func (a *Plane) recoverRequest(c *gin.Context) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			a.control.Recoverer.Panicked(p, slog.String("route", c.FullPath()))
		}
		if c.Writer.Written() {
			panic(http.ErrAbortHandler) // net/http cuts the connection without a clean end
		}
		Problem(c.Writer, http.StatusInternalServerError, "The gateway failed to handle the request. Its log has the cause.")
	}()
	c.Next()
}
