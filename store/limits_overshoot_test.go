package store

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/e2e/backends"
	"tierway/tenants"
)

// fleet is four gateways on the Redis of c with their background work. The journals log what a gateway
// decides alone.
func fleet(t testing.TB, c RedisConfig) (limits []*Limits, journals []*journal, stop func()) {
	t.Helper()
	var runs []func(context.Context)
	for _, id := range []string{"a", "b", "c", "d"} {
		// The result must not depend on the load of the machine: with this timeout no gateway
		// decides alone.
		c.Timeout, c.Gateway = patient, id
		r, err := OpenRedis(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		j := &journal{}
		l := NewLimits(LimitsConfig{Local: tenants.NewLimiter(), Redis: r, Gateways: 4,
			Log: slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		limits, journals, runs = append(limits, l), append(journals, j), append(runs, r.Run, l.Run)
	}
	return limits, journals, start(runs...)
}

// count is the usage that a fleet has admitted.
type count struct {
	asked, byRate, held, most, granted, spent atomic.Int64
}

// Four gateways under load from one tenant admit as many requests as one gateway would. Answers take 50 ms, so that the
// requests of all gateways are under way together.
func TestFourGatewaysAdmitNoMoreThanOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newLine(t)
		redis.slow(50 * time.Millisecond)
		if byRate, allowed := fourGatewaysAdmitNoMoreThanOne(t, redis.server(t)); byRate < allowed-2 {
			t.Errorf("%v are admitted, %.1f allowed", byRate, allowed)
		}
	})
}

// fourGatewaysAdmitNoMoreThanOne returns the requests that were admitted by a rate, and those that were allowed.
func fourGatewaysAdmitNoMoreThanOne(t *testing.T, server *redisServer) (byRate, allowed float64) {
	limits, journals, stop := fleet(t, server.config(""))
	defer stop()
	var n count
	began := time.Now()
	var wg sync.WaitGroup
	for _, l := range limits {
		for range 8 {
			wg.Go(func() { n.ask(t, l, 20) })
		}
	}
	wg.Wait()
	took := time.Since(began)
	allowed = 10 + took.Minutes()*60
	t.Logf("rpm 60: %d of %d requests admitted in %v, %.1f allowed", n.byRate.Load(), n.asked.Load(),
		took.Round(time.Millisecond), allowed)
	t.Logf("concurrent 8: at most %d at once, %d admitted", n.most.Load(), n.granted.Load())
	t.Logf("day_tokens 1000: %d spent, at most 8 requests of 10 under way", n.spent.Load())
	for _, j := range journals {
		if j.lines() > 0 {
			t.Errorf("a gateway decided alone: %.300s", j)
		}
	}
	byRate = float64(n.byRate.Load())
	if byRate > allowed+1 || byRate < 10 {
		t.Errorf("%v are admitted, %.1f allowed", byRate, allowed)
	}
	if n.most.Load() > 8 || n.granted.Load() < 8 {
		t.Errorf("%d are under way at once, of %d", n.most.Load(), n.granted.Load())
	}
	if spent := n.spent.Load(); spent < 1000 || spent >= 1000+8*10 {
		t.Errorf("%d tokens are spent", spent)
	}
	waitForAll(t, limits)
	for i := range 9 { // all slots are free
		_, v, err := limits[i%4].TakeCharge(t.Context(), &tenants.Charge{Caller: slots(), At: time.Now()})
		if err != nil || (v.Refused == "") != (i < 8) {
			t.Errorf("afterwards request %d is %+v, %v", i, v, err)
		}
	}
	return byRate, allowed
}

// slots returns a caller with eight slots.
func slots() *tenants.Caller {
	return tenants.NewCaller(tenants.Tenant{Name: "slots", Limits: tenants.Limits{Concurrent: 8}}, tenants.Key{})
}

// ask sends requests with a rate, a budget and slots in rounds. Each slot stays in use during two other requests.
func (n *count) ask(t *testing.T, l *Limits, rounds int) {
	rate := tenants.NewCaller(tenants.Tenant{Name: "rate", Limits: tenants.Limits{RPM: 60}}, tenants.Key{})
	budget := tenants.NewCaller(tenants.Tenant{Name: "budget", Limits: tenants.Limits{DayTokens: 1000, Concurrent: 8}},
		tenants.Key{})
	slots := slots()
	var mine *Grant
	take := func(c *tenants.Caller) *Grant {
		n.asked.Add(1)
		g, _, err := l.TakeCharge(t.Context(), &tenants.Charge{Caller: c, At: time.Now()})
		if err != nil {
			t.Error(err)
		}
		return g
	}
	end := func() {
		if mine != nil {
			n.held.Add(-1)
			mine.Settle(tenants.Used{})
			mine = nil
		}
	}
	for range rounds {
		if g := take(rate); g != nil {
			n.byRate.Add(1)
			g.Settle(tenants.Used{})
		}
		if g := take(budget); g != nil {
			n.spent.Add(10)
			g.Settle(tenants.Used{Tokens: 10})
		}
		if mine != nil {
			end()
		} else if mine = take(slots); mine != nil {
			n.granted.Add(1)
			now := n.held.Add(1)
			for m := n.most.Load(); now > m && !n.most.CompareAndSwap(m, now); m = n.most.Load() {
			}
		}
	}
	end()
}

// waitForAll waits until Redis has all settlements.
func waitForAll(t testing.TB, limits []*Limits) {
	t.Helper()
	eventually(t, func() bool {
		for _, l := range limits {
			if l.queue.Stats().Waiting != 0 || !l.local.Idle() {
				return false
			}
		}
		return true
	})
}

// RL-05: clients that leave during admission leave no slot behind.
func TestCancelledRequestsFreeTheirSlots(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		limits, _, stop := fleet(t, server.config(""))
		defer stop()
		c := callerWith(tenants.Limits{Concurrent: 2}, tenants.Limits{Concurrent: 2})
		var wg sync.WaitGroup
		for i := range 400 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					cancel()
				} else {
					go cancel()
				}
				if g, _, err := limits[i%4].TakeCharge(ctx, &tenants.Charge{Caller: c, At: time.Now()}); err == nil && g != nil {
					g.Settle(tenants.Used{Refund: i%2 == 0})
					g.Settle(tenants.Used{})
				}
			})
			if i%20 == 19 {
				wg.Wait()
			}
		}
		wg.Wait()
		waitForAll(t, limits)
		for i := range 3 {
			_, v, err := limits[0].TakeCharge(t.Context(), &tenants.Charge{Caller: c, At: time.Now()})
			if err != nil || (v.Refused == "") != (i < 2) {
				t.Errorf("afterwards request %d is %+v, %v", i, v, err)
			}
		}
	})
}

// heavy returns a caller with every limit, none of which is reached.
func heavy() *tenants.Caller {
	l := tenants.Limits{RPM: 1 << 40, RPS: 1 << 40, TPM: 1 << 50, Concurrent: 1 << 40, DayTokens: 1 << 60,
		MonthTokens: 1 << 60, DayMoney: 1 << 60, MonthMoney: 1 << 60}
	return callerWith(l, l)
}

func benchmark(b *testing.B, l *Limits, c *tenants.Caller) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		g, v, err := l.TakeCharge(b.Context(), &tenants.Charge{Caller: c, At: time.Now(), Tokens: 100})
		if err != nil || v.Refused != "" {
			b.Fatal(v, err)
		}
		g.Settle(tenants.Used{Tokens: 10, Money: 1})
	}
}

func BenchmarkTakeAndSettle(b *testing.B) {
	b.Run("without limits", func(b *testing.B) {
		benchmark(b, NewLimits(LimitsConfig{Local: tenants.NewLimiter()}), tenants.Anonymous())
	})
	b.Run("in memory", func(b *testing.B) { benchmark(b, NewLimits(LimitsConfig{Local: tenants.NewLimiter()}), heavy()) })
	for name, c := range map[string]*tenants.Caller{"every limit": heavy(),
		"rpm": callerWith(tenants.Limits{RPM: 1 << 40}, tenants.Limits{})} {
		b.Run("in Redis, "+name, func(b *testing.B) {
			limits, _, stop := fleet(b, realServer(b).config(""))
			defer stop()
			benchmark(b, limits[0], c)
		})
	}
	b.Run("while Redis is away", func(b *testing.B) {
		server := backends.Redis(b)
		limits, _, stop := fleet(b, RedisConfig{URL: server.URL})
		defer stop()
		server.Kill()
		eventually(b, func() bool {
			_, _, _ = limits[0].TakeCharge(b.Context(), &tenants.Charge{Caller: heavy(), At: time.Now()})
			return limits[0].Degraded()
		})
		benchmark(b, limits[0], heavy())
	})
}

// FuzzAnswers lets a script return anything: it is rejected or parsed, and never panics.
func FuzzAnswers(f *testing.F) {
	f.Add("0", "0", "0", int64(1), 2)
	f.Add("nan", "1e400", "-", int64(-1), 22)
	f.Fuzz(func(t *testing.T, a, b, c string, n int64, length int) {
		values := []any{n, n, a, b, c, nil, "0", "1.5", 1.5, true, []any{a}}
		r := reader{}
		for i := range min(max(0, length), 50) {
			r.values = append(r.values, values[(i*7+int(n&15)+11)%len(values)])
		}
		limit, place, wait := limitOf(r.int()), r.int(), r.int()
		got := [][3]float64{{r.float(), r.float(), r.float()}}
		l := tenants.NewLimiter()
		charge := &tenants.Charge{Caller: heavy(), At: noon()}
		for _, s := range l.BeginRemote(charge, nil) {
			l.UpdateShared(&s, r.sharedCounters())
		}
		if length < 6 && !r.wrong {
			t.Errorf("an answer of %d values is read", length)
		}
		tenants.RemoteAdmission(charge, limit, int(place), time.Duration(wait), got)
	})
}
