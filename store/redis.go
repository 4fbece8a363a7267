package store

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisConfig says which Redis gateways share, and who this one is.
type RedisConfig struct {
	URL     string       // see OpenRedis
	Gateway string       // this process's random id, of letters, digits and "-"
	Log     *slog.Logger // nil: none
	Recover Recover      // nil: a panic ends the process
}

// Redis is the connection to what gateways share and may lose. It is away from
// its first five failures in a row until it answers again; while it is away no
// request touches it. It is safe for concurrent use.
type Redis struct {
	client   redis.UniversalClient
	patience time.Duration
	gateway  string
	log      *slog.Logger
	recover  Recover
	onChange func()        // nil: changes are not listened for
	onBack   func()        // nil: nothing
	tripped  chan struct{} // holds one when Run's goroutine is to probe at once
	failures atomic.Int32  // in a row
	away     atomic.Bool
	cause    atomic.Pointer[error]
	gateways atomic.Int32
	register *redis.Script
	told     atomic.Bool // that it is away: a probe has failed too

	// of Run's goroutine alone
	swift  int             // probes in a row that were answered swiftly
	causes map[string]bool // of this outage, that were logged
}

//go:embed register.lua
var registerLua string

// Why Redis is not asked: it is known to be away, or takes too long to be of use.
var (
	errAway = errors.New("Redis is away")
	errSlow = errors.New("Redis answers too slowly")
)

const (
	// patience is what a request may lose to Redis at most. It answers in 0.1 ms.
	patience = 50 * time.Millisecond
	// tripAfter is how many failures in a row make Redis away: fewer happen in
	// a failover, and each costs a request its patience.
	tripAfter = 5
	// swiftAgain is how many probes in a row a Redis that was slow has to answer
	// swiftly: one that is slow now and then would come and go.
	swiftAgain = 3
	// probeEvery is how often Redis is tried while it is away: twice a second finds
	// it within the two seconds in which it is to be used again.
	probeEvery = 500 * time.Millisecond
	// maxCauses bounds the lines of one outage: a server fails in few ways, and an
	// error whose text differs each time would be a line every probe.
	maxCauses = 8
	// lease is for how long others believe what a gateway says, and renewEvery how
	// often it says it: two renewals may be lost.
	lease      = 15 * time.Second
	renewEvery = 5 * time.Second
	// poolSize bounds connections, and how many are dialled at once when Redis comes
	// back. Redis runs one script at a time: those of 32 connections keep it busy,
	// more would only wait there instead of here.
	poolSize = 32
)

const (
	// gatewaysKey holds the living gateways, by the end of their leases.
	gatewaysKey = "tierway:gateways"
	// changes is the channel on which gateways publish that the database has changed.
	changes = "tierway:changed:directory"
)

// OpenRedis returns the Redis of a URL:
//
//	redis://[USER:PASSWORD@]HOST:PORT[/DB]            rediss:// with TLS
//	redis+cluster://[USER:PASSWORD@]HOST:PORT,…       rediss+cluster://
//	redis+sentinel://[USER:PASSWORD@]HOST:PORT,…/MASTER[/DB]   rediss+sentinel://
//
// It connects when it is first asked, so that a Redis that is away is no error
// here. The error says what is wrong with the URL without repeating it.
func OpenRedis(c RedisConfig) (*Redis, error) { return open(c, patience) }

// open is OpenRedis with another patience.
func open(c RedisConfig, patience time.Duration) (*Redis, error) {
	o, err := redisOptions(c.URL)
	if err != nil {
		return nil, err
	}
	tune(o, patience)
	r := &Redis{client: redis.NewUniversalClient(o), patience: patience, gateway: c.Gateway,
		log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), recover: c.Recover.orNone(),
		tripped: make(chan struct{}, 1), register: redis.NewScript(registerLua)}
	r.gateways.Store(1)
	return r, nil
}

// tune sets what the client's defaults are wrong about: they let a command wait
// for five seconds on a Redis that hangs, whatever its context says, and try
// it again three times.
func tune(o *redis.UniversalOptions, patience time.Duration) {
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = patience, patience
	o.DialTimeout = 2 * patience // TLS takes several round trips
	o.MaxRetries = -1            // the breaker decides; a script that was sent may have run
	o.DialerRetries = 1
	o.PoolSize = poolSize
	o.PipelinePoolSize = -1  // two workers pipeline: they need no pool of their own
	o.DisableIdentity = true // CLIENT SETINFO is an error before Redis 7.2
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Up reports whether requests may ask Redis.
func (r *Redis) Up() bool { return !r.away.Load() }

// Gateways returns how many gateways were alive when Redis last said so, this one
// included: at least 1.
func (r *Redis) Gateways() int { return int(max(1, r.gateways.Load())) }

// PublishChange makes all gateways that listen, this one included, call their OnChange.
func (r *Redis) PublishChange(ctx context.Context) error {
	return r.do(ctx, "telling gateways of a change", func(ctx context.Context) error {
		return r.client.Publish(ctx, changes, r.gateway).Err()
	})
}

// OnChange has Run call f when a gateway has published a change, and when Redis comes
// back, as one may have been missed. It must be called before Run. f must not block and may
// be called from two goroutines at once.
func (r *Redis) OnChange(f func()) { r.onChange = f }

// listen calls onChange until ctx ends. A change that is missed between two connections is
// found by the next look at the database.
func (r *Redis) listen(ctx context.Context) {
	if r.onChange == nil {
		return
	}
	sub := r.client.Subscribe(ctx, changes)
	defer sub.Close() //nolint:errcheck // there is nothing to lose
	messages := sub.Channel(redis.WithChannelHealthCheckInterval(renewEvery))
	for {
		select {
		case <-ctx.Done():
			return
		case <-messages:
			r.changed()
		}
	}
}

// changed calls onChange. A panic, which recover has logged, ends nothing else.
func (r *Redis) changed() {
	if r.onChange != nil {
		_ = r.recover("following Redis", func() error { r.onChange(); return nil })
	}
}

// Close ends all connections. Run must have returned.
func (r *Redis) Close() error {
	if err := r.client.Close(); err != nil {
		return fmt.Errorf("closing Redis: %w", err)
	}
	return nil
}

// do asks Redis something, unless it is away, for no longer than patience. A
// caller that leaves does not cut it short: what was sent may count, and the
// connection stays good.
func (r *Redis) do(ctx context.Context, what string, f func(context.Context) error) error {
	return r.timed(ctx, what, f, false)
}

// timed asks Redis something. Where it is to be swift, an answer that takes half
// of the patience, a hundred times what it should, counts as a failure, although it
// is used.
func (r *Redis) timed(ctx context.Context, what string, f func(context.Context) error, swift bool) error {
	if r.away.Load() {
		return fmt.Errorf("%s: %w", what, errAway)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.patience)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	switch slow := time.Since(began) > r.patience/2; {
	case err != nil || !slow:
		r.note(err)
	case swift:
		r.note(errSlow)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// note counts failures in a row; Redis that has nothing to say has answered.
func (r *Redis) note(err error) {
	if err == nil || errors.Is(err, redis.Nil) {
		if r.failures.Load() != 0 {
			r.failures.Store(0)
		}
		return
	}
	if r.failures.Add(1) >= tripAfter {
		r.trip(err)
	}
}

// trip makes Redis away. It is probed at once: a process that was stopped for
// a moment sees all its questions time out together, and nobody need hear of that.
func (r *Redis) trip(err error) {
	if !r.away.CompareAndSwap(false, true) {
		return
	}
	r.cause.Store(&err)
	select {
	case r.tripped <- struct{}{}:
	default:
	}
}

// tell says that Redis is away, once, and each further cause that a probe finds, so
// that the log has the present one. An error of Redis is known by its first word, such
// as OOM; of others the digits do not count, which are ports and times.
func (r *Redis) tell(probe error) {
	if !r.away.Load() {
		return
	}
	kind := func(err error) string {
		if code, _, _ := strings.Cut(err.Error(), " "); code == strings.ToUpper(code) {
			return code
		}
		return strings.Map(func(c rune) rune {
			if c >= '0' && c <= '9' {
				return -1
			}
			return c
		}, err.Error())
	}
	if r.told.CompareAndSwap(false, true) {
		first := *r.cause.Load()
		r.causes = map[string]bool{kind(first): true}
		r.log.Warn("Redis is away: this gateway goes on with its own share of the limits", "error", first)
	}
	if k := kind(probe); !r.causes[k] && len(r.causes) < maxCauses {
		r.causes[k] = true
		r.log.Warn("Redis is still away, for another reason", "error", probe)
	}
}

// Run keeps this gateway in the list of those that live, tries Redis while it is
// away, and listens for changes, until ctx ends.
func (r *Redis) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.listen(ctx) })
	// No request is to lose its patience to a Redis that is away from the start.
	if err := r.recover("reaching Redis", func() error { return r.beat(ctx) }); err != nil {
		r.trip(err)
		r.tell(err)
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	last := time.Now()
	for ctx.Err() == nil {
		// An error is a panic that recover has logged; the next beat follows in its time.
		_ = r.recover("following Redis", func() error {
			select {
			case <-ctx.Done():
			case <-r.tripped:
				if r.away.Load() && !r.told.Load() && r.beat(ctx) == nil {
					last = time.Now()
				}
			case now := <-tick.C:
				if (r.away.Load() || now.Sub(last) >= renewEvery) && r.beat(ctx) == nil {
					last = now
				}
			}
			return nil
		})
	}
	wg.Wait()
	r.leave(ctx)
}

// beat renews this gateway's lease. It is the probe too: what it succeeds in, a
// request's script will. Its failure counts as a request's does.
func (r *Redis) beat(ctx context.Context) error {
	began := time.Now()
	n, err := r.enlist(ctx, false)
	if ctx.Err() != nil {
		return nil // it was cut short
	}
	if err == nil && r.away.Load() {
		err = r.steady(time.Since(began))
	}
	r.note(err)
	if err != nil {
		r.tell(err)
		return err
	}
	r.gateways.Store(int32(min(n, 1<<20)))
	if r.away.CompareAndSwap(true, false) {
		if r.told.CompareAndSwap(true, false) {
			r.log.Info("Redis is back: gateways share their limits again", "gateways", r.Gateways())
		}
		if r.onBack != nil {
			r.onBack()
		}
		r.changed()
	}
	return nil
}

// steady decides whether a Redis that is away and has answered a probe is back.
func (r *Redis) steady(took time.Duration) error {
	if took > r.patience/2 {
		r.swift = 0
		return errSlow
	}
	r.swift++
	if errors.Is(*r.cause.Load(), errSlow) && r.told.Load() && r.swift < swiftAgain {
		return errSlow
	}
	r.swift = 0
	return nil
}

// enlist puts this gateway into the list of the living, or takes it out.
func (r *Redis) enlist(ctx context.Context, leave bool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.patience) // a first connection must be dialled
	defer cancel()
	return r.register.Run(ctx, r.client, []string{gatewaysKey}, r.gateway, lease.Milliseconds(), number(leave)).Int64()
}

// leave takes this gateway out of the list. If that fails its lease runs out.
func (r *Redis) leave(ctx context.Context) {
	if r.Up() {
		if _, err := r.enlist(context.WithoutCancel(ctx), true); err != nil {
			r.log.Debug("leaving the list of gateways", "error", err)
		}
	}
}
