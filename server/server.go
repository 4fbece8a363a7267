// Package server is the line a request walks, from the socket to the worker
// and back, and the plane that operators look at. It is the only package that
// turns errors into HTTP.
package server

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"tierway/config"
	"tierway/decisions"
	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/tiers"
	"tierway/workers"
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

// Server owns the listeners, the fleet and everything that outlives one
// configuration. The snapshot points into it.
type Server struct {
	log     *slog.Logger
	access  *decisions.AccessLog
	metrics *telemetry.Metrics
	rand    func() uint64

	name     string // of this process among gateways, as Via headers have it
	version  string
	path     string
	source   func() (*config.File, error)
	announce func(secret string, until time.Time)
	withdraw func()
	listened func() // what waits for the addresses; guarded by hearing
	hearing  sync.Mutex

	sql      *store.SQL    // nil without
	redis    *store.Redis  // nil without
	ledger   *store.Ledger // nil without sql
	limits   *store.Limits
	local    *tenants.Limiter // what this gateway has admitted
	people   atomic.Pointer[people]
	boot     atomic.Pointer[bootstrap]
	guesses  guesses
	touches  touches
	migrated atomic.Bool
	database databaseFlag
	known    atomic.Int64  // when the directory was last known to be the database's; Unix nanoseconds, 0: never
	hurry    chan struct{} // the database is to be read at once
	unknown  chan struct{} // it is to be asked for changes
	rejected atomic.Bool   // the file that was to be reloaded last has errors

	reloading    sync.Mutex // one reload at a time; taken before applying
	applying     sync.Mutex // one change of configuration, overrides or directory at a time; guards base
	base         base
	ownOverrides atomic.Pointer[[]store.Override] // where there is no database

	fleet    *workers.Fleet
	snapshot atomic.Pointer[snapshot]
	budget   *retryBudget
	bodies   bodyBudget
	stored   *storedAnswers
	scratch  *scratch
	inflight atomic.Int64
	flying   flying

	exhaustions seldom // connections that were not made

	keepsRecords atomic.Bool       // somebody reads more of a request than its log line
	decisions    *decisions.Log    // the last ones
	decisionFile *decisions.File   // nil without
	streams      atomic.Int32      // of operators who follow decisions
	exports      atomic.Int32      // of decisions that are being read
	traces       *telemetry.Traces // nil without

	chats  *tiers.Chats
	tokens *vocabularies
	load   chan struct{} // a vocabulary may be missing
	seed   maphash.Seed  // of hashes that stay in the process

	mu      sync.Mutex               // guards what follows; apply holds it until its snapshot is in force
	retired []weak.Pointer[livePool] // pools that a reload removed and that requests may still use
	shared  int                      // the gateways among which the workers' bounds are divided

	draining atomic.Bool
	isCut    atomic.Bool             // the drain timeout has passed
	cut      context.CancelCauseFunc // ends the requests of the listeners

	listeners []listener
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
		return l.server.Serve(newTLSListener(l.Listener, secure, s.keepRunning))
	}
	return l.server.Serve(plainListener{l.Listener})
}

// New builds the server for a checked configuration. It opens no socket.
func New(o Options) (*Server, error) {
	id, err := tenants.NewID(rand.Reader)
	if err != nil {
		return nil, err
	}
	s := &Server{
		name: gatewayName + id,
		log:  o.Log, metrics: o.Metrics, rand: o.Rand, version: o.Version, path: o.Path, source: o.Source, withdraw: o.Withdraw,
		hurry: make(chan struct{}, 1), unknown: make(chan struct{}, 1), load: make(chan struct{}, 1), budget: newRetryBudget(),
		stored:    newStoredAnswers(storedAnswersMax),
		decisions: decisions.NewLog(o.Config.Decisions.Keep),
		scratch:   newScratch(),
		chats:     tiers.NewChats(tiers.MaxChats),
		tokens:    newVocabularies(),
		seed:      maphash.MakeSeed(),
	}
	if o.Access != nil {
		s.access = decisions.NewAccessLog(o.Access)
	}
	if o.Announce != nil {
		s.announce = func(secret string, until time.Time) {
			s.onceListening(func() {
				if s.takeBootstrap(secret) { // it may be void by now
					o.Announce(secret, until)
				}
			})
		}
	}
	s.fleet = workers.NewFleet(workers.Options{Log: o.Log, OnStatus: s.observe, Rand: o.Rand,
		Recover: s.runRecovered, Via: viaEntry(s.name)})
	s.metrics.Outside(dialects, outcomes)
	s.metrics.Limits(limitNames())
	if err := s.begins(o); err != nil {
		s.close()
		return nil, err
	}
	s.metrics.ObserveOldest(s.flying.oldest)
	s.metrics.ObserveFleet(s.gauges)
	s.metrics.ObserveQueues(s.queueGauges)
	s.metrics.ObserveStores(s.storeGauges)
	s.metrics.ObserveDecisions(s.decisionGauges)
	s.metrics.ObserveBodies(s.bodies.sizes)
	s.metrics.ObserveTraces(s.traces.Counts)
	return s, nil
}

// begins puts the first configuration in force and opens what it names.
func (s *Server) begins(o Options) (err error) {
	if c := o.Config.Decisions; c.File != "" && !o.Offline {
		if s.decisionFile, err = decisions.OpenFile(decisions.FileConfig{Path: c.File, MaxSize: int64(c.MaxSize), Files: c.MaxFiles, Log: o.Log, Recover: s.runRecovered}); err != nil {
			return err
		}
	}
	if t := o.Config.Telemetry; !o.Offline {
		s.traces = telemetry.NewTraces(telemetry.TracesConfig{OTLP: t.OTLP, Sample: t.Sample, Clients: t.Clients,
			Version: o.Version, Log: o.Log, Recover: s.runRecovered})
	}
	s.ownOverrides.Store(&[]store.Override{})
	s.base = base{file: o.Config, hash: o.Config.Hash(), generation: 1, loadedAt: time.Now()}
	if err := s.openStores(o); err != nil {
		return err
	}
	p, err := newPeople(o.Config, store.Contents{}, time.Time{})
	if err != nil {
		return err
	}
	if err := s.apply(o.Config, p, 1); err != nil {
		return err
	}
	s.metrics.Reloaded(1, s.base.loadedAt)
	return s.openDatabase(context.Background())
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
	f := s.snapshot.Load().file
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
	s.listeners = append(s.listeners, listener{name: name, Listener: acceptor{l, name, s}, server: &http.Server{
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
	fleetCtx, stopFleet := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() { s.fleet.Run(fleetCtx) })
	owned.Go(func() { s.pollBreakers(fleetCtx.Done()) })
	owned.Go(func() { s.tickQueues(fleetCtx.Done()) })
	owned.Go(func() { s.loadVocabularies(fleetCtx.Done()) })
	owned.Go(func() { s.followDatabase(fleetCtx) })
	owned.Go(func() { s.followOverrides(fleetCtx.Done()) })
	owned.Go(func() { s.rankTenants(fleetCtx.Done()) })
	storesCtx, stopStores := context.WithCancel(context.Background())
	s.runStores(storesCtx, &owned)
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
	stopFleet()
	stopStores() // what the last requests have used is written first
	owned.Wait()
	s.close()
	return err
}

// drain is the two-phase stop of Run.
func (s *Server) drain() {
	d := s.snapshot.Load().file.Drain
	s.draining.Store(true)
	s.log.Info("draining", "accept_grace", d.AcceptGrace.String(), "timeout", d.Timeout.String(), "inflight", s.inflight.Load())
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
	s.log.Info("drained", "inflight", s.inflight.Load())
}

// shut closes one listener and waits for its requests until the deadline, then
// cuts them and gives them a moment to send their error frames.
func (s *Server) shut(deadline context.Context, l listener) {
	if l.server.Shutdown(deadline) == nil {
		return
	}
	s.isCut.Store(true)
	s.cut(errDrainCut)
	last, cancel := context.WithTimeout(context.Background(), 2*time.Second) // an error frame is one write
	defer cancel()
	if l.server.Shutdown(last) != nil {
		l.server.Close()
	}
}

// Inflight returns the requests between their first byte and their last.
func (s *Server) Inflight() int64 { return s.inflight.Load() }
