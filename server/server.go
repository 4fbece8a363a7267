// Package server connects the parts of a gateway and serves them: listeners, TLS, what
// stands before every plane, and the drain.
package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/server/admin"
	"tierway/server/control"
	"tierway/server/proxy"
	"tierway/telemetry"
	"tierway/tenants"
)

// Options is what a Server is made from. Config, Log, Metrics and Rand are
// required.
type Options struct {
	Config *config.File
	// Source reads the configuration again, for a reload; nil where there is none
	// to read.
	Source func() (*config.File, error)
	// Announce is given the one-time secret that makes the first admin, where
	// there is none yet; nil: no secret is made.
	Announce func(secret string, until time.Time)
	Path     string // of the configuration's file, for operators; may be empty
	Version  string // of the program, for operators; may be empty
	// Withdraw is called when that secret is void: it was used, or is over.
	Withdraw func()
	// Offline opens neither database nor Redis: for decisions without serving.
	Offline bool
	Log     *slog.Logger
	// Access gets one JSON line for each request, in one Write that must not block, as
	// a spool.Writer's does not. Nil: no line is written.
	Access  io.Writer
	Metrics *telemetry.Metrics
	Rand    func() uint64 // uniform; safe for concurrent use
}

// Server is a gateway: its listeners before the data plane and the admin plane.
type Server struct {
	log     *slog.Logger
	metrics *telemetry.Metrics
	recover *control.Recoverer
	control *control.Control
	proxy   *proxy.Proxy
	name    string // of this process among gateways
	admin   *admin.Plane

	decisions    *decisions.Log
	decisionFile *decisions.File   // nil without
	traces       *telemetry.Traces // nil without

	hearing   sync.Mutex
	listened  func() // what waits for the addresses; guarded by hearing
	listeners []listener
	cut       context.CancelCauseFunc // ends the requests of the listeners
}

// listener is one address with what answers there.
type listener struct {
	name string
	net.Listener
	server *http.Server
}

// serveOn serves a listener until its server is shut down.
func (s *Server) serveOn(l listener) error {
	if secure := l.server.TLSConfig; secure != nil {
		return l.server.Serve(newTLSListener(l.Listener, secure, s.recover.Run))
	}
	return l.server.Serve(plainListener{l.Listener})
}

// New builds the server for a checked configuration. It opens no socket.
func New(o Options) (*Server, error) {
	id, err := tenants.NewID(rand.Reader)
	if err != nil {
		return nil, err
	}
	name := proxy.GatewayName + id
	s := &Server{name: name, log: o.Log, metrics: o.Metrics, recover: control.NewRecoverer(o.Log, o.Metrics), decisions: decisions.NewLog(o.Config.Decisions.Keep)}
	if err := s.openFiles(o); err != nil {
		return nil, err
	}
	s.control, err = control.New(control.Options{Config: o.Config, Source: o.Source, Announce: s.announce(o.Announce), Withdraw: o.Withdraw,
		Offline: o.Offline, Applied: func(f *config.File) { s.proxy.Configure(f) }, Via: proxy.ViaEntry(name),
		Log: o.Log, Metrics: o.Metrics, Recover: s.recover, Rand: o.Rand})
	if err != nil {
		return nil, err
	}
	s.proxy = proxy.New(proxy.Options{Control: s.control, Access: o.Access, Decisions: s.decisions, DecisionFile: s.decisionFile,
		Traces: s.traces, Name: name, Log: o.Log, Metrics: o.Metrics, Rand: o.Rand})
	if err := s.control.Begin(context.Background()); err != nil {
		s.close()
		return nil, err
	}
	s.admin = s.newAdmin(o)
	s.metrics.Limits(control.LimitNames())
	s.metrics.ObserveFleet(s.control.Pools.Gauges)
	s.metrics.ObserveQueues(s.control.Pools.QueueGauges)
	s.metrics.ObserveStores(s.control.Database.Gauges)
	s.metrics.ObserveBodies(s.proxy.BodyMemory)
	s.metrics.ObserveDecisions(s.decisionGauges)
	s.metrics.ObserveTraces(s.traces.Counts)
	return s, nil
}

// openFiles opens the file of decisions and the exporter of traces, which may be neither.
func (s *Server) openFiles(o Options) (err error) {
	if o.Offline {
		return nil
	}
	if c := o.Config.Decisions; c.File != "" {
		s.decisionFile, err = decisions.OpenFile(decisions.FileConfig{Path: c.File, MaxSize: int64(c.MaxSize), Files: c.MaxFiles,
			Log: o.Log, Recover: s.recover.Try})
	}
	t := o.Config.Telemetry
	s.traces = telemetry.NewTraces(telemetry.TracesConfig{OTLP: t.OTLP, Sample: t.Sample, Clients: t.Clients,
		Version: o.Version, Log: o.Log, Recover: s.recover.Try})
	return err
}

// announce returns what announces a bootstrap secret once the addresses are known; nil
// where to is.
func (s *Server) announce(to func(secret string, until time.Time)) func(string, time.Time) {
	if to == nil {
		return nil
	}
	return func(secret string, until time.Time) {
		s.onceListening(func() {
			if s.control.Bootstrap.Check(secret) { // it may be void by now
				to(secret, until)
			}
		})
	}
}

// Reload is control.Control.Reload.
func (s *Server) Reload(ctx context.Context, r control.ReloadRequest) (control.ReloadResult, error) {
	return s.control.Reload(ctx, r)
}

// Watches is control.Control.Watches.
func (s *Server) Watches() bool { return s.control.Watches() }

// Explain is proxy.Proxy.Explain for a request that asks for itself.
func (s *Server) Explain(r *http.Request) *decisions.Explanation {
	e, _ := s.proxy.Explain(r, control.Question{})
	return e
}

// decisionGauges shows the records to a scrape.
func (s *Server) decisionGauges() telemetry.DecisionLog {
	now := s.decisions.Span()
	g := telemetry.DecisionLog{Kept: int(now.Next - now.Oldest), Bytes: now.Bytes, Streams: s.admin.Streams()}
	if s.decisionFile != nil {
		file := s.decisionFile.Stats()
		g.Written, g.Dropped = file.Written, file.Dropped
	}
	return g
}

// close lets go of everything that is held. Requests have ended.
func (s *Server) close() {
	if s.decisionFile != nil {
		s.decisionFile.Close()
	}
	s.control.Close()
}

// onceListening calls f when the addresses are known.
func (s *Server) onceListening(f func()) {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if len(s.listeners) == 0 {
		s.listened = f
		return
	}
	f()
}

// Listen opens the addresses of the configuration. Until it has returned,
// Addr answers nothing.
func (s *Server) Listen() error {
	if err := s.listen(); err != nil {
		return err
	}
	s.hearing.Lock()
	defer s.hearing.Unlock()
	if f := s.listened; f != nil {
		s.listened = nil
		f()
	}
	return nil
}

func (s *Server) listen() error {
	f := s.control.Snapshot().File
	data, admin := s.dataHandler(), s.adminHandler()
	base, cut := context.WithCancelCause(context.Background())
	s.cut = cut
	if f.SharedPlanes() {
		if err := s.open(base, "data", f.Listen, f.TLS, sharePlanes(data, admin)); err != nil {
			return err
		}
	} else {
		if err := s.open(base, "data", f.Listen, f.TLS, data); err != nil {
			return err
		}
		if err := s.open(base, "admin", f.Admin.Listen, f.Admin.TLS, admin); err != nil {
			return err
		}
	}
	if f.Metrics.Listen != "" {
		return s.open(base, "metrics", f.Metrics.Listen, config.TLS{}, s.metricsHandler())
	}
	return nil
}

func (s *Server) open(base context.Context, name, addr string, files config.TLS, h http.Handler) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.closeListeners()
		return fmt.Errorf("listening for the %s plane: %w (another address: --listen, --admin-listen, or the configuration's)", name, err)
	}
	var secure *tls.Config
	if files.Cert != "" {
		certs, err := newCertificates(files.Cert, files.Key, s.log)
		if err != nil {
			l.Close()
			s.closeListeners()
			return fmt.Errorf("the %s plane's certificate: %w", name, err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get, NextProtos: []string{"h2", "http/1.1"}}
	}
	s.listeners = append(s.listeners, listener{name: name, Listener: acceptor{l, name, s.log, s.proxy.Exhausted}, server: &http.Server{
		TLSConfig:         secure,
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       60 * time.Second, // below the 75 s at which common balancers let go first
		MaxHeaderBytes:    64 << 10,         // bearer keys and traces need a fraction of it
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}})
	return nil
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		l.Listener.Close()
	}
	s.listeners = nil
}

// Addr returns the address that a plane listens on, data or admin; the admin
// plane may share the data plane's.
func (s *Server) Addr(plane string) string {
	for _, l := range s.listeners {
		if l.name == plane {
			return l.Listener.Addr().String()
		}
	}
	if plane == "admin" {
		return s.Addr("data")
	}
	return ""
}

// Run serves until ctx ends, then drains: it reports itself unready and goes on
// accepting for accept_grace, stops accepting, lets what is under way finish
// until timeout, cuts the rest with an error frame, and returns.
func (s *Server) Run(ctx context.Context) error {
	controlCtx, stopControl := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() { s.control.Run(controlCtx) })
	storesCtx, stopStores := context.WithCancel(context.Background())
	owned.Go(func() { s.control.Stores.Run(storesCtx) })
	if s.decisionFile != nil {
		owned.Go(func() { s.decisionFile.Run(storesCtx) })
	}
	owned.Go(func() { s.traces.Run(storesCtx) })
	failed := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		owned.Go(func() {
			if err := s.serveOn(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving the %s plane: %w", l.name, err)
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain()
	stopControl()
	stopStores() // what the last requests have used is written first
	owned.Wait()
	s.close()
	return err
}

// drain is the two-phase stop of Run.
func (s *Server) drain() {
	d := s.control.Snapshot().File.Drain
	s.proxy.Drain()
	s.log.Info("draining", "accept_grace", d.AcceptGrace.String(), "timeout", d.Timeout.String(), "inflight", s.proxy.Inflight())
	// Kept connections are let go one by one, each with its next answer: closing
	// idle ones now would lose the request that a balancer is just sending.
	//
	// A balancer needs this long to see /readyz and send new requests elsewhere.
	<-time.After(d.AcceptGrace)
	deadline, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	for _, l := range s.listeners { // the data plane is the first: the others can be asked until it is done
		s.shut(deadline, l)
	}
	s.log.Info("drained", "inflight", s.proxy.Inflight())
}

// shut closes one listener and waits for its requests until the deadline, then
// cuts them and gives them a moment to send their error frames.
func (s *Server) shut(deadline context.Context, l listener) {
	if l.server.Shutdown(deadline) == nil {
		return
	}
	s.proxy.Cut()
	s.cut(proxy.ErrDrainCut)
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second) // an error frame is one write
	defer cancel()
	if l.server.Shutdown(last) != nil {
		l.server.Close()
	}
}

// Inflight returns the requests between their first byte and their last.
func (s *Server) Inflight() int64 { return s.proxy.Inflight() }
