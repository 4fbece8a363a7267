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

// ErrLimitsAway is why a request of a fail-closed tenant is not admitted: Redis
// cannot say what other gateways admit.
var ErrLimitsAway = errors.New("the shared limits are away")

// LimitsConfig says what Limits decide with.
type LimitsConfig struct {
	Local    *tenants.Limiter
	Redis    *Redis           // nil: this gateway decides alone
	Gateways int              // how many there are at most, where Redis does not say; 0: one
	Log      *slog.Logger     // nil: none
	Now      func() time.Time // nil: time.Now
	Recover  Recover          // nil: a panic ends the process
}

// Limits admit requests against the limits of tenants and keys: in Redis, for all
// gateways together, or in this process where there is none or it is away. They
// are safe for concurrent use.
type Limits struct {
	local    *tenants.Limiter
	redis    *Redis
	gateways atomic.Int64
	log      *slog.Logger
	now      func() time.Time
	recover  Recover
	queue    *spool.Spool[*Grant] // settled, as Redis is still to hear
	renew    chan struct{}

	takeScript, settleScript *redis.Script
}

// Grant is one admitted request. It must be settled.
type Grant struct {
	limits *Limits
	charge *tenants.Charge
	shared bool // admitted by Redis, not by this gateway alone
	done   atomic.Bool
	used   tenants.Used // once it is done
}

const (
	// queueSize is how many settlements wait for Redis: a second of a busy gateway.
	// Its memory is theirs alone, about 100 bytes each.
	queueSize = 10_000
	// batch is how many scripts go to Redis at once. It runs them in 5 ms, within
	// the patience that each reply has.
	batch = 100
)

// NewLimits returns limits. Nothing is told to Redis until Run.
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
		l.redis.onBack = func() {
			select {
			case l.renew <- struct{}{}:
			default:
			}
		}
	}
	return l
}

// newQueue returns what sends settlements, of which so many wait. Those that Redis
// does not take are not sent again: renewal repairs what is lost with them.
func (l *Limits) newQueue(size int) *spool.Spool[*Grant] {
	return spool.New(spool.Config[*Grant]{Max: size, Batch: batch, Write: func(ctx context.Context, all []*Grant) (int, error) {
		l.guarded("sending settlements to Redis", func() { l.send(ctx, all) })
		return 0, nil
	}})
}

// SetGateways says how many gateways there are at most, where Redis does not say.
func (l *Limits) SetGateways(n int) { l.gateways.Store(int64(max(1, n))) }

// Take admits or refuses a request at c.At. A refused one has no grant and is
// booked nowhere. It loses no more than 50 ms to a Redis that hangs, and nothing
// to one that is known to be away. The only error is ErrLimitsAway.
func (l *Limits) Take(ctx context.Context, c *tenants.Charge) (*Grant, tenants.Admission, error) {
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

// decide has Redis decide, else this gateway alone.
func (l *Limits) decide(ctx context.Context, g *Grant) (tenants.Admission, error) {
	if l.redis != nil {
		v, err := tenants.Admission{}, errAway
		if l.redis.Up() {
			v, err = l.ask(ctx, g.charge)
		}
		if g.shared = err == nil; g.shared {
			return v, nil
		}
		l.log.Debug("a limit was not asked of Redis", "error", err)
		if caller := g.charge.Caller; caller.FailClosed {
			return tenants.Admission{}, fmt.Errorf("admitting a request of tenant %s: %w", caller.Tenant, ErrLimitsAway)
		}
	}
	return l.local.Take(g.charge, l.share()), nil
}

// share returns of how many gateways this is one that decides alone.
func (l *Limits) share() int {
	if l.redis == nil {
		return int(l.gateways.Load())
	}
	return max(int(l.gateways.Load()), l.redis.Gateways())
}

// ask has Redis decide, and books here what it admits: an outage starts from
// there.
func (l *Limits) ask(ctx context.Context, c *tenants.Charge) (tenants.Admission, error) {
	var buf [2]tenants.SubjectState
	states := l.local.BeginRemote(c, buf[:0])
	var v tenants.Admission
	err := l.redis.timed(ctx, "taking from limits", func(ctx context.Context) (err error) {
		v, err = l.take(ctx, c, states)
		return err
	}, true)
	if err != nil || v.Refused != "" {
		l.local.AbortRemote(c)
	} else {
		l.local.CommitRemote(c)
	}
	return v, err
}

// Settle ends the request: its slot is free, its reservation corrected, and what it used
// is booked. Only the first call counts. It never waits: Redis is updated a moment later.
// If that message is lost, only the correction of the rates is lost; the reservation
// decays. Slots and budgets are sent as sums, with the next message about the same subject
// or the renewal every 5 s.
func (g *Grant) Settle(u tenants.Used) {
	if g.done.Swap(true) || len(g.charge.Caller.Subjects) == 0 {
		return
	}
	l := g.limits
	l.local.Settle(g.charge, u, l.now())
	g.used = u
	if l.redis != nil && l.redis.Up() && g.matters() {
		l.queue.Add(g)
	}
}

// Degraded reports whether this gateway decides alone although there is a Redis.
func (l *Limits) Degraded() bool { return l.redis != nil && !l.redis.Up() }

// Dropped returns how many settlements Redis was not told of because too many
// waited.
func (l *Limits) Dropped() int64 { return l.queue.Stats().Dropped }

// Run tells Redis what was settled, and every 5 s what this gateway holds, until
// ctx ends; what waits then is still told.
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
		l.guarded("renewing what Redis knows of limits", func() { l.renewAll(ctx) })
	}
}

// guarded runs a step that has no error. After a panic, which recover has logged,
// the next step follows as usual.
func (l *Limits) guarded(work string, step func()) {
	_ = l.recover(work, func() error {
		step()
		return nil
	})
}

// Peek says what Take would say of a charge, as far as this gateway knows, and how
// far each limit is used. It asks nobody and books nothing. While Redis decides, the
// rates and the requests under way are those that this gateway admitted, and the
// budgets those of all gateways as last heard; partial tells so. The only error is
// ErrLimitsAway.
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
