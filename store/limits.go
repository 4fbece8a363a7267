package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"tierway/spool"
	"tierway/tenants"
)

// ErrLimitsAway means that a request of a tenant with fail_closed is not admitted, because Redis, which
// counts the requests of all gateways, is unavailable.
var ErrLimitsAway = errors.New("the shared limits are unavailable")

// LimitsConfig configures Limits.
type LimitsConfig struct {
	Local    *tenants.Limiter
	Redis    *Redis           // nil: this gateway decides alone
	Gateways int              // maximum number of gateways if Redis does not count them; 0: one
	Log      *slog.Logger     // nil: no log
	Now      func() time.Time // nil: time.Now
	Recover  Recover          // nil: a panic ends the process
}

// Limits admits requests against the limits of tenants and keys. It decides in Redis for all
// gateways together, or in this process if Redis is absent or unavailable. It is safe for
// concurrent use.
type Limits struct {
	local    *tenants.Limiter
	redis    *Redis
	gateways atomic.Int64
	log      *slog.Logger
	now      func() time.Time
	recover  Recover
	queue    *spool.Spool[*Grant] // settlements that wait for Redis
	renew    chan struct{}

	takeScript, settleScript *redis.Script
}

// Grant is one admitted request. The caller must settle it.
type Grant struct {
	limits *Limits
	charge *tenants.Charge
	shared bool // admitted by Redis, not by this gateway alone
	done   atomic.Bool
	used   tenants.Used // set by Settle
}

const (
	// queueSize is the maximum number of settlements that wait for Redis: one second of a busy
	// gateway. Each takes about 100 bytes.
	queueSize = 10_000
	// batch is the number of scripts in one pipeline. Redis runs them in 5 ms, within the timeout
	// of each reply.
	batch = 100
)

// NewLimits returns limits. Run must be called to send settlements to Redis.
func NewLimits(c LimitsConfig) *Limits {
	l := &Limits{local: c.Local, redis: c.Redis, log: cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		now: c.Now, recover: c.Recover.orNone(), renew: make(chan struct{}, 1),
		takeScript: redis.NewScript(limitsLua + takeLua), settleScript: redis.NewScript(limitsLua + settleLua)}
	l.queue = l.newQueue(queueSize)
	l.SetGateways(c.Gateways)
	if l.now == nil {
		l.now = time.Now
	}
	if l.redis != nil {
		l.redis.onBack(func() {
			select {
			case l.renew <- struct{}{}:
			default:
			}
		})
	}
	return l
}

// newQueue returns the spool that sends settlements; size bounds how many wait. A failed settlement
// is not retried: the renewal corrects the sums.
func (l *Limits) newQueue(size int) *spool.Spool[*Grant] {
	return spool.New(spool.Config[*Grant]{Max: size, Batch: batch,
		Write: func(ctx context.Context, all []*Grant) (int, error) {
			l.guarded("sending settlements to Redis", func() { l.sendSettlements(ctx, all) })
			return 0, nil
		}})
}

// SetGateways sets the maximum number of gateways for times when Redis does not count them.
func (l *Limits) SetGateways(n int) { l.gateways.Store(int64(max(1, n))) }

// TakeCharge admits or refuses a request at c.At. A refused request has no grant and no reservation. It
// waits no longer than the timeout for a Redis that hangs, and not at all for one that is known to be down. The
// only error is ErrLimitsAway.
func (l *Limits) TakeCharge(ctx context.Context, c *tenants.Charge) (*Grant, tenants.Admission, error) {
	g := &Grant{limits: l, charge: c}
	if len(c.Caller.Subjects) == 0 {
		return g, tenants.Admission{}, nil
	}
	v, err := l.decide(ctx, g)
	if err != nil || v.Refused != "" {
		return nil, v, err
	}
	return g, v, nil
}

// decide lets Redis decide, or this gateway alone if Redis does not answer.
func (l *Limits) decide(ctx context.Context, g *Grant) (tenants.Admission, error) {
	if l.redis != nil {
		v, err := tenants.Admission{}, errAway
		if l.redis.Up() {
			v, err = l.decideInRedis(ctx, g.charge)
		}
		if g.shared = err == nil; g.shared {
			return v, nil
		}
		l.log.Debug("Redis did not decide about a limit", "cause", err)
		if caller := g.charge.Caller; caller.FailClosed {
			return tenants.Admission{}, fmt.Errorf("admitting a request of tenant %s: %w", caller.Tenant, ErrLimitsAway)
		}
	}
	return l.local.TakeCharge(g.charge, l.share()), nil
}

// share returns the number of gateways that share the limits while this one decides alone.
func (l *Limits) share() int {
	if l.redis == nil {
		return int(l.gateways.Load())
	}
	return max(int(l.gateways.Load()), l.redis.Gateways())
}

// decideInRedis lets Redis decide. It also books the admitted request in this process, which continues
// from there when Redis becomes unavailable.
func (l *Limits) decideInRedis(ctx context.Context, c *tenants.Charge) (tenants.Admission, error) {
	var buf [2]tenants.SubjectState
	states := l.local.BeginRemote(c, buf[:0])
	var v tenants.Admission
	err := l.redis.timed(ctx, "taking from limits", func(ctx context.Context) (err error) {
		v, err = l.runTakeScript(ctx, c, states)
		return err
	}, true)
	if err != nil || v.Refused != "" {
		l.local.AbortRemote(c)
	} else {
		l.local.CommitRemote(c)
	}
	return v, err
}

// Settle ends the request: it frees the slot, corrects the reservation and books the usage. Only the
// first call counts. It never waits: Redis is updated a moment later. If the message is lost, only the
// rate correction is lost; the reservation decays. Slots and budgets are sent as totals, again with the
// next message about the same subject or the renewal every 5 s.
func (g *Grant) Settle(u tenants.Used) {
	if g.done.Swap(true) || len(g.charge.Caller.Subjects) == 0 {
		return
	}
	l := g.limits
	l.local.SettleCharge(g.charge, u, l.now())
	g.used = u
	if l.redis != nil && l.redis.Up() && g.changesRedis() {
		l.queue.Add(g)
	}
}

// Degraded reports whether this gateway decides alone although Redis is configured.
func (l *Limits) Degraded() bool { return l.redis != nil && !l.redis.Up() }

// Run sends settlements to Redis, and every 5 s the state of this gateway, until ctx ends. It then
// sends the remaining settlements.
func (l *Limits) Run(ctx context.Context) {
	if l.redis == nil {
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { l.queue.Run(ctx) })
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.renew:
		}
		l.guarded("renewing the state of limits in Redis", func() { l.renewAll(ctx) })
	}
}

// guarded runs a step without an error. After a panic, which recover has logged, the next step runs
// as usual.
func (l *Limits) guarded(work string, step func()) {
	_ = l.recover(work, func() error {
		step()
		return nil
	})
}

// Peek returns the decision that TakeCharge would make, as far as this gateway knows, and the use of each
// limit. It sends no request to Redis and reserves nothing. While Redis decides, rates and requests
// in flight are those of this gateway; budgets are those of all gateways, as last received. partial
// reports this case. The only error is ErrLimitsAway.
func (l *Limits) Peek(c *tenants.Charge) (v tenants.Admission, uses []tenants.Use, partial bool, err error) {
	partial = l.redis != nil && l.redis.Up()
	if l.redis != nil && !partial && c.Caller.FailClosed {
		return v, nil, false, fmt.Errorf("peeking at the limits of tenant %s: %w", c.Caller.Tenant, ErrLimitsAway)
	}
	share := l.share()
	if partial {
		share = 1 // Redis keeps the whole of each limit
	}
	v, uses = l.local.Peek(c, share)
	return v, uses, partial, nil
}
