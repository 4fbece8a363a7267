package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"tierway/openai"
	"tierway/tenants"
)

// route is one endpoint of the data plane. The table below is the whole of it:
// the router, the golden transcripts and the permission tests are made from it.
type route struct {
	method  string
	path    string // below the optional /v1 and class prefixes
	dialect openai.Dialect
	worker  string // the path that a worker is asked for; "" with by
	kind    routeKind
	counts  bool // it answers with the length of a prompt
}

// routeKind is how a route's requests are served.
type routeKind uint8

const (
	infer  routeKind = iota // parsed, routed by its model and relayed
	stored                  // goes to the worker that made the response in the path
	beside                  // as infer where a pool serves the dialect, else as a path without a route
	models                  // answered from the catalogue
)

const (
	// routeCountTokens and routeInputTokens answer with the length of a prompt.
	routeCountTokens = "/messages/count_tokens"
	routeInputTokens = "/responses/input_tokens"
	routeCompact     = "/responses/compact" // answers with a shorter conversation, which is not stored
	routeResponses   = "/responses"
	routeResponse    = "/responses/:id"
)

// routes is the data plane's endpoints.
func routes() []route {
	post := func(path string, d openai.Dialect) route {
		return route{method: http.MethodPost, path: path, dialect: d, worker: "/v1" + path}
	}
	about := func(method, path string) route {
		return route{method: method, path: path, dialect: openai.Responses, kind: stored}
	}
	return []route{
		post("/chat/completions", openai.Chat),
		post("/completions", openai.Completions),
		post(routeResponses, openai.Responses),
		{method: http.MethodPost, path: routeInputTokens, dialect: openai.Responses, worker: "/v1" + routeInputTokens, kind: beside, counts: true},
		{method: http.MethodPost, path: routeCompact, dialect: openai.Responses, worker: "/v1" + routeCompact, kind: beside},
		about(http.MethodGet, routeResponse),
		about(http.MethodDelete, routeResponse),
		about(http.MethodPost, routeResponse+"/cancel"),
		about(http.MethodGet, routeResponse+"/input_items"),
		post("/messages", openai.Messages),
		{method: http.MethodPost, path: routeCountTokens, dialect: openai.Messages, worker: "/v1" + routeCountTokens, counts: true},
		post("/embeddings", openai.Embeddings),
		post("/rerank", openai.Rerank),
		post("/score", openai.Score),
		{method: http.MethodPost, path: "/tokenize", dialect: openai.Tokenize, worker: "/tokenize", counts: true}, // engines have it at their root
		post("/moderations", openai.Moderations),
		post("/audio/transcriptions", openai.Audio),
		post("/audio/translations", openai.Audio),
		post("/audio/speech", openai.Audio),
		post("/images/generations", openai.Images),
		post("/images/edits", openai.Images),
		post("/images/variations", openai.Images),
		{method: http.MethodGet, path: "/models", kind: models},
		{method: http.MethodGet, path: "/models/*id", kind: models},
	}
}

// prefix is a path prefix under which every route stands, with the class of
// priority that it asks for.
type prefix struct {
	path  string
	class tenants.Class
	set   bool
}

func prefixes() []prefix {
	return []prefix{
		{path: "/v1"}, {path: ""},
		{path: "/background/v1", class: tenants.Background, set: true},
		{path: "/batch/v1", class: tenants.Batch, set: true},
	}
}

// dataHandler is the data plane: gin's router over the table, with everything
// that is not in it in the error shape of the dialect that it looks like.
func (s *Server) dataHandler() http.Handler {
	e := newEngine()
	for _, p := range prefixes() {
		for _, rt := range routes() {
			e.Handle(rt.method, p.path+rt.path, s.serve(rt, p))
		}
	}
	s.probes(e)
	e.NoRoute(func(c *gin.Context) { s.pass(c.Writer, c.Request, 0) })
	e.NoMethod(func(c *gin.Context) { s.pass(c.Writer, c.Request, http.StatusMethodNotAllowed) })
	return s.edge(s.cors(e))
}

// probes are the endpoints of balancers and orchestrators, some of which ask by
// HEAD.
func (s *Server) probes(e *gin.Engine) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		e.Handle(method, "/livez", s.bounded, func(c *gin.Context) { live(c.Writer) })
		e.Handle(method, "/readyz", s.bounded, s.namedKeyless, func(c *gin.Context) { s.ready(c.Writer) })
	}
}

// newEngine is gin without what a gateway must not have: no redirects of
// near-miss paths (a POST would lose its body), no trusted proxies, no
// recovery that prints headers.
func newEngine() *gin.Engine {
	e := gin.New()
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	if err := e.SetTrustedProxies(nil); err != nil {
		panic(err) // nil is always accepted
	}
	return e
}

// serve is the one place where gin's context ends.
func (s *Server) serve(rt route, p prefix) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := s.begin(c.Writer, rt.inbound(c.Request, p, c.Param("id")))
		switch rt.kind {
		case models:
			x.run(x.listModels)
		case stored:
			x.run(x.storedAnswer)
		case beside:
			x.run(x.besideResponses)
		default:
			x.run(x.complete)
		}
	}
}

// inbound is a request of the route, under one of its prefixes.
func (rt *route) inbound(r *http.Request, p prefix, id string) inbound {
	in := inbound{r: r, pattern: rt.path, kind: rt.kind, counts: rt.counts, dialect: rt.dialect, shape: rt.dialect,
		workerPath: rt.worker, id: strings.TrimPrefix(id, "/"), prefixed: p.set, prefixClass: p.class}
	if rt.kind == models && fromAnthropicSDK(r) {
		in.shape = openai.Messages
	}
	return in
}

// outside is a request that matches no route.
func outside(r *http.Request) inbound {
	return inbound{r: r, pattern: routeOther, dialect: openai.Other, shape: errorShape(r)}
}

// pass serves a request that matches no route: through a pool whose paths cover it,
// else with an error.
func (s *Server) pass(w gin.ResponseWriter, r *http.Request, status int) {
	x := s.begin(w, outside(r))
	x.run(func() error { return x.passThrough(status) })
}

// isRoute reports whether a path without a slash at its end is that of a route.
func isRoute(urlPath string) bool {
	for _, p := range prefixes() {
		below, ok := strings.CutPrefix(urlPath, p.path)
		if ok && slices.ContainsFunc(routes(), func(rt route) bool { return matchRoute(rt.path, below) }) {
			return true
		}
	}
	return false
}

// matchRoute reports whether a route's path, in the router's notation, covers a path:
// :name is one segment, *name is the rest.
func matchRoute(pattern, urlPath string) bool {
	for pattern != "" && urlPath != "" {
		var want, got string
		want, pattern = cutSegment(pattern)
		got, urlPath = cutSegment(urlPath)
		switch {
		case strings.HasPrefix(want, "/*"):
			return true
		case !strings.HasPrefix(want, "/:") && want != got:
			return false
		}
	}
	return pattern == urlPath
}

// cutSegment splits a path behind its first segment, which begins with a slash.
func cutSegment(urlPath string) (segment, rest string) {
	if i := strings.IndexByte(urlPath[1:], '/'); i >= 0 {
		return urlPath[:i+1], urlPath[i+1:]
	}
	return urlPath, ""
}

// errorShape guesses from a request that matches no route in which dialect's form its
// client reads errors. It says nothing about the answer.
func errorShape(r *http.Request) openai.Dialect {
	if strings.Contains(r.URL.Path, "/messages") || fromAnthropicSDK(r) {
		return openai.Messages
	}
	return openai.Other
}

// fromAnthropicSDK reports whether a request has the header that Anthropic's API
// requires.
func fromAnthropicSDK(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }
