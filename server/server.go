package server

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/server/proxy"
	"tierway/telemetry"
	"tierway/tenants"
)

// Options are the parts of a Server. Config, Log, Metrics and Rand are required.
type Options struct {
	Config *config.File
	// Source reads the configuration again for a reload; nil without a file.
	Source func() (*config.File, error)
	// Announce receives the one-time secret that creates the first admin if none exists; nil: no
	// secret is created.
	Announce func(secret string, until time.Time)
	Path     string // path of the configuration file; may be empty
	Version  string // version of the program; may be empty
	// Withdraw is called when the secret is used or has expired.
	Withdraw func()
	// Offline opens neither database nor Redis, for decisions without serving.
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
	log       *slog.Logger
	metrics   *telemetry.Metrics
	recover   *control.Recoverer
	control   *control.Control
	proxy     *proxy.Proxy
	name      string // of this process among gateways
	planes    *planes
	listeners *listeners

	decisions    *decisions.Log
	decisionFile *decisions.File   // nil without
	traces       *telemetry.Traces // nil without
}

// New builds the server for a checked configuration. It opens no socket.
func New(o Options) (*Server, error) {
	id, err := tenants.NewID(rand.Reader)
	if err != nil {
		return nil, err
	}
	name := intake.GatewayName + id
	s := &Server{name: name, log: o.Log, metrics: o.Metrics, recover: control.NewRecoverer(o.Log, o.Metrics),
		decisions: decisions.NewLog(o.Config.Decisions.Keep)}
	s.listeners = &listeners{log: o.Log, recover: s.recover}
	if err := s.openFiles(o); err != nil {
		return nil, err
	}
	s.control, err = control.New(control.Options{
		Config:   o.Config,
		Source:   o.Source,
		Announce: s.announce(o.Announce),
		Withdraw: o.Withdraw,
		Offline:  o.Offline,
		Applied:  func(f *config.File) { s.proxy.Configure(f) },
		Via:      intake.ViaEntry(name),
		Log:      o.Log,
		Metrics:  o.Metrics,
		Recover:  s.recover,
		Rand:     o.Rand,
	})
	if err != nil {
		s.closeFiles()
		return nil, err
	}
	s.proxy = proxy.New(proxy.Options{
		Control:      s.control,
		Access:       o.Access,
		Decisions:    s.decisions,
		DecisionFile: s.decisionFile,
		Traces:       s.traces,
		Name:         name,
		Log:          o.Log,
		Metrics:      o.Metrics,
		Rand:         o.Rand,
	})
	s.listeners.proxy = s.proxy
	if err := s.control.Begin(context.Background()); err != nil {
		s.close()
		return nil, err
	}
	s.planes = s.newPlanes(o)
	s.metrics.SetLimitNames(control.LimitNames())
	telemetry.Observe(s.metrics, s.control.Pools.Gauges)
	telemetry.Observe(s.metrics, s.control.Pools.QueueGauges)
	telemetry.Observe(s.metrics, s.control.Database.Gauges)
	telemetry.Observe(s.metrics, s.proxy.BodyMemory)
	telemetry.Observe(s.metrics, s.decisionGauges)
	telemetry.Observe(s.metrics, s.traces.Counts)
	return s, nil
}

// openFiles opens the file of decisions and the exporter of traces, as far as they are
// configured.
func (s *Server) openFiles(o Options) (err error) {
	if o.Offline {
		return nil
	}
	if c := o.Config.Decisions; c.File != "" {
		s.decisionFile, err = decisions.OpenFile(decisions.FileConfig{
			Path:    c.File,
			MaxSize: int64(c.MaxSize),
			Files:   c.MaxFiles,
			Log:     o.Log,
			Recover: s.recover.Try,
		})
		if err != nil {
			return err
		}
	}
	t := o.Config.Telemetry
	s.traces = telemetry.NewTraces(telemetry.TracesConfig{OTLP: t.OTLP, Sample: t.Sample, Clients: t.Clients,
		Version: o.Version, Log: o.Log, Recover: s.recover.Try})
	return nil
}

// announce returns a function that calls to with a bootstrap secret once the addresses are
// known; nil if to is nil.
func (s *Server) announce(to func(secret string, until time.Time)) func(string, time.Time) {
	if to == nil {
		return nil
	}
	return func(secret string, until time.Time) {
		s.listeners.whenOpen(func() {
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

// Watches reports whether the configuration in force has its file reloaded on changes.
func (s *Server) Watches() bool { return s.control.Snapshot().File.Watch }

// Explain is proxy.Proxy.Explain for a request that asks for itself.
func (s *Server) Explain(r *http.Request) *decisions.Explanation {
	e, _ := s.proxy.Explain(r, control.Question{})
	return e
}

// decisionGauges shows the records to a scrape.
func (s *Server) decisionGauges() telemetry.DecisionLog {
	now := s.decisions.Span()
	g := telemetry.DecisionLog{Kept: int(now.Next - now.Oldest), Bytes: now.Bytes, Streams: s.planes.admin.Streams()}
	if s.decisionFile != nil {
		file := s.decisionFile.Stats()
		g.Written, g.Dropped = file.Written, file.Dropped
	}
	return g
}

// close lets go of everything that is held. Requests have ended.
func (s *Server) close() {
	s.closeFiles()
	s.control.Close()
}

// closeFiles closes what openFiles has opened.
func (s *Server) closeFiles() {
	if s.decisionFile != nil {
		s.decisionFile.Close()
	}
}

// Listen opens the addresses of the configuration. Until it has returned,
// Addr answers nothing.
func (s *Server) Listen() error {
	return s.listeners.open(s.planes.addresses(s.control.Snapshot().File))
}

// Addr returns the address that a plane listens on, data or admin; the admin
// plane may share the data plane's.
func (s *Server) Addr(plane string) string {
	if addr := s.listeners.address(plane); addr != "" || plane != "admin" {
		return addr
	}
	return s.listeners.address("data")
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
	failed := s.listeners.serve(&owned)
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
	s.log.Info("draining", "accept_grace", d.AcceptGrace.String(), "timeout", d.Timeout.String(), "inflight",
		s.proxy.Inflight())
	// Kept connections are let go one by one, each with its next answer: closing
	// idle ones now would lose the request that a balancer is just sending.
	//
	// A balancer needs this long to see /readyz and send new requests elsewhere.
	<-time.After(d.AcceptGrace)
	deadline, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	s.listeners.shut(deadline)
	s.log.Info("drained", "inflight", s.proxy.Inflight())
}
