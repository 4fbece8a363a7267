package server

import (
	"net/http"
	"strings"
	"time"

	"tierway/config"
	"tierway/server/admin"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/server/proxy"
	"tierway/telemetry"
)

// planes are the handlers of a gateway's addresses: each plane with what stands before it.
type planes struct {
	control *control.Control
	proxy   *proxy.Proxy
	metrics *telemetry.Metrics
	admin   *admin.Plane
}

// newPlanes makes the planes of a server whose proxy is made.
func (s *Server) newPlanes(o Options) *planes {
	p := &planes{control: s.control, proxy: s.proxy, metrics: s.metrics}
	a := admin.Options{
		Control:   s.control,
		Decisions: s.decisions,
		Explain:   s.proxy.Explain,
		Draining:  s.proxy.Draining,
		Inflight:  s.proxy.Inflight,
		Probes:    p.probes(),
		Path:      o.Path,
		Version:   o.Version,
		Log:       o.Log,
		Counts:    o.Metrics,
		Rand:      o.Rand,
	}
	if f := o.Config; f.Metrics.Listen == "" {
		a.Metrics = p.named(f.Admin.Listen, s.metrics.Handler())
	}
	p.admin = admin.New(a)
	return p
}

// addresses returns the addresses of a configuration, the data plane's first.
func (p *planes) addresses(f *config.File) []address {
	all := []address{{"data", f.Listen, f.TLS, p.dataHandler()}}
	if f.SharedPlanes() {
		all[0].handler = sharePlanes(all[0].handler, p.adminHandler())
	} else {
		all = append(all, address{"admin", f.Admin.Listen, f.Admin.TLS, p.adminHandler()})
	}
	if f.Metrics.Listen != "" {
		all = append(all, address{"metrics", f.Metrics.Listen, config.TLS{}, p.metricsHandler()})
	}
	return all
}

// dataHandler is the data plane with what stands before it.
func (p *planes) dataHandler() http.Handler { return p.edge(p.cors(p.proxy.Handler(p.probes()))) }

// adminHandler is the admin plane with what stands before it.
func (p *planes) adminHandler() http.Handler { return p.edge(p.bounded(secured(p.admin.Handler()))) }

// metricsHandler serves the metrics on an address of their own.
func (p *planes) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.named(p.control.Snapshot().File.Metrics.Listen, p.metrics.Handler()))
	return p.edge(p.bounded(secured(mux)))
}

// probes are the endpoints of balancers and orchestrators by their path.
func (p *planes) probes() map[string]http.Handler {
	return map[string]http.Handler{
		"/livez":  p.bounded(http.HandlerFunc(live)),
		"/readyz": p.bounded(p.namedKeyless(http.HandlerFunc(p.ready))),
	}
}

// sharePlanes serves both planes on one address.
func sharePlanes(data, admin http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" || strings.HasPrefix(r.URL.Path, "/admin/") {
			admin.ServeHTTP(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}

// edge is the first handler of every plane. It bounds how long a client can hold a
// request that no longer needs it: net/http reads an unread body before it keeps a
// connection of HTTP/1, and a stream of HTTP/2 ends with the last byte that its client
// takes. A handler that reads a body sets read deadlines of its own, and removes them at
// the body's end.
func (p *planes) edge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 && r.Body != nil && r.Body != http.NoBody {
			if c, ok := w.(interface{ SetReadDeadline(time.Time) error }); ok { // a ResponseController allocates
				c.SetReadDeadline(time.Now().Add(intake.UnreadGrace)) //nolint:errcheck // a dead connection has no rest
			}
		}
		next.ServeHTTP(w, r)
		if r.ProtoMajor >= 2 {
			p.boundAnswer(w)
		}
	})
}

// boundAnswer bounds how long the client may take for an answer that is written at
// once. It is for answers that set no write deadlines of their own.
func (p *planes) boundAnswer(w http.ResponseWriter) {
	stall := p.control.Snapshot().File.Timeouts.ClientStall
	//nolint:errcheck // a dead connection takes nothing
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall))
}

// secured sets the headers of all answers of the admin plane and of the metrics.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store") // some answers hold a key
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// bounded is boundAnswer before a handler.
func (p *planes) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.boundAnswer(w)
		next.ServeHTTP(w, r)
	})
}

// named refuses a request to a foreign name, for what needs no key on an address.
// Without hosts, the names of an address that is not loopback are not known.
func (p *planes) named(listen string, next http.Handler) http.Handler {
	loopback := config.Loopback(listen)
	return refuseForeign(next, func() (hosts []string, on bool) {
		hosts = p.control.Snapshot().File.Hosts
		return hosts, loopback || len(hosts) > 0
	})
}

// namedKeyless refuses a request to a foreign name while no keys are required.
func (p *planes) namedKeyless(next http.Handler) http.Handler {
	return refuseForeign(next, func() (hosts []string, on bool) {
		f := p.control.Snapshot().File
		return f.Hosts, !f.Auth.Required
	})
}

// refuseForeign refuses a request to a name that is not among hosts while that is on.
func refuseForeign(next http.Handler, check func() (hosts []string, on bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hosts, on := check(); on && intake.IsForeign(r.Host, hosts) {
			admin.Problem(w, http.StatusMisdirectedRequest, intake.ForeignHost(r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}
