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

// Route is one endpoint of the data plane. Routes returns all of them; the router, the golden
// transcripts and the permission tests are made from that table.
type Route struct {
	Method  string
	Path    string // below the optional /v1 and class prefixes
	Dialect openai.Dialect
	Worker  string // path at the worker; "" for a route about a stored response
	Kind    Kind
	counts  bool // the route answers with the length of a prompt
}

// Kind is how a route's requests are served.
type Kind uint8

// The kinds.
const (
	Infer  Kind = iota // parsed, routed by its model and relayed
	Stored             // goes to the worker that made the response in the path
	Beside             // as infer where a pool serves the dialect, else as a path without a route
	Models             // answered from the catalogue
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
func Routes() []Route {
	post := func(path string, d openai.Dialect) Route {
		return Route{Method: http.MethodPost, Path: path, Dialect: d, Worker: "/v1" + path}
	}
	about := func(method, path string) Route {
		return Route{Method: method, Path: path, Dialect: openai.Responses, Kind: Stored}
	}
	return []Route{
		post("/chat/completions", openai.Chat),
		post("/completions", openai.Completions),
		post(routeResponses, openai.Responses),
		{Method: http.MethodPost, Path: routeInputTokens, Dialect: openai.Responses, Worker: "/v1" + routeInputTokens,
			Kind: Beside, counts: true},
		{Method: http.MethodPost, Path: routeCompact, Dialect: openai.Responses, Worker: "/v1" + routeCompact, Kind: Beside},
		about(http.MethodGet, routeResponse),
		about(http.MethodDelete, routeResponse),
		about(http.MethodPost, routeResponse+"/cancel"),
		about(http.MethodGet, routeResponse+"/input_items"),
		post("/messages", openai.Messages),
		{Method: http.MethodPost, Path: routeCountTokens, Dialect: openai.Messages, Worker: "/v1" + routeCountTokens,
			counts: true},
		post("/embeddings", openai.Embeddings),
		post("/rerank", openai.Rerank),
		post("/score", openai.Score),
		// engines have it at their root
		{Method: http.MethodPost, Path: "/tokenize", Dialect: openai.Tokenize, Worker: "/tokenize", counts: true},
		post("/moderations", openai.Moderations),
		post("/audio/transcriptions", openai.Audio),
		post("/audio/translations", openai.Audio),
		post("/audio/speech", openai.Audio),
		post("/images/generations", openai.Images),
		post("/images/edits", openai.Images),
		post("/images/variations", openai.Images),
		{Method: http.MethodGet, Path: "/models", Kind: Models},
		{Method: http.MethodGet, Path: "/models/*id", Kind: Models},
	}
}

// Prefix is a path prefix under which every route stands, with the class of
// priority that it asks for.
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
	}
}

// Inbound is a request of the route, under one of its prefixes.
func (rt *Route) Inbound(r *http.Request, p Prefix, id string) Inbound {
	in := Inbound{HTTP: r, Pattern: rt.Path, Kind: rt.Kind, counts: rt.counts, Dialect: rt.Dialect, Shape: rt.Dialect,
		WorkerPath: rt.Worker, PathID: strings.TrimPrefix(id, "/"), prefixed: p.set, prefixClass: p.class}
	if rt.Kind == Models && fromAnthropicSDK(r) {
		in.Shape = openai.Messages
	}
	return in
}

// Outside is a request that matches no route.
func Outside(r *http.Request) Inbound {
	return Inbound{HTTP: r, Pattern: decisions.RouteOther, Dialect: openai.Other, Shape: errorShape(r)}
}

// Find returns a request as the router would find it. For a request that matches no
// route, allowed are the methods for which its path has one.
func Find(r *http.Request) (in Inbound, allowed []string) {
	if r.URL.Path == "/livez" || r.URL.Path == "/readyz" {
		return Outside(r), []string{http.MethodGet, http.MethodHead}
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
			if rt.Method == r.Method {
				return rt.Inbound(r, p, path.Base(below)), nil
			}
			allowed = append(allowed, rt.Method)
		}
	}
	return Outside(r), allowed
}

// isRoute reports whether a path without a slash at its end is that of a route.
func isRoute(urlPath string) bool {
	for _, p := range Prefixes() {
		below, ok := strings.CutPrefix(urlPath, p.Path)
		if ok && slices.ContainsFunc(Routes(), func(rt Route) bool { return matchRoute(rt.Path, below) }) {
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

// errorShape guesses the dialect in which the client of a request without a route expects errors. It
// does not affect the answer.
func errorShape(r *http.Request) openai.Dialect {
	if strings.Contains(r.URL.Path, "/messages") || fromAnthropicSDK(r) {
		return openai.Messages
	}
	return openai.Other
}

// fromAnthropicSDK reports whether a request has the header that Anthropic's API
// requires.
func fromAnthropicSDK(r *http.Request) bool { return r.Header.Get("Anthropic-Version") != "" }

// servedPaths names the endpoints of a pool for a message.
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
