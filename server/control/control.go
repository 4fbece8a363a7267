package control

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"tierway/config"
	"tierway/hooks"
	"tierway/routing"
	"tierway/telemetry"
	"tierway/tenants"
	"tierway/workers"
	"tierway/workers/kvcache"
	"tierway/workers/zmtp"
)

// Control is the state of a gateway: the configuration in force with its pools, and the directory of
// tenants and admins. After Begin it is safe for concurrent use.
type Control struct {
	log          *slog.Logger
	metrics      *telemetry.Metrics
	Recoverer    *Recoverer
	Stores       *Stores
	Database     *Database
	Bootstrap    *Bootstrap
	Pools        *Pools
	Vocabularies *Vocabularies
	AuthFailures *AuthFailureLimiter
	hookOptions  hooks.Options

	snapshot  atomic.Pointer[Snapshot]     // never nil; only change stores it
	followers []func(*config.File)         // see Follow
	source    func() (*config.File, error) // reads the configuration again; nil without a file
	rejected  atomic.Bool                  // the last reloaded file was rejected

	reloading sync.Mutex        // one reload at a time; taken before changing
	changing  sync.Mutex        // one change of the state at a time
	departed  []tenants.Subject // that the limiter cannot forget yet; guarded by changing
}

// Options are the parts of a Control. Config, Log, Metrics, Recover and Rand are required.
type Options struct {
	Config *config.File
	// Source reads the configuration again for a reload; nil without a file.
	Source func() (*config.File, error)
	// OfferBootstrap creates a one-time secret for the first admin if no admin exists: see Bootstrap.Announcements.
	OfferBootstrap bool
	// Offline opens neither database nor Redis.
	Offline bool
	// Via is the entry of this gateway in the Via header of requests to workers.
	Via     string
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Recover *Recoverer
	Rand    func() uint64 // uniform; safe for concurrent use
	// Dial opens the connections to workers and Redis, and Listen the address for publishers of KV events. Nil:
	// net.Dialer and net.Listen.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Listen func(network, address string) (net.Listener, error)
}

// New builds the state of a gateway. Before Begin no configuration is in force and nothing is
// connected. The caller must call Close unless New returns an error.
func New(o Options) (*Control, error) {
	stores, err := openStores(o)
	if err != nil {
		return nil, err
	}
	ctl := &Control{
		log:          o.Log,
		metrics:      o.Metrics,
		Recoverer:    o.Recover,
		Stores:       stores,
		AuthFailures: &AuthFailureLimiter{},
		hookOptions: hooks.Options{Log: o.Log, Dial: o.Dial,
			Rand: func() float64 { return routing.Unit(o.Rand()) }},
		source: o.Source,
	}
	ctl.Bootstrap = newBootstrap(o.Log, o.OfferBootstrap)
	ctl.Vocabularies = &Vocabularies{log: o.Log, recover: o.Recover, due: make(chan string, 1)}
	ctl.Pools = &Pools{
		log:     o.Log,
		metrics: o.Metrics,
		recover: o.Recover,
		rand:    o.Rand,
		redis:   stores.Redis,
		dial:    o.Dial,

		connected: make(chan struct{}, 1),
		queued:    make(chan struct{}, 1),
		onStopped: func(StoppedWorkers) {},
		silent:    map[*Member]bool{},
	}
	if stores.Redis != nil {
		ctl.Pools.sharing = newSharing(ctl.Pools)
	}
	ctl.Pools.fleet = workers.NewFleet(workers.Options{
		Log:      o.Log,
		OnStatus: ctl.Pools.observe,
		Rand:     o.Rand,
		Recover:  o.Recover.Try,
		Via:      o.Via,
		Dial:     o.Dial,
	})
	ctl.Pools.caches = kvcache.New(kvcache.Options{Log: o.Log, Listen: o.Config.KVEvents.Listen, Recover: o.Recover.Try,
		Network: zmtp.Network{DialFunc: o.Dial, ListenFunc: o.Listen}})
	ctl.Database = &Database{
		log:        o.Log,
		recover:    o.Recover,
		stores:     stores,
		readDue:    make(chan struct{}, 1),
		refreshDue: make(chan struct{}, 1),

		maintainDue: make(chan struct{}, 1),
		updating:    make(turn, 1),
	}
	if stores.Redis != nil {
		stores.Redis.OnChange(ctl.Database.requestRead)
	}
	empty := &Snapshot{Configuration: Configuration{Base: o.Config},
		Identity: &Identity{Directory: tenants.NewDirectory(nil, nil)}}
	ctl.snapshot.Store(empty)
	ctl.Pools.current.Store(empty)
	return ctl, nil
}

// Snapshot returns the configuration in force; one without pools before Begin.
func (ctl *Control) Snapshot() *Snapshot { return ctl.snapshot.Load() }

// Follow makes the Control call f with each configuration after it was put in force, and with the same one when tenants
// or keys no longer exist. Calls do not overlap. It must be called before Begin.
func (ctl *Control) Follow(f func(*config.File)) { ctl.followers = append(ctl.followers, f) }

// Begin puts the first configuration in force and reads the directory. It must be called once, before
// all other methods except Close. An unreachable database is not an error: Run reads it later.
func (ctl *Control) Begin(ctx context.Context) error {
	ctl.changing.Lock()
	err := ctl.change(begin{})
	ctl.changing.Unlock()
	if err != nil {
		return err
	}
	ctl.metrics.Reloaded(1, ctl.Snapshot().LoadedAt)
	return ctl.openDatabase(ctx)
}

// Run keeps pools, directory and overrides up to date. It returns when ctx has ended and all
// its work has stopped.
func (ctl *Control) Run(ctx context.Context) {
	var owned sync.WaitGroup
	owned.Go(func() { ctl.Pools.fleet.Run(ctx) })
	owned.Go(func() { ctl.Pools.caches.Run(ctx) })
	owned.Go(func() { ctl.Pools.runCacheSources(ctx) })
	owned.Go(func() { ctl.Pools.pollBreakers(ctx.Done()) })
	owned.Go(func() { ctl.Pools.tickQueues(ctx.Done()) })
	owned.Go(func() { ctl.Pools.runExchanges(ctx) })
	owned.Go(func() { ctl.Vocabularies.run(ctx.Done()) })
	owned.Go(func() { ctl.followDatabase(ctx) })
	owned.Go(func() { ctl.followTime(ctx.Done()) })
	owned.Go(func() { ctl.rankTenants(ctx.Done()) })
	owned.Wait()
}

// Close closes the connections to workers and stores. Run must have returned and all requests must have
// ended.
func (ctl *Control) Close() {
	ctl.Pools.fleet.Close()
	ctl.Snapshot().Hooks.Retire(nil)
	if err := ctl.Stores.close(); err != nil {
		ctl.log.Warn("closing the stores", "cause", err.Error())
	}
}
