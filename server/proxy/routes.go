package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"tierway/decisions"
	"tierway/openai"
	"tierway/tenants"
)

// route is one endpoint of the data plane. The table below is the whole of it:
// the router, the golden transcripts and the permission tests are made from it.
type route struct {
	Method  string
	Path    string // below the optional /v1 and class prefixes
	dialect openai.Dialect
	worker  string // the path that a worker is asked for; "" with by
	Kind    routeKind
	counts  bool // it answers with the length of a prompt
}

// routeKind is how a route's requests are served.
type routeKind uint8

const (
	Infer  routeKind = iota // parsed, routed by its model and relayed
	stored                  // goes to the worker that made the response in the path
	Beside                  // as infer where a pool serves the dialect, else as a path without a route
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

// Routes is the data plane's endpoints.
func Routes() []route {
	post := func(path string, d openai.Dialect) route {
		return route{Method: http.MethodPost, Path: path, dialect: d, worker: "/v1" + path}
	}
	about := func(method, path string) route {
		return route{Method: method, Path: path, dialect: openai.Responses, Kind: stored}
	}
	return []route{
		post("/chat/completions", openai.Chat),
		post("/completions", openai.Completions),
		post(routeResponses, openai.Responses),
		{Method: http.MethodPost, Path: routeInputTokens, dialect: openai.Responses, worker: "/v1" + routeInputTokens, Kind: Beside, counts: true},
		{Method: http.MethodPost, Path: routeCompact, dialect: openai.Responses, worker: "/v1" + routeCompact, Kind: Beside},
		about(http.MethodGet, routeResponse),
		about(http.MethodDelete, routeResponse),
		about(http.MethodPost, routeResponse+"/cancel"),
		about(http.MethodGet, routeResponse+"/input_items"),
		post("/messages", openai.Messages),
		{Method: http.MethodPost, Path: routeCountTokens, dialect: openai.Messages, worker: "/v1" + routeCountTokens, counts: true},
		post("/embeddings", openai.Embeddings),
		post("/rerank", openai.Rerank),
		post("/score", openai.Score),
		{Method: http.MethodPost, Path: "/tokenize", dialect: openai.Tokenize, worker: "/tokenize", counts: true}, // engines have it at their root
		post("/moderations", openai.Moderations),
		post("/audio/transcriptions", openai.Audio),
		post("/audio/translations", openai.Audio),
		post("/audio/speech", openai.Audio),
		post("/images/generations", openai.Images),
		post("/images/edits", openai.Images),
		post("/images/variations", openai.Images),
		{Method: http.MethodGet, Path: "/models", Kind: models},
		{Method: http.MethodGet, Path: "/models/*id", Kind: models},
	}
}

// prefix is a path prefix under which every route stands, with the class of
// priority that it asks for.
type prefix struct {
	Path  string
	class tenants.Class
	set   bool
}

func Prefixes() []prefix {
	return []prefix{
		{Path: "/v1"}, {Path: ""},
		{Path: "/background/v1", class: tenants.Background, set: true},
		{Path: "/batch/v1", class: tenants.Batch, set: true},
	}
}

// Handler is the data plane: gin's router over the table, with everything that is not
// in it in the error shape of the dialect that it looks like. own are handlers of GET and
// HEAD by their path.
func (px *Proxy) Handler(own map[string]http.Handler) http.Handler {
	e := newEngine()
	for _, p := range Prefixes() {
		for _, rt := range Routes() {
			e.Handle(rt.Method, p.Path+rt.Path, px.serve(rt, p))
		}
	}
	for path, h := range own {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, gin.WrapH(h))
	}
	e.NoRoute(func(c *gin.Context) { px.pass(c.Writer, c.Request, 0) })
	e.NoMethod(func(c *gin.Context) { px.pass(c.Writer, c.Request, http.StatusMethodNotAllowed) })
	return e
}

// newEngine is gin without redirects of near-miss paths, by which a POST would lose its
// body, and without recovery, which prints headers.
func newEngine() *gin.Engine {
	e := gin.New()
	e.RedirectTrailingSlash, e.HandleMethodNotAllowed = false, true
	return e
}

// serve is the one place where gin's context ends.
func (px *Proxy) serve(rt route, p prefix) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := px.begin(c.Writer, rt.inbound(c.Request, p, c.Param("id")))
		switch rt.Kind {
		case models:
			x.run(x.listModels)
		case stored:
			x.run(func() error { return serveStored(x) })
		case Beside:
			x.run(x.besideResponses)
		default:
			x.run(x.complete)
		}
	}
}

// inbound is a request of the route, under one of its prefixes.
func (rt *route) inbound(r *http.Request, p prefix, id string) inbound {
	in := inbound{r: r, pattern: rt.Path, kind: rt.Kind, counts: rt.counts, dialect: rt.dialect, shape: rt.dialect,
		workerPath: rt.worker, id: strings.TrimPrefix(id, "/"), prefixed: p.set, prefixClass: p.class}
	if rt.Kind == models && fromAnthropicSDK(r) {
		in.shape = openai.Messages
	}
	return in
}

// outside is a request that matches no route.
func outside(r *http.Request) inbound {
	return inbound{r: r, pattern: decisions.RouteOther, dialect: openai.Other, shape: errorShape(r)}
}

// pass serves a request that matches no route: through a pool whose paths cover it,
// else with an error.
func (px *Proxy) pass(w gin.ResponseWriter, r *http.Request, status int) {
	x := px.begin(w, outside(r))
	x.run(func() error { return passThrough(x, status) })
}

// isRoute reports whether a path without a slash at its end is that of a route.
func isRoute(urlPath string) bool {
	for _, p := range Prefixes() {
		below, ok := strings.CutPrefix(urlPath, p.Path)
		if ok && slices.ContainsFunc(Routes(), func(rt route) bool { return matchRoute(rt.Path, below) }) {
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
