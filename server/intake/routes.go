package intake

import (
	"net/http"
	"path"
	"slices"
	"strings"

	"tierway/decisions"
	"tierway/openai"
	"tierway/server/control"
	"tierway/tenants"
)

// Route is one endpoint of the data plane. Routes returns all of them.
type Route struct {
	Method  string
	Path    string // below the optional /v1 and class prefixes
	Dialect openai.Dialect
	Worker  string // path at the worker; "" for a route about a stored response
	Kind    Kind
	counts  bool // the route answers with the length of a prompt
	forms   bool // the route also accepts forms with files
}

// Kind selects how the requests of a route are served.
type Kind uint8

// The kinds of routes.
const (
	Infer    Kind = iota // parsed, routed by the model, and relayed
	Stored               // forwarded to the worker that has the response in the path
	Optional             // Infer if a pool serves the dialect; otherwise the path has no route
	Models               // answered from the catalog, without a worker
	Feedback             // a label of an earlier answer, without a worker
)

const (
	routeCountTokens = decisions.RouteCountTokens
	routeInputTokens = decisions.RouteInputTokens
	routeCompact     = "/responses/compact" // returns a shorter conversation, which is not stored
	routeResponses   = "/responses"
	routeResponse    = "/responses/:id"
)

// Routes returns the endpoints of the data plane.
func Routes() []Route {
	post := func(path string, d openai.Dialect) Route {
		return Route{Method: http.MethodPost, Path: path, Dialect: d, Worker: "/v1" + path}
	}
	form := func(path string, d openai.Dialect) Route {
		rt := post(path, d)
		rt.forms = true
		return rt
	}
	about := func(method, path string) Route {
		return Route{Method: method, Path: path, Dialect: openai.Responses, Kind: Stored}
	}
	return []Route{
		post("/chat/completions", openai.Chat),
		post("/completions", openai.Completions),
		post(routeResponses, openai.Responses),
		{Method: http.MethodPost, Path: routeInputTokens, Dialect: openai.Responses, Worker: "/v1" + routeInputTokens,
			Kind: Optional, counts: true},
		{Method: http.MethodPost, Path: routeCompact, Dialect: openai.Responses, Worker: "/v1" + routeCompact,
			Kind: Optional},
		about(http.MethodGet, routeResponse),
		about(http.MethodDelete, routeResponse),
		about(http.MethodPost, routeResponse+"/cancel"),
		about(http.MethodGet, routeResponse+"/input_items"),
		post("/messages", openai.Messages),
		{Method: http.MethodPost, Path: routeCountTokens, Dialect: openai.Messages, Worker: "/v1" + routeCountTokens,
			counts: true},
		post("/embeddings", openai.Embeddings),
		post("/rerank", openai.Rerank),
		// Cohere's path; every engine that reranks serves the first one
		{Method: http.MethodPost, Path: "/v2/rerank", Dialect: openai.Rerank, Worker: "/v1/rerank"},
		post("/score", openai.Score),
		// engines serve these paths without /v1
		{Method: http.MethodPost, Path: "/pooling", Dialect: openai.Pooling, Worker: "/pooling", Kind: Optional},
		{Method: http.MethodPost, Path: "/classify", Dialect: openai.Pooling, Worker: "/classify", Kind: Optional},
		{Method: http.MethodPost, Path: "/tokenize", Dialect: openai.Tokenize, Worker: "/tokenize", counts: true},
		{Method: http.MethodPost, Path: "/detokenize", Dialect: openai.Tokenize, Worker: "/detokenize", counts: true},
		post("/moderations", openai.Moderations),
		form("/audio/transcriptions", openai.Audio),
		form("/audio/translations", openai.Audio),
		post("/audio/speech", openai.Audio),
		post("/images/generations", openai.Images),
		form("/images/edits", openai.Images),
		form("/images/variations", openai.Images),
		{Method: http.MethodPost, Path: "/feedback", Kind: Feedback},
		{Method: http.MethodGet, Path: "/models", Kind: Models},
		{Method: http.MethodGet, Path: "/models/*id", Kind: Models},
	}
}

// Prefix is a path prefix under which every route is served, with the priority class that it selects.
type Prefix struct {
	Path  string
	class tenants.Class
	set   bool
}

// Prefixes returns the path prefixes under which the routes are served.
func Prefixes() []Prefix {
	return []Prefix{
		{Path: "/v1"}, {Path: ""},
		{Path: "/background/v1", class: tenants.Background, set: true},
		{Path: "/batch/v1", class: tenants.Batch, set: true},
		// of clients that append /v1 to a base URL that has it
		{Path: "/v1/v1"},
		{Path: "/background/v1/v1", class: tenants.Background, set: true},
		{Path: "/batch/v1/v1", class: tenants.Batch, set: true},
		{Path: "/openai/v1"}, {Path: "/openai"}, // of Azure's clients
	}
}

// DeploymentPrefix begins the paths in which Azure's clients name the model.
const DeploymentPrefix = "/openai/deployments/"

// DeploymentInbound returns a request of Azure's clients that names its model in the path. The name may contain
// slashes. ok is false if no route follows it.
func DeploymentInbound(r *http.Request) (in Inbound, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, DeploymentPrefix)
	if !ok || r.Method != http.MethodPost {
		return in, false
	}
	var best Route
	for _, rt := range Routes() {
		if rt.Method == http.MethodPost && rt.Kind == Infer && len(rt.Path) > len(best.Path) &&
			strings.HasSuffix(rest, rt.Path) {
			best = rt
		}
	}
	in = best.Inbound(r, Prefix{}, "")
	in.Deployment = strings.TrimSuffix(rest, best.Path)
	return in, best.Path != "" && in.Deployment != ""
}

// Inbound returns a request that matches the route under the prefix p. id is the :id of the path.
func (rt *Route) Inbound(r *http.Request, p Prefix, id string) Inbound {
	in := Inbound{HTTP: r, Pattern: rt.Path, Kind: rt.Kind, counts: rt.counts, Dialect: rt.Dialect, Shape: rt.Dialect,
		WorkerPath: rt.Worker, PathID: strings.TrimPrefix(id, "/"), prefixed: p.set, prefixClass: p.class,
		takesForms: rt.forms}
	if rt.Kind == Models && fromAnthropicSDK(r) {
		in.Shape = openai.Messages
	}
	return in
}

// Unrouted returns a request that matches no route.
func Unrouted(r *http.Request) Inbound {
	return Inbound{HTTP: r, Pattern: decisions.RouteOther, Dialect: openai.Other, Shape: errorShape(r)}
}

// FindRoute returns the Inbound that the router would make for a request. If the request matches no
// route, allowed contains the methods for which its path has one.
func FindRoute(r *http.Request) (in Inbound, allowed []string) {
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		return Unrouted(r), []string{http.MethodGet, http.MethodHead}
	}
	if in, ok := DeploymentInbound(r); ok {
		return in, nil
	}
	for _, p := range Prefixes() {
		below, ok := strings.CutPrefix(r.URL.Path, p.Path)
		if !ok {
			continue
		}
		for _, rt := range Routes() {
			if !matchRoute(rt.Path, below) {
				continue
			}
			if rt.Method == r.Method || rt.Method == http.MethodGet && r.Method == http.MethodHead {
				return rt.Inbound(r, p, path.Base(below)), nil
			}
			if allowed = append(allowed, rt.Method); rt.Method == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	return Unrouted(r), allowed
}

// isRoute reports whether a path, without a trailing slash, has a route.
func isRoute(urlPath string) bool {
	for _, p := range Prefixes() {
		below, ok := strings.CutPrefix(urlPath, p.Path)
		if ok && slices.ContainsFunc(Routes(), func(rt Route) bool { return matchRoute(rt.Path, below) }) {
			return true
		}
	}
	return false
}

// matchRoute reports whether a path matches a pattern in the router's notation: :name is one segment,
// *name is the rest.
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

// cutSegment splits a path after its first segment. The path and both parts begin with a slash.
func cutSegment(urlPath string) (segment, rest string) {
	if i := strings.IndexByte(urlPath[1:], '/'); i >= 0 {
		return urlPath[:i+1], urlPath[i+1:]
	}
	return urlPath, ""
}

// errorShape guesses the dialect in which the client of a request without a route expects errors. It
// does not affect the answer.
func errorShape(r *http.Request) openai.Dialect {
	if strings.Contains(r.URL.Path, "/messages") || fromAnthropicSDK(r) {
		return openai.Messages
	}
	return openai.Other
}

// fromAnthropicSDK reports whether a request has the header that Anthropic's API requires.
func fromAnthropicSDK(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// servedPaths returns the endpoints of a pool for an error message.
func servedPaths(p *control.Pool) string {
	var out []string
	for _, rt := range Routes() {
		if rt.Kind == Infer && p.Served[rt.Dialect] {
			out = append(out, rt.Worker)
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
