package admin

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"tierway/decisions"
	"tierway/server/control"
	"tierway/telemetry"
	"tierway/tierscore/report"
	"tierway/web"
)

// Options are the parts of the gateway that the admin API shows and changes.
type Options struct {
	Control   *control.Control
	Decisions *decisions.Log
	// Explain explains a request. It returns the random number that the worker selection used, or
	// nil if no worker was selected.
	Explain  func(*http.Request, control.Question) (*decisions.Explanation, *uint64)
	Draining func() bool  // the gateway is shutting down
	Inflight func() int64 // requests of the data plane
	// FlushRecords returns when the records and counters have all requests that have ended. Nil: they always have.
	FlushRecords func()
	// NotReady returns the reasons for which a balancer should not send requests to the gateway.
	NotReady func() []string
	// Probes are handlers of GET and HEAD by path. They need no key.
	Probes  map[string]http.Handler
	Metrics http.Handler // handler of GET and HEAD /metrics; nil: not served here
	Path    string       // path of the configuration file; may be empty
	// Addr returns the open address of a plane, "data" or "admin", or "" if it is not open. Nil: none is open.
	Addr    func(plane string) string
	Version string // version of the program; may be empty
	Log     *slog.Logger
	Counts  *telemetry.Metrics
	Rand    func() uint64 // uniform; safe for concurrent use
	// PurgeAnswers removes the kept answers of a tenant and returns the number of those in memory. An error means that
	// other gateways may still have some.
	PurgeAnswers func(ctx context.Context, tenant string) (int, error)
	// TierReport returns the report of the labels that the gateway keeps, without its money; nil: it keeps none.
	TierReport func(ctx context.Context) (*report.Report, error)
	// CacheMemory returns the memory of the response cache.
	CacheMemory func() telemetry.CacheMemory
}

// Plane is the admin API of a gateway. It is safe for concurrent use.
type Plane struct {
	*gateway
	engine     *gin.Engine
	api        huma.API
	guard      *guard
	operations []huma.Operation

	directory *tenantAPI
	keys      *adminAPI
	history   *historyAPI
	fleet     *workerAPI
	records   *decisionAPI
	route     *routeAPI
	configs   *configAPI
	login     *loginAPI
	metrics   *metricsAPI
	sampler   *sampler
	overview  *overviewAPI
	events    *streamAPI
}

// gateway is the state that the handlers of all resources share.
type gateway struct {
	options Options
	control *control.Control
	log     *slog.Logger
}

// New builds the admin plane. Everything under /admin/ needs an admin key; if none is configured,
// every request is rejected.
func New(o Options) *Plane {
	gw := &gateway{options: o, control: o.Control, log: o.Log}
	g := &guard{control: o.Control, log: o.Log, counts: o.Counts, rand: o.Rand, flushRecords: o.FlushRecords,
		sessions: newSessions(), routes: map[string]*operation{}, refused: map[string]refusals{}}
	a := &Plane{
		gateway:   gw,
		engine:    gin.New(),
		guard:     g,
		directory: &tenantAPI{gateway: gw},
		keys:      &adminAPI{gw, g},
		history:   &historyAPI{gateway: gw},
		fleet:     &workerAPI{gateway: gw},
		records:   &decisionAPI{gateway: gw, guard: g},
		route:     &routeAPI{gateway: gw},
		configs:   &configAPI{gw, time.Now()},
		login:     &loginAPI{gw, g},
		sampler:   &sampler{gateway: gw, history: telemetry.NewHistory()},
	}
	a.metrics = &metricsAPI{a.sampler}
	a.overview = &overviewAPI{gateway: gw, fleet: a.fleet, configs: a.configs, sampler: a.sampler}
	a.events = &streamAPI{decisionAPI: a.records, overview: a.overview}
	a.events.hub = &hub{recover: o.Control.Recoverer, encode: a.events.encode, wanted: map[string]int{}}
	e := a.engine
	e.RedirectTrailingSlash, e.HandleMethodNotAllowed = false, true
	e.Use(a.recoverRequest, a.guard.check)
	if o.Metrics != nil {
		e.Match([]string{http.MethodGet, http.MethodHead}, "/metrics", gin.WrapH(o.Metrics))
	}
	for path, h := range o.Probes {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, gin.WrapH(h))
	}
	a.api = a.newAPI(o.Version)
	for _, op := range a.table() {
		described := op.describe()
		a.operations = append(a.operations, described)
		a.guard.routes[ginPath(op.route)] = &op
		op.register(a.api, described)
		if described.Method == http.MethodGet { // HEAD is GET without its body, which net/http omits
			described.Method, described.Hidden = http.MethodHead, true
			a.guard.routes[described.Method+" "+ginPath(described.Path)] = &op
			op.register(a.api, described)
		}
	}
	servePage(e, web.Dist())
	e.NoRoute(func(c *gin.Context) {
		Problem(c.Writer, http.StatusNotFound,
			"There is no such path in the admin API. GET /admin/openapi.json lists the operations.")
	})
	e.NoMethod(func(c *gin.Context) {
		Problem(c.Writer, http.StatusMethodNotAllowed, "This method is not allowed here; allowed: "+
			c.Writer.Header().Get("Allow")+".")
	})
	return a
}

// Operations returns the operations of the API in their order. Parameters and answers are in the
// document of OpenAPI.
func (a *Plane) Operations() []huma.Operation { return a.operations }

// OpenAPI returns the description of the API.
func (a *Plane) OpenAPI() *huma.OpenAPI { return a.api.OpenAPI() }

// Handler returns the handler of the API.
func (a *Plane) Handler() http.Handler { return a.engine }

// Streams returns the number of open streams.
func (a *Plane) Streams() int { return int(a.records.streams.Load() + a.events.open.Load()) }

// Problem writes an error in the format of RFC 9457.
func Problem(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(huma.ErrorModel{Title: http.StatusText(status), Status: status, Detail: detail})
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(append(body, '\n')) // the client is gone
}

// recoverRequest turns a panic of a handler into status 500. If part of the answer was sent, it cuts
// the connection.
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
