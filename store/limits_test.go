package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/tenants"
)

// noon is the last of a month, so that its day and month end together.
func noon() time.Time { return time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC) }

// callerWith returns a caller whose tenant and key have the given limits.
func callerWith(tenant, key tenants.Limits) *tenants.Caller {
	return tenants.NewCaller(tenants.Tenant{Name: "x", Limits: tenant}, tenants.Key{ID: "k", Limits: key})
}

// gateway is one gateway's limits, with a clock that the test moves and Redis's
// clock that follows it, if it can.
type gateway struct {
	*Limits
	t    testing.TB
	now  time.Time
	mini *line // nil: a real one, or none
	open []*Grant
}

// newGateway returns a gateway that shares a Redis, or one in memory whose clock it moves; nil and nil mean none.
func newGateway(t testing.TB, server *redisServer, id string, mini *line) *gateway {
	t.Helper()
	g := &gateway{t: t, now: noon(), mini: mini}
	c := LimitsConfig{Local: tenants.NewLimiter(), Now: func() time.Time { return g.now }}
	if mini != nil {
		server = mini.server(t)
	}
	if server != nil {
		r, err := OpenRedis(server.config(id))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		c.Redis = r
	}
	g.Limits = NewLimits(c)
	g.advance(0)
	return g
}

func (g *gateway) advance(d time.Duration) {
	g.now = g.now.Add(d)
	if g.mini != nil {
		g.mini.SetTime(g.now)
	}
}

func (g *gateway) take(c *tenants.Caller, tokens int64, ignore bool) tenants.Admission {
	g.t.Helper()
	charge := &tenants.Charge{Caller: c, At: g.now, Tokens: tokens, IgnoreBudget: ignore}
	grant, v, err := g.TakeCharge(g.t.Context(), charge)
	if err != nil || (grant == nil) != (v.Refused != "") {
		g.t.Fatalf("the grant is %v, the admission %+v, %v", grant, v, err)
	}
	if grant != nil {
		g.open = append(g.open, grant)
	}
	return v
}

// settle ends the oldest request in flight and updates Redis.
func (g *gateway) settle(u tenants.Used) {
	g.open[0].Settle(u)
	g.open = g.open[1:]
	g.drain()
}

// drain sends the waiting settlements, as Run does.
func (g *gateway) drain() {
	g.t.Helper()
	if err := g.queue.Flush(g.t.Context()); err != nil {
		g.t.Error(err)
	}
}

// RL-02, RL-05, RL-07, RL-13: limits have the same meaning in memory and in Redis.
func TestLimitsAgreeInMemoryAndInRedis(t *testing.T) {
	for name, steps := range cases() {
		for kind, redis := range map[string]func(t *testing.T) *line{"memory": func(*testing.T) *line { return nil },
			"redis": func(t *testing.T) *line { return newMini(t) }} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGateway(t, nil, "a", redis(t))
					g.run(steps)
					if g.Degraded() || g.redis != nil && g.redis.failures.Load() != 0 {
						t.Error("Redis is away")
					}
				})
			})
		}
	}
}

// The gateway's clock stands still.
func TestRatesRunOnRedisOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, newLine(t).server(t), "a", nil)
		caller := callerWith(tenants.Limits{RPM: 60, Burst: 2}, tenants.Limits{})
		for i := range 4 {
			v := g.take(caller, 0, false)
			if refused := i == 2; (v.Refused != "") != refused || refused && v.Wait != time.Second {
				t.Fatalf("request %d: %+v", i, v)
			}
			if v.Refused != "" {
				time.Sleep(v.Wait)
			}
		}
	})
}

// eventually waits until a condition holds, a minute at most.
func eventually(t testing.TB, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it has not come about in a minute")
		}
	}
}

func TestMemoryAndRedisAgreeOnEverySchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		rapid.Check(property{t}, func(rt *rapid.T) {
			mini.FlushAll()
			memory, shared := newGateway(t, nil, "a", nil), newGateway(t, nil, rapid.StringMatching(`[a-z]{8}`).Draw(rt, "id"),
				mini)
			small := rapid.Int64Range(0, 20)
			limits := rapid.Custom(func(rt *rapid.T) tenants.Limits {
				return tenants.Limits{RPM: small.Draw(rt, "rpm"), RPS: small.Draw(rt, "rps"), Burst: small.Draw(rt, "burst"),
					TPM:        10 * small.Draw(rt, "tpm"),
					TokenBurst: 10 * small.Draw(rt, "token burst"), Concurrent: small.Draw(rt, "concurrent"),
					DayTokens: 50 * small.Draw(rt, "day"), MonthMoney: tenants.Money(100 * small.Draw(rt, "month"))}
			})
			tenant, key := limits.Draw(rt, "tenant"), limits.Draw(rt, "key")
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				switch rapid.IntRange(0, 5).Draw(rt, "what") {
				case 0:
					d := time.Duration(rapid.IntRange(-1_000_000, 20_000_000).Draw(rt, "µs")) * time.Microsecond
					memory.advance(d)
					shared.advance(d)
				case 1:
					if len(memory.open) > 0 {
						u := tenants.Used{Tokens: small.Draw(rt, "used"), Money: tenants.Money(small.Draw(rt, "money")),
							Refund: rapid.Bool().Draw(rt, "refund")}
						memory.settle(u)
						shared.settle(u)
					}
				case 2:
					if rapid.IntRange(0, 5).Draw(rt, "reload") == 0 {
						tenant = limits.Draw(rt, "tenant")
					}
				default:
					tokens, ignore := 5*small.Draw(rt, "tokens"), rapid.Bool().Draw(rt, "ignore")
					a, b := memory.take(callerWith(tenant, key), tokens, ignore), shared.take(callerWith(tenant, key), tokens, ignore)
					if d := cmp.Diff(a, b); d != "" {
						rt.Fatalf("memory and Redis differ:\n%s", d)
					}
				}
			}
			if shared.Degraded() || shared.redis.failures.Load() != 0 {
				rt.Fatal("Redis is away")
			}
		})
	})
}

// RL-02: Redis's clock counts, not the gateways' clocks. If it steps back, nothing more is
// admitted.
func TestDifferentClocksAdmitNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := callerWith(tenants.Limits{RPM: 60}, tenants.Limits{})
		admitted := func(skew time.Duration, back time.Duration) (n int) {
			mini := newMini(t)
			a, b := newGateway(t, nil, "a", mini), newGateway(t, nil, "b", mini)
			at := noon()
			for i := range 240 {
				at = at.Add(250 * time.Millisecond)
				clock := at
				if i >= 120 && i < 160 {
					clock = clock.Add(-back)
				}
				mini.SetTime(clock)
				a.now, b.now = at.Add(skew), at.Add(-skew)
				if a.take(limits, 0, false).Refused == "" {
					n++
				}
				if b.take(limits, 0, false).Refused == "" {
					n++
				}
			}
			return n
		}
		want := admitted(0, 0)
		if want < 68 || want > 71 { // a minute's 60 and a burst of 10
			t.Fatalf("without skew %d are admitted", want)
		}
		for skew, back := range map[time.Duration]time.Duration{30 * time.Second: 0, -30 * time.Second: 0,
			time.Second: 10 * time.Second} {
			if got := admitted(skew, back); got < want-1 || got > want+1 {
				t.Errorf("gateways %v ahead and behind, Redis %v back: %d are admitted, not %d", skew, back, got, want)
			}
		}
	})
}

// SD-07: the slots of a killed gateway are free after its lease; those of a live one stay.
func TestSlotsOfAKilledGatewayExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		dead, alive, third := newGateway(t, nil, "dead", mini), newGateway(t, nil, "alive", mini),
			newGateway(t, nil, "third", mini)
		c := callerWith(tenants.Limits{Concurrent: 3}, tenants.Limits{})
		dead.take(c, 0, false)
		dead.take(c, 0, false)
		alive.take(c, 0, false)
		for _, s := range []struct {
			after time.Duration
			want  tenants.Limit
		}{{0, tenants.LimitConcurrent}, {5 * time.Second, tenants.LimitConcurrent},
			{9 * time.Second, tenants.LimitConcurrent},
			{2 * time.Second, ""}, {time.Second, ""}, {0, tenants.LimitConcurrent}} {
			dead.advance(s.after)
			third.now, alive.now = dead.now, dead.now
			alive.renewAll(t.Context())
			if v := third.take(c, 0, false); v.Refused != s.want {
				t.Fatalf("%v later it is %+v", s.after, v)
			}
		}
	})
}

// A message that is late, repeated or lost occupies no slot permanently.
func TestSlotsSurviveMessagesOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		rapid.Check(property{t}, func(rt *rapid.T) {
			mini.FlushAll()
			a, b := newGateway(t, nil, "a", mini), newGateway(t, nil, "b", mini)
			c := callerWith(tenants.Limits{Concurrent: 4}, tenants.Limits{})
			var late []counterUpdate
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				switch g := rapid.SampledFrom([]*gateway{a, b}).Draw(rt, "gateway"); rapid.IntRange(0, 3).Draw(rt, "what") {
				case 0, 1:
					g.take(c, 0, false)
				case 2:
					if len(g.open) > 0 {
						g.open[0].Settle(tenants.Used{})
						late = append(late, g.settlementUpdate(&Grant{charge: g.open[0].charge, shared: g.open[0].shared}))
						g.open = g.open[1:]
						g.queue = g.newQueue(queueSize) // its own update is never sent
					}
				default:
					if len(late) > 0 {
						i := rapid.IntRange(0, len(late)-1).Draw(rt, "which")
						a.sendUpdates(t.Context(), late[i:i+1]) // the script updates the gateway that the message names
						if rapid.Bool().Draw(rt, "once") {
							late = append(late[:i:i], late[i+1:]...)
						}
					}
				}
				if n := len(a.open) + len(b.open); n > 4 {
					rt.Fatalf("%d are under way", n)
				}
			}
			for _, g := range []*gateway{a, b} {
				for len(g.open) > 0 {
					g.settle(tenants.Used{})
				}
			}
			for i := range 5 {
				if v := a.take(c, 0, false); (v.Refused == "") != (i < 4) {
					rt.Fatalf("afterwards request %d is %+v", i, v)
				}
				if i == 0 { // b's last messages may have been late: its next ones, or its lease, correct the number
					if v := b.take(c, 0, false); v.Refused != "" {
						rt.Fatalf("afterwards it is %+v", v)
					}
					b.settle(tenants.Used{})
				}
			}
		})
	})
}

// A budget stays spent when Redis loses it, and nothing counts twice when replies are lost.
func TestSpentBudgetsSurviveFlushAll(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		a, b := newGateway(t, server, "a", nil), newGateway(t, server, "b", nil)
		c := callerWith(tenants.Limits{DayTokens: 100, MonthMoney: 1 << 59}, tenants.Limits{})
		spend := func(g *gateway, tokens int64) {
			g.take(c, 0, true)
			g.settle(tenants.Used{Tokens: tokens, Money: 1 << 55})
		}
		spend(a, 30)
		spend(b, 30)
		spend(a, 39)
		server.Do("FLUSHALL")
		if v := b.take(c, 0, false); v.Refused != "" { // b has received 60
			t.Fatalf("%+v", v)
		}
		b.settle(tenants.Used{})
		if v := a.take(c, 0, false); v.Refused != "" { // 99: a reports it, and nothing counts twice
			t.Fatalf("%+v", v)
		}
		a.settle(tenants.Used{Tokens: 1})
		for _, g := range []*gateway{b, a} {
			if v := g.take(c, 0, false); v.Refused != tenants.LimitDayTokens {
				t.Fatalf("%+v", v)
			}
			day, month := g.local.Spent("x", "", noon())
			if want := (tenants.Spent{Tokens: 100, Money: 3 << 55}); day != want || month != want {
				t.Errorf("it knows of %v and %v", day, month)
			}
		}
		server.Do("FLUSHALL")
		fresh := newGateway(t, server, "c", nil) // after a restart the ledger has it
		fresh.local.Seed("x", "", noon(), tenants.Spent{Tokens: 100}, tenants.Spent{})
		if v := fresh.take(c, 0, false); v.Refused != tenants.LimitDayTokens {
			t.Errorf("%+v", v)
		}
	})
}

func TestAGrantIsSettledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		for _, g := range []*gateway{newGateway(t, nil, "a", nil), newGateway(t, nil, "a", mini)} {
			c := callerWith(tenants.Limits{Concurrent: 3, DayTokens: 1000}, tenants.Limits{})
			for range 3 {
				g.take(c, 0, false)
			}
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { g.open[0].Settle(tenants.Used{Tokens: 7}) })
			}
			wg.Wait()
			g.drain()
			if day, _ := g.local.Spent("x", "", noon()); day.Tokens != 7 || g.local.Inflight("x", "") != 2 {
				t.Errorf("%v are spent, %d under way", day, g.local.Inflight("x", ""))
			}
		}
	})
}

// AU-02: a caller without limits uses no limiter.
func TestTakeWithoutLimitsUsesNoRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		g := newGateway(t, nil, "a", mini)
		before := mini.CommandCount()
		for range 10 {
			g.take(tenants.Anonymous(), 1<<40, false)
			g.settle(tenants.Used{Tokens: 5})
		}
		if mini.CommandCount() != before || len(mini.Keys()) != 0 {
			t.Errorf("%d commands, keys %v", mini.CommandCount()-before, mini.Keys())
		}
	})
}

func TestUnsentSettlementsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		g := newGateway(t, nil, "a", mini)
		c := callerWith(tenants.Limits{Concurrent: 2, DayTokens: 1 << 40}, tenants.Limits{})
		const size, more = 50, 5
		g.queue = g.newQueue(size)
		for range size + more {
			g.take(c, 0, false)
			g.open[0].Settle(tenants.Used{Tokens: 1})
			g.open = g.open[1:]
		}
		if s := g.queue.Stats(); s.Dropped != more || s.Waiting != size {
			t.Errorf("%d are dropped, %d wait", s.Dropped, s.Waiting)
		}
		g.renewAll(t.Context()) // one update covers all of them
		if got := mini.HGet(fmt.Sprintf("tierway:{x}:d%d", tenants.Day(noon())), "tokens"); got != fmt.Sprint(size+more) {
			t.Errorf("Redis has %s tokens", got)
		}
		g.drain()
		if got := mini.HGet(fmt.Sprintf("tierway:{x}:d%d", tenants.Day(noon())), "tokens"); got != fmt.Sprint(size+more) {
			t.Errorf("after two messages Redis has %s tokens", got)
		}
	})
}

func TestRemainingSettlementsAreSentAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := newMini(t)
		g := newGateway(t, nil, "a", mini)
		c := callerWith(tenants.Limits{DayTokens: 1 << 40}, tenants.Limits{})
		for range 250 {
			g.take(c, 0, false)
			g.open[0].Settle(tenants.Used{Tokens: 1})
			g.open = g.open[1:]
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		g.Run(ctx)
		if got := mini.HGet(fmt.Sprintf("tierway:{x}:d%d", tenants.Day(noon())), "tokens"); got != "250" ||
			g.queue.Stats().Waiting != 0 {
			t.Errorf("Redis has %s tokens, %d settlements wait", got, g.queue.Stats().Waiting)
		}
		alone := newGateway(t, nil, "a", nil)
		alone.Run(ctx)
		_, _, err := alone.TakeCharge(ctx, &tenants.Charge{Caller: c, At: noon()})
		if err != nil || errors.Is(err, ErrLimitsAway) {
			t.Error(err)
		}
	})
}
