package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tierway/config"
	"tierway/server/admin"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/server/learning"
	"tierway/server/proxy"
	"tierway/telemetry"
	"tierway/tierscore/report"
	"tierway/tierscore/training"
)

// planes are the handlers of a gateway's addresses: each plane with its middleware.
type planes struct {
	control *control.Control
	proxy   *proxy.Proxy
	metrics *telemetry.Metrics
	admin   *admin.Plane
}

// newPlanes builds the planes. s.control and s.proxy must be set.
func (s *Server) newPlanes(o Options) *planes {
	p := &planes{control: s.control, proxy: s.proxy, metrics: s.metrics}
	a := admin.Options{
		Control:   s.control,
		Decisions: s.decisions,
		Explain:   s.proxy.Explain,
		Draining:  s.proxy.Draining,
		NotReady:  func() []string { return p.readiness().reasons },
		Inflight:  s.proxy.Inflight,
		Probes:    p.probes(),
		Path:      o.Path,
		Addr:      s.Addr,
		Version:   o.Version,
		Log:       o.Log,
		Counts:    o.Metrics,
		Rand:      o.Rand,

		FlushRecords: s.proxy.FlushRecords,
		PurgeAnswers: s.proxy.PurgeCache,
		CacheMemory:  s.proxy.CacheMemory,
	}
	if s.learning != nil {
		a.TierReport = tierReport(s.control, s.learning.Reporter())
	}
	if f := o.Config; f.Metrics.Listen == "" {
		a.Metrics = p.checkHost(f.Admin.Listen, p.flushedMetrics())
	}
	p.admin = admin.New(a)
	return p
}

// tierReport returns the report of the labels that the gateway has written, of the first and the last tier.
func tierReport(c *control.Control, r *learning.Reporter) func(context.Context) (*report.Report, error) {
	return func(ctx context.Context) (*report.Report, error) {
		f := c.Snapshot().File
		if len(f.Tiers) < 2 {
			return nil, fmt.Errorf("tiers has %d entries, and labels compare two tiers: add a tier", len(f.Tiers))
		}
		return r.Report(ctx, training.Tiers{Small: f.Tiers[0].Name, Large: f.Tiers[len(f.Tiers)-1].Name}, f.Model())
	}
}

// addresses returns the addresses of a configuration, the data plane's first. Without any key that could
// be valid, the data plane is opened later: proxies such as nginx send a POST to another gateway if its
// connection is refused, but not if it is answered with 503. An address that the admin plane shares is
// opened at once.
func (p *planes) addresses(f *config.File) []address {
	all := []address{{plane: "data", listen: f.Listen, files: f.TLS, handler: p.dataHandler(),
		fast: f.FastHTTP1}}
	if f.SharedPlanes() {
		all[0].handler = sharePlanes(all[0].handler, p.adminHandler())
	} else {
		all[0].later = !p.control.HasCallers()
		all = append(all, address{plane: "admin", listen: f.Admin.Listen, files: f.Admin.TLS, handler: p.adminHandler()})
	}
	if f.Metrics.Listen != "" {
		all = append(all, address{plane: "metrics", listen: f.Metrics.Listen, handler: p.metricsHandler()})
	}
	return all
}

func (p *planes) dataHandler() http.Handler {
	tls := func(f *config.File) bool { return f.TLS.On() }
	return p.limitStalls(secured(p.strictTransport(p.cors(p.proxy.Handler(p.probes())), tls)))
}

func (p *planes) adminHandler() http.Handler {
	tls := func(f *config.File) bool { return f.Admin.TLS.On() || f.SharedPlanes() && f.TLS.On() }
	return p.limitStalls(p.limitWrites(secured(private(p.strictTransport(p.admin.Handler(), tls)))))
}

func (p *planes) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.checkHost(p.control.Snapshot().File.Metrics.Listen, p.flushedMetrics()))
	return p.limitStalls(p.limitWrites(secured(private(mux))))
}

// probes are the health endpoints for balancers and orchestrators, by path.
func (p *planes) probes() map[string]http.Handler {
	return map[string]http.Handler{
		"/livez":  p.limitWrites(http.HandlerFunc(serveLive)),
		"/readyz": p.limitWrites(p.checkHostIfKeyless(http.HandlerFunc(p.serveReady))),
	}
}

// sharePlanes serves both planes on one address.
func sharePlanes(data, admin http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" || strings.HasPrefix(r.URL.Path, "/admin/") || isPage(r.URL.Path) {
			admin.ServeHTTP(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}

// isPage reports whether a path belongs to the admin UI.
func isPage(path string) bool {
	return slices.ContainsFunc(admin.PagePaths(), func(p string) bool {
		return path == p || p != "/" && strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	})
}

// limitStalls is the first handler of every plane. It limits how long a stalled client can occupy a
// request after the handler has finished. On HTTP/1, net/http reads the rest of an unread body before
// it reuses the connection. An HTTP/2 stream ends when the client has read the last byte.
// A handler that reads a body sets read deadlines of its own, and removes them at the body's end.
func (p *planes) limitStalls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 && r.Body != nil && r.Body != http.NoBody {
			if c, ok := w.(interface{ SetReadDeadline(time.Time) error }); ok { // a ResponseController allocates
				c.SetReadDeadline(time.Now().Add(intake.UnreadGrace)) // no body on a closed connection
			}
		}
		next.ServeHTTP(w, r)
		if r.ProtoMajor >= 2 {
			p.setWriteDeadline(w)
		}
	})
}

// setWriteDeadline gives the client timeouts.client_stall to read the whole answer. It is for handlers of
// short answers, which set no write deadlines themselves.
func (p *planes) setWriteDeadline(w http.ResponseWriter) {
	stall := p.control.Snapshot().File.Timeouts.ClientStall
	// a closed connection needs no deadline
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall))
}

// Values of headers that all answers share.
var noSniff, noFrame, noReferrer = []string{"nosniff"}, []string{"DENY"}, []string{"no-referrer"}

// secured sets the security headers of all answers. A passed path may have a page with scripts, so the data plane sets
// no Content-Security-Policy.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"], h["X-Frame-Options"], h["Referrer-Policy"] = noSniff, noFrame, noReferrer
		next.ServeHTTP(w, r)
	})
}

// private sets the further security headers of all answers of the admin plane and of the metrics. Pages have a wider
// policy of their own.
func private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store") // some answers hold a key
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// strictTransport makes browsers use TLS for a year, if the plane has it.
func (p *planes) strictTransport(next http.Handler, on func(*config.File) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if on(p.control.Snapshot().File) {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// limitWrites calls setWriteDeadline before the handler.
func (p *planes) limitWrites(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.setWriteDeadline(w)
		next.ServeHTTP(w, r)
	})
}

// flushedMetrics are the metrics with all requests that have ended before.
func (p *planes) flushedMetrics() http.Handler {
	metrics := p.metrics.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.proxy.FlushRecords()
		metrics.ServeHTTP(w, r)
	})
}

// checkHost rejects a request with a foreign Host. It protects endpoints that need no key against
// DNS rebinding. Without configured hosts it only protects loopback addresses, because the names of
// other addresses are unknown.
func (p *planes) checkHost(listen string, next http.Handler) http.Handler {
	loopback := config.Loopback(listen)
	return rejectForeignHost(next, func() (hosts []string, on bool) {
		hosts = p.control.Snapshot().File.Hosts
		return hosts, loopback || len(hosts) > 0
	})
}

// checkHostIfKeyless rejects a request with a foreign Host while auth.required is off.
func (p *planes) checkHostIfKeyless(next http.Handler) http.Handler {
	return rejectForeignHost(next, func() (hosts []string, on bool) {
		f := p.control.Snapshot().File
		return f.Hosts, !f.Auth.Required
	})
}

// rejectForeignHost rejects a request with 421 if check reports on and the Host is not one of hosts.
func rejectForeignHost(next http.Handler, check func() (hosts []string, on bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hosts, on := check(); on && intake.IsForeign(r.Host, hosts) {
			admin.Problem(w, http.StatusMisdirectedRequest, intake.ForeignHost(r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// exposedHeaders are the answer headers that a browser's script may read.
const exposedHeaders = "X-Request-ID, Request-ID, X-Model-Tier, X-Tier-Reason, X-Routed-To, X-Route-Reason, X-Max-Tokens-Lowered, " +
	"X-Tierway-Hooks, " +
	"X-Queue-Ms, " +
	"X-Request-Duration, Retry-After, Retry-After-Ms, X-Should-Retry, Openai-Processing-Ms, " +
	"X-Ratelimit-Limit-Requests, X-Ratelimit-Remaining-Requests, X-Ratelimit-Reset-Requests, " +
	"X-Ratelimit-Limit-Tokens, X-Ratelimit-Remaining-Tokens, X-Ratelimit-Reset-Tokens"

// cors lets pages of the configured origins use the data plane. Without origins it adds no headers.
// Cookies are never allowed, because keys are sent in headers.
func (p *planes) cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := p.control.Snapshot().File
		c := f.CORS
		if len(c.Origins) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		allowed := origin != "" && (slices.Contains(c.Origins, "*") || slices.Contains(c.Origins, origin))
		if allowed {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", exposedHeaders)
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			if allowed {
				setPreflightHeaders(h, r, c.MaxAge)
			}
			// a closed connection needs no deadline
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(f.Timeouts.ClientStall))
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func setPreflightHeaders(h http.Header, r *http.Request, maxAge time.Duration) {
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if requested := r.Header.Get("Access-Control-Request-Headers"); requested != "" {
		h.Set("Access-Control-Allow-Headers", requested)
	}
	if maxAge > 0 {
		h.Set("Access-Control-Max-Age", strconv.Itoa(int(maxAge/time.Second)))
	}
}
