package server

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"tierway/config"
	"tierway/decisions"
	"tierway/pairing"
	"tierway/server/control"
	"tierway/server/intake"
	"tierway/server/learning"
	"tierway/server/proxy"
	"tierway/server/repeats"
	"tierway/spool"
	"tierway/telemetry"
	"tierway/tenants"
)

// Options are the parts of a Server. Config, Log, Metrics and Rand are required.
type Options struct {
	// Config is the checked configuration to start with.
	Config *config.File
	// Source reads the configuration again for a reload; nil without a file.
	Source func() (*config.File, error)
	// OfferBootstrap creates a one-time secret for the first admin if no admin exists: see Announcements.
	OfferBootstrap bool
	Path           string // path of the configuration file; may be empty
	Version        string // version of the program; may be empty
	// Offline opens neither database nor Redis. Such a Server only explains decisions.
	Offline bool
	Log     *slog.Logger
	// Access receives one JSON line for each request, as one Write. The Write must not block;
	// spool.Writer satisfies this. Nil: no access log.
	Access  io.Writer
	Metrics *telemetry.Metrics
	Rand    func() uint64 // uniform; safe for concurrent use
	// Listen and Dial replace the network in tests: Listen opens the addresses of the planes and of KV
	// events, and Dial the connections to workers and Redis. Nil: net.Listen and net.Dialer.
	Listen func(network, address string) (net.Listener, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
}

// Server is a gateway: the listeners, the data plane and the admin plane.
type Server struct {
	log       *slog.Logger
	metrics   *telemetry.Metrics
	recover   *control.Recoverer
	control   *control.Control
	proxy     *proxy.Proxy
	repeats   *repeats.Repeater // nil if no labels are written
	name      string            // name of this process among the gateways
	planes    *planes
	listeners *listeners
	cut       chan struct{} // closed by Cut
	cutOnce   sync.Once

	decisions    *decisions.Log
	decisionFile *spool.File[*decisions.Decision] // nil if decisions.file is not set
	learning     *learning.Store                  // nil without learning.directory
	traces       *telemetry.Traces                // nil if offline or without an exporter
}

// New builds the server for a checked configuration. It opens no listener. Unless Offline is set, it
// opens the decision file, the database and Redis as configured.
func New(o Options) (*Server, error) {
	id, err := tenants.NewID(rand.Reader)
	if err != nil {
		return nil, err
	}
	name := intake.GatewayName + id
	s := &Server{name: name, log: o.Log, metrics: o.Metrics, recover: control.NewRecoverer(o.Log, o.Metrics),
		decisions: decisions.NewLog(o.Config.Decisions.Keep), cut: make(chan struct{})}
	s.listeners = &listeners{log: o.Log, recover: s.recover, listen: o.Listen}
	if o.Listen == nil {
		s.listeners.listen = net.Listen
	}
	if err := s.openFiles(o); err != nil {
		return nil, err
	}
	s.control, err = control.New(control.Options{
		Config:         o.Config,
		Source:         o.Source,
		OfferBootstrap: o.OfferBootstrap,
		Offline:        o.Offline,
		Via:            intake.ViaEntry(name),
		Log:            o.Log,
		Metrics:        o.Metrics,
		Recover:        s.recover,
		Rand:           o.Rand,
		Dial:           o.Dial,
		Listen:         o.Listen,
	})
	if err != nil {
		s.closeFiles()
		return nil, err
	}
	var samples *pairing.Samples // of the requests that are to be repeated
	if s.learning != nil {
		samples = new(pairing.Samples)
	}
	s.proxy = proxy.New(proxy.Options{
		Control:      s.control,
		Access:       o.Access,
		Decisions:    s.decisions,
		DecisionFile: s.decisionFile,
		Learning:     s.learning,
		Traces:       s.traces,
		Samples:      samples,
		Name:         name,
		Log:          o.Log,
		Metrics:      o.Metrics,
		Rand:         o.Rand,
	})
	if samples != nil {
		s.repeats = repeats.New(repeats.Options{Control: s.control, Samples: samples, Send: s.proxy.Repeat,
			Labels: s.learning, Log: o.Log, Metrics: o.Metrics, Rand: o.Rand})
	}
	s.listeners.proxy = s.proxy
	if err := s.control.Begin(context.Background()); err != nil {
		s.close()
		return nil, err
	}
	s.planes = s.newPlanes(o)
	s.metrics.SetLimitNames(control.LimitNames())
	telemetry.Observe(s.metrics, s.control.Pools.Gauges)
	telemetry.Observe(s.metrics, s.control.Pools.QueueGauges)
	telemetry.Observe(s.metrics, s.control.Pools.IndexMemory)
	telemetry.Observe(s.metrics, s.control.Pools.PredictionGauges)
	telemetry.Observe(s.metrics, s.control.Pools.TokenGauges)
	telemetry.Observe(s.metrics, s.control.Pools.LMCacheGauges)
	telemetry.Observe(s.metrics, s.control.Gauges)
	telemetry.Observe(s.metrics, s.proxy.BodyMemory)
	telemetry.Observe(s.metrics, s.proxy.CacheMemory)
	telemetry.Observe(s.metrics, s.decisionGauges)
	telemetry.Observe(s.metrics, s.learning.Counts)
	telemetry.Observe(s.metrics, s.traces.Counts)
	return s, nil
}

// openFiles opens the files of records, features and labels and the trace exporter if they are configured.
func (s *Server) openFiles(o Options) (err error) {
	if o.Offline {
		return nil
	}
	if c := o.Config.Decisions; c.File != "" {
		s.decisionFile, err = spool.OpenFile[*decisions.Decision](spool.FileConfig{
			Key:     "decisions.file",
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
	if c := o.Config.Learning; c.Directory != "" {
		s.learning, err = learning.Open(learning.Config{Learning: c, Log: o.Log, Recover: s.recover.Try})
		if err != nil {
			return err
		}
	}
	t := o.Config.Telemetry
	s.traces = telemetry.NewTraces(telemetry.TracesConfig{OTLP: t.OTLP, Sample: t.Sample, Clients: t.Clients,
		Version: o.Version, Log: o.Log, Recover: s.recover.Try})
	return nil
}

// Announcements returns the announcements of the secret for the first admin; nil without Options.OfferBootstrap. Read
// it after Listen.
func (s *Server) Announcements() <-chan control.Announcement {
	return s.control.Bootstrap.Announcements()
}

// Reload is control.Control.Reload.
func (s *Server) Reload(ctx context.Context, r control.ReloadRequest) (control.ReloadResult, error) {
	return s.control.Reload(ctx, r)
}

// Watches reports whether the file in force sets watch: the caller then reloads on each file change.
func (s *Server) Watches() bool { return s.control.Snapshot().File.Watch }

// Explain is proxy.Proxy.Explain with the identity of the request itself. It sends nothing to a worker.
func (s *Server) Explain(r *http.Request) *decisions.Explanation {
	e, _ := s.proxy.Explain(r, control.Question{})
	return e
}

// decisionGauges returns the state of the decision log for a scrape.
func (s *Server) decisionGauges() telemetry.DecisionLog {
	now := s.decisions.Span()
	g := telemetry.DecisionLog{Kept: int(now.Next - now.Oldest), Bytes: now.Bytes, Streams: s.planes.admin.Streams()}
	if s.decisionFile != nil {
		file := s.decisionFile.Stats()
		g.Written, g.Dropped = file.Written, file.Dropped
	}
	return g
}

// close releases all resources. All requests must have ended.
func (s *Server) close() {
	s.closeFiles()
	s.control.Close()
}

// closeFiles closes the files of records, features and labels.
func (s *Server) closeFiles() {
	if s.decisionFile != nil {
		s.decisionFile.Close()
	}
	if s.learning != nil {
		s.learning.Close()
	}
}

// Listen opens the addresses of the configuration. If one cannot be opened, it closes the others and
// returns an error. While no key is known, because the database was never read, it only reserves the address
// of the data plane: connections are refused until Run opens it. Call it once.
func (s *Server) Listen() error {
	return s.listeners.open(s.planes.addresses(s.control.Snapshot().File))
}

// Addr returns the address, as host:port, of a plane: "data", "admin" or "metrics". It returns the data
// plane's address for an admin plane without one. It returns "" before Listen has returned.
func (s *Server) Addr(plane string) string {
	if addr := s.listeners.address(plane); addr != "" || plane != "admin" {
		return addr
	}
	return s.listeners.address("data")
}

// LoginCode returns a code that opens one session of the admin with a key in the UI, within an hour.
func (s *Server) LoginCode(adminKey string) (string, error) {
	return s.planes.admin.LoginCode(adminKey)
}

// Run serves until ctx ends, then drains and releases all resources. The drain has these steps:
//
//   - for drain.accept_grace, /readyz reports not ready and requests are still accepted
//   - the listeners close; requests in flight have drain.timeout to finish
//   - the remaining requests are cut with an error frame
//
// Cut skips what is left of the first two steps.
//
// Run returns nil after a drain, or the error of a listener that failed. Call it once, after Listen.
func (s *Server) Run(ctx context.Context) error {
	controlCtx, stopControl := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() { s.control.Run(controlCtx) })
	storesCtx, stopStores := context.WithCancel(context.Background())
	owned.Go(func() { s.control.Stores.Run(storesCtx) })
	if s.decisionFile != nil {
		owned.Go(func() { s.decisionFile.Run(storesCtx) })
	}
	if s.learning != nil {
		owned.Go(func() { s.learning.Run(storesCtx) })
	}
	owned.Go(func() { s.traces.Run(storesCtx) })
	owned.Go(func() { s.planes.admin.Run(controlCtx) })
	recordsCtx, stopRecords := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { s.proxy.RunRecords(recordsCtx) })
	repeatsCtx, stopRepeats := context.WithCancel(context.Background())
	var repeating sync.WaitGroup
	repeating.Go(func() { s.repeats.Run(repeatsCtx) })
	failed := s.listeners.serve(&owned)
	owned.Go(func() { s.openDataPlane(controlCtx) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stopRepeats()
	s.drain()
	repeating.Wait() // before the stores, which write its rows and labels
	stopRecords()
	recording.Wait() // before the stores and the files, which write the records
	stopControl()
	s.proxy.FlushRecords() // of requests that have ended since
	stopStores()           // their Run writes buffered rows before it returns
	owned.Wait()
	s.close()
	return err
}

// callersEvery is the interval at which a reserved data plane looks for keys. The database is read at most
// once per second, so that it adds little.
const callersEvery = 100 * time.Millisecond

// openDataPlane opens a reserved data plane when the keys are read, unless ctx ends or a drain begins before.
func (s *Server) openDataPlane(ctx context.Context) {
	if !slices.ContainsFunc(s.listeners.opened(), func(l listener) bool { return l.reserved != nil }) {
		return
	}
	wayOut := "wait until tenants and keys are read, or add auth.keys to the configuration file and reload"
	if s.control.Database.State() == control.DatabaseAway {
		wayOut = "restore the database, or add auth.keys to the configuration file and reload"
	}
	s.log.Warn("the data plane refuses connections until the database is read: no key is known", "address",
		s.Addr("data"), "way_out", wayOut)
	tick := time.NewTicker(callersEvery)
	defer tick.Stop()
	for !s.control.HasCallers() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	if s.proxy.Draining() {
		return
	}
	if err := s.listeners.openReserved(); err == nil { // Run returns the error
		s.log.Info("the data plane accepts connections: keys are known", "address", s.Addr("data"))
	}
}

// drain stops the server in the steps of Run.
func (s *Server) drain() {
	d := s.control.Snapshot().File.Drain
	s.proxy.Drain()
	s.log.Info("draining", "accept_grace", d.AcceptGrace.String(), "timeout", d.Timeout.String(), "inflight",
		s.proxy.Inflight())
	// Each kept-alive connection closes after its next answer. Closing idle ones now would lose a
	// request that a balancer is sending.
	//
	// accept_grace gives balancers time to see /readyz and to send new requests elsewhere.
	select {
	case <-time.After(d.AcceptGrace):
	case <-s.cut:
	}
	defer time.AfterFunc(d.Timeout, func() { s.Cut("drain.timeout has passed") }).Stop()
	ctx, end := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() {
		defer end()
		select {
		case <-s.cut:
		case <-ctx.Done():
		}
	})
	defer owned.Wait()
	defer end()
	s.listeners.shut(ctx, d.AcceptGrace)
	s.log.Info("drained", "inflight", s.proxy.Inflight())
}

// Cut ends the drain of Run at once, also one that has not begun: streams get an error frame, and queued
// requests 503. The log has the cause and the number of these requests. Further calls have no effect.
func (s *Server) Cut(cause string) {
	s.cutOnce.Do(func() {
		queued := 0
		for _, p := range s.control.Snapshot().Pools {
			queued += p.WaitQueue.Waiting()
		}
		s.log.Warn("cutting the requests in flight", "cause", cause, "inflight", s.proxy.Inflight(), "queued", queued)
		close(s.cut)
	})
}
