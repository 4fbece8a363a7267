package store

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisConfig configures a Redis.
type RedisConfig struct {
	URL     string        // see OpenRedis
	Timeout time.Duration // longest wait of a request for one answer; 0: DefaultRedisTimeout
	Gateway string        // random id of this process: letters, digits and "-"
	Log     *slog.Logger  // nil: no log
	Recover Recover       // nil: a panic ends the process
	// PasswordFile has the password and is read for each connection; empty: the URL has it.
	PasswordFile string
	Dial         dialFunc // opens the connections, without TLS; nil: net.Dialer
}

// DefaultRedisTimeout is the default of store.redis_timeout. It is 500 times the usual time of an answer, 0.1 ms, and
// short beside the time to the first token of a model. A few requests wait for so long when an outage begins.
const DefaultRedisTimeout = 50 * time.Millisecond

// Redis is the connection to the state that gateways share and may lose. After five failures in a row it is suspected
// and probed at once on another connection. Requests use it until the probes fail too or get late answers: then it
// counts as down. If they do not, the fault was this process's own, and nothing changes. It is safe for concurrent use.
type Redis struct {
	client   redis.UniversalClient
	prober   redis.UniversalClient // only for probes
	timeout  time.Duration
	gateway  string
	log      *slog.Logger
	recover  Recover
	onChange func()        // nil: changes are not subscribed to
	backs    []func()      // called when Redis is available again
	tripped  chan struct{} // holds one if Run must probe at once
	failures atomic.Int32  // in a row
	// suspected is set from five failures in a row until a probe succeeds.
	suspected atomic.Bool
	away      atomic.Bool // a probe has failed too: no request uses Redis
	denied    atomic.Bool // the ACL does not permit the channel of changes
	gateways  atomic.Int32
	register  *redis.Script
	// afterFunc is time.AfterFunc; tests replace it.
	afterFunc func(time.Duration, func()) *time.Timer

	// used by Run's goroutine only
	least      int64 // gateways that count at least until leastUntil
	leastUntil time.Time
	causes     map[string]bool // causes of this outage that were logged
}

//go:embed register.lua
var registerLua string

// Reasons not to use Redis: it is down, or too slow to be useful.
var (
	errAway = errors.New("Redis is unavailable")
	errSlow = errors.New("Redis answers too slowly")
)

const (
	// tripAfter is the number of failures in a row after which Redis is suspected. Fewer would
	// react to single lost connections; each failure costs a request at most the timeout.
	tripAfter = 5
	// confirmations is the number of probes in a row that must agree before Redis counts as too slow, or as up again
	// after an outage. With fewer, a Redis that is slow now and then would flap.
	confirmations = 3
	// probeTimeout is the shortest timeout of a probe. No request waits for it, so it allows for a process that lacks
	// CPU. It bounds the time until an outage is confirmed, and until the end of a hang
	// is found.
	probeTimeout = time.Second
	// probeEvery is the time between rounds of probes while Redis is down. Two per second find it within the two
	// seconds in which it must be used again.
	probeEvery = 500 * time.Millisecond
	// deniedPause is the time between tries to subscribe that the ACL of Redis does not permit.
	deniedPause = time.Minute
	// maxCauses bounds the log lines of one outage. A server fails in few ways, but an error text
	// that always differs would give a line per probe.
	maxCauses = 8
	// lease is the time for which other gateways count this one after its last renewal, and renewEvery
	// is the time between renewals. Two renewals may be lost.
	lease      = 15 * time.Second
	renewEvery = 5 * time.Second
	// poolSize bounds the connections, and the number of dials at once when Redis is available again.
	// Redis runs one script at a time: 32 connections keep it busy. The requests of further
	// connections would wait in Redis instead of here.
	poolSize = 32
)

const (
	// gatewaysKey holds the live gateways, by the end of their leases.
	gatewaysKey = "tierway:gateways"
	// changes is the channel on which gateways publish changes of the database.
	changes = "tierway:changed:directory"
)

// OpenRedis returns the Redis of a URL:
//
//	redis://[USER:PASSWORD@]HOST:PORT[/DB]                            rediss:// with TLS
//	redis+cluster://[USER:PASSWORD@]HOST:PORT,…                       rediss+cluster://
//	redis+sentinel://[USER:PASSWORD@]HOST:PORT,…/MASTER[/DB]          rediss+sentinel://
//
// It does not connect until the first use, so an unreachable Redis is no error. The error names the
// fault in the URL without repeating it.
func OpenRedis(c RedisConfig) (*Redis, error) {
	o, err := redisOptions(c.URL)
	if err != nil {
		return nil, err
	}
	logging.Disable() // clients write a line to stderr for each failed dial
	authenticate(o, c.PasswordFile)
	timeout := cmp.Or(c.Timeout, DefaultRedisTimeout)
	r := &Redis{client: newClient(*o, timeout, c.Dial), prober: newClient(*o, max(timeout, probeTimeout), c.Dial),
		timeout: timeout,
		gateway: c.Gateway, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)), recover: c.Recover.orNone(),
		tripped: make(chan struct{}, 1), register: redis.NewScript(registerLua), afterFunc: time.AfterFunc}
	r.gateways.Store(1)
	return r, nil
}

// authenticate sets how connections get their credentials. Sentinels get those of the master if they require any.
func authenticate(o *redis.UniversalOptions, passwordFile string) {
	user, password := o.Username, o.Password
	credentials := func(context.Context) (string, string, error) { return user, password, nil }
	if passwordFile != "" {
		credentials = func(context.Context) (string, string, error) {
			text, err := readPassword(passwordFile)
			return user, text, err
		}
		o.CredentialsProviderContext = credentials
	}
	if o.MasterName == "" {
		return
	}
	o.OnConnect = func(ctx context.Context, c *redis.Conn) error {
		// A connection to the master is authenticated already. Sentinels often have no password, and old ones refuse
		// credentials then.
		if err := c.Ping(ctx).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
			return err
		}
		user, password, err := credentials(ctx)
		switch {
		case err != nil:
			return err
		case user == "":
			err = c.Auth(ctx, password).Err()
		default:
			err = c.AuthACL(ctx, user, password).Err()
		}
		if err != nil {
			return fmt.Errorf("authenticating at a sentinel: %w", err)
		}
		return nil
	}
}

// newClient replaces unsuitable defaults of the client: a command would wait five seconds for a Redis that hangs,
// whatever its context, and would be retried three times.
func newClient(o redis.UniversalOptions, timeout time.Duration, dial dialFunc) redis.UniversalClient {
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.WriteTimeout = timeout, timeout
	o.DialTimeout = 2 * timeout // TLS takes several round trips
	o.Dialer = boundReplies(&o, dial)
	o.MaxRetries = -1 // the breaker decides; a script that was sent may have run
	o.DialerRetries = 1
	o.PoolSize = poolSize
	o.PipelinePoolSize = -1  // two goroutines use pipelines; they need no pool of their own
	o.DisableIdentity = true // CLIENT SETINFO is an error before Redis 7.2
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewUniversalClient(&o)
}

// Up reports whether requests may use Redis.
func (r *Redis) Up() bool { return !r.away.Load() }

// Gateway returns the random identifier of this gateway's process.
func (r *Redis) Gateway() string { return r.gateway }

// Gateways returns the number of live gateways that Redis last reported, including this one: at
// least 1.
func (r *Redis) Gateways() int { return int(max(1, r.gateways.Load())) }

// onBack adds a function that is called when Redis is available again. It must be called before Run. f must
// not block.
func (r *Redis) onBack(f func()) { r.backs = append(r.backs, f) }

// Close ends all connections. Run must have returned.
func (r *Redis) Close() error {
	err := r.prober.Close()
	if errors.Is(err, redis.ErrClosed) { // by Run
		err = nil
	}
	if err = errors.Join(err, r.client.Close()); err != nil {
		return fmt.Errorf("closing Redis: %w", err)
	}
	return nil
}

// do runs f unless Redis is down, for at most the timeout. The caller's cancellation does not end it
// early: a sent command may count, and the connection stays usable.
func (r *Redis) do(ctx context.Context, what string, f func(context.Context) error) error {
	return r.timed(ctx, what, f, false)
}

// timed runs f. If swift is set, an answer that takes more than half of the timeout counts as a failure, although it
// is used.
func (r *Redis) timed(ctx context.Context, what string, f func(context.Context) error, swift bool) error {
	if r.away.Load() {
		return fmt.Errorf("%s: %w", what, errAway)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	began := time.Now()
	err := f(ctx)
	switch slow := time.Since(began) > r.timeout/2; {
	case err != nil || !slow:
		r.countResult(err)
	case swift:
		r.countResult(errSlow)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// countResult counts failures in a row. An empty result is an answer.
func (r *Redis) countResult(err error) {
	if err == nil || errors.Is(err, redis.Nil) {
		if r.failures.Load() != 0 {
			r.failures.Store(0)
		}
		return
	}
	if r.failures.Add(1) >= tripAfter {
		r.suspect()
	}
}

// suspect makes Run probe Redis at once. Requests still use Redis: if this process was only paused or lacks CPU, its
// calls time out together, and the probe succeeds.
func (r *Redis) suspect() {
	if !r.suspected.CompareAndSwap(false, true) {
		return
	}
	select {
	case r.tripped <- struct{}{}:
	default:
	}
}

// confirmOutage keeps requests from using Redis after a failed probe. It logs once that Redis is down, and each further
// cause that a probe finds, so that the log has the current one.
func (r *Redis) confirmOutage(probe error) {
	r.suspected.Store(true)
	if r.away.CompareAndSwap(false, true) {
		r.causes = map[string]bool{causeKind(probe): true}
		r.log.Warn("Redis unavailable; enforcing this gateway's share of the limits", "cause", probe)
		return
	}
	if k := causeKind(probe); !r.causes[k] && len(r.causes) < maxCauses {
		r.causes[k] = true
		r.log.Warn("Redis still unavailable, with another cause", "cause", probe)
	}
}

// causeKind returns a text that is equal for causes with the same repair: the first word of Redis's own errors, such as
// OOM, one text for late answers and missing ones, and otherwise the error without digits, which are ports and times.
func causeKind(err error) string {
	if code, _, _ := strings.Cut(err.Error(), " "); code == strings.ToUpper(code) {
		return code
	}
	if op, ok := errors.AsType[*net.OpError](err); errors.Is(err, errSlow) || isTimeout(err) && (!ok || op.Op != "dial") {
		return "slow"
	}
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, err.Error())
}

// connectionLost reports whether a connection that was open has ended.
func connectionLost(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || ok && op.Op != "dial" && !op.Timeout()
}

// isTimeout reports whether a deadline has passed.
func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// Run keeps this gateway in the list of live gateways, probes Redis while it is down, and
// subscribes to changes, until ctx ends.
func (r *Redis) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.listen(ctx) })
	defer context.AfterFunc(ctx, func() { _ = r.prober.Close() })() // a probe of a Redis that hangs delays no stop
	// If Redis is down from the start, no request must wait for it.
	if err := r.recover("reaching Redis", func() error { return r.beat(ctx) }); err != nil {
		r.confirmOutage(err)
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	last := time.Now()
	for ctx.Err() == nil {
		// An error is a panic that recover has logged; the next beat follows on time.
		_ = r.recover("following Redis", func() error {
			select {
			case <-ctx.Done():
			case <-r.tripped:
				if r.suspected.Load() && !r.away.Load() && r.beat(ctx) == nil {
					last = time.Now()
				}
			case now := <-tick.C:
				if (r.suspected.Load() || now.Sub(last) >= renewEvery) && r.beat(ctx) == nil {
					last = now
				}
			}
			return nil
		})
	}
	wg.Wait()
	r.leave(ctx)
}

// beat renews this gateway's lease. It is also the probe: if it succeeds, a request's script will.
// Its failure counts like that of a request.
func (r *Redis) beat(ctx context.Context) error {
	n, err := r.confirm(ctx)
	if ctx.Err() != nil {
		return nil // it was interrupted
	}
	r.countResult(err)
	if err != nil {
		if r.suspected.Load() {
			r.confirmOutage(err)
		}
		return err
	}
	now := time.Now()
	if r.away.Load() { // it may have lost its list, which is whole after one lease
		r.least, r.leastUntil = int64(r.Gateways()), now.Add(lease)
	}
	if now.Before(r.leastUntil) {
		n = max(n, r.least)
	}
	r.gateways.Store(int32(min(n, 1<<20)))
	r.suspected.Store(false)
	if r.away.CompareAndSwap(true, false) {
		r.log.Info("Redis available again; sharing the limits with the other gateways", "gateways", r.Gateways())
		for _, f := range r.backs {
			f()
		}
		r.changed()
	}
	return nil
}

// confirm renews the lease and returns the number of live gateways. If Redis is suspected or down, it returns errSlow
// if Redis answers too slowly. A suspected Redis is too slow after three slow answers in a row. During an outage one
// slow answer suffices, and three in time end it.
func (r *Redis) confirm(ctx context.Context) (n int64, err error) {
	n, late, err := r.probe(ctx)
	if connectionLost(err) { // an idle connection may belong to a Redis process that has ended
		n, late, err = r.probe(ctx)
	}
	if err != nil || !r.suspected.Load() {
		return n, err
	}
	outage := r.away.Load()
	for i := 1; i < confirmations && late != outage; i++ {
		if n, late, err = r.probe(ctx); err != nil {
			return n, err
		}
	}
	if late {
		return n, errSlow
	}
	return n, nil
}

// probe renews the lease on the connection of the probes. late reports that half of the timeout, after which an
// answer is too slow for requests, has passed before the answer. This does not apply if the process lacks CPU: the
// timer is then as late as the answer.
func (r *Redis) probe(ctx context.Context) (n int64, late bool, err error) {
	limit, began := r.timeout/2, time.Now()
	var passed atomic.Bool
	timer := r.afterFunc(limit, func() { passed.Store(time.Since(began) < limit+limit/2) })
	defer timer.Stop()
	n, err = r.enlist(ctx, r.prober, max(2*r.timeout, probeTimeout), false) // a first connection must be dialled
	return n, passed.Load(), err
}

// enlist adds this gateway to the list of live gateways, or removes it.
func (r *Redis) enlist(ctx context.Context, c redis.UniversalClient, timeout time.Duration, leave bool) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return r.register.Run(ctx, c, []string{gatewaysKey}, r.gateway, lease.Milliseconds(), number(leave)).Int64()
}

// leave removes this gateway from the list. If that fails, its lease expires.
func (r *Redis) leave(ctx context.Context) {
	if r.Up() {
		if _, err := r.enlist(context.WithoutCancel(ctx), r.client, min(2*r.timeout, probeTimeout), true); err != nil {
			r.log.Debug("leaving the list of gateways", "cause", err)
		}
	}
}
