package proxy

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"tierway/server/intake"
)

// Handler returns the router of the data plane. A request that matches no route gets an error in the
// shape of the dialect that its path and headers suggest. own are further handlers of GET and HEAD by
// path.
func (px *Proxy) Handler(own map[string]http.Handler) http.Handler {
	e := newEngine()
	for _, p := range intake.Prefixes() {
		for _, rt := range intake.Routes() {
			e.Match(methods(rt.Method), p.Path+rt.Path, px.serve(rt, p))
		}
	}
	e.POST(intake.DeploymentPrefix+"*rest", px.serveDeployment)
	for path, h := range own {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, gin.WrapH(h))
	}
	e.NoRoute(func(c *gin.Context) { px.pass(c.Writer, c.Request, 0) })
	e.NoMethod(func(c *gin.Context) { px.pass(c.Writer, c.Request, http.StatusMethodNotAllowed) })
	return e
}

// methods returns the methods that a route serves: with GET also HEAD.
func methods(method string) []string {
	if method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{method}
}

// newEngine returns gin without redirects of similar paths, which would lose the body of a POST, and
// without its recovery, which prints headers.
func newEngine() *gin.Engine {
	e := gin.New()
	e.RedirectTrailingSlash, e.HandleMethodNotAllowed = false, true
	return e
}

// serve returns the handler of a route. No other function uses gin's context.
func (px *Proxy) serve(rt intake.Route, p intake.Prefix) gin.HandlerFunc {
	return func(c *gin.Context) {
		x := px.begin(c.Writer, rt.Inbound(c.Request, p, c.Param("id")))
		switch rt.Kind {
		case intake.Models:
			x.run(x.listModels)
		case intake.Feedback:
			x.run(x.acceptFeedback)
		case intake.Stored:
			x.run(x.serveStored)
		case intake.Optional:
			x.run(x.completeOptional)
		default:
			x.run(x.complete)
		}
	}
}

// serveDeployment serves a request that names its model in the path, as Azure's clients do.
func (px *Proxy) serveDeployment(c *gin.Context) {
	in, ok := intake.DeploymentInbound(c.Request)
	if !ok {
		px.pass(c.Writer, c.Request, 0)
		return
	}
	x := px.begin(c.Writer, in)
	x.run(x.completeOptional)
}

// pass serves a request without a route: through a pool that covers its path, or with an error.
func (px *Proxy) pass(w gin.ResponseWriter, r *http.Request, status int) {
	x := px.begin(w, intake.Unrouted(r))
	x.run(func() error { return x.passThrough(status) })
}
