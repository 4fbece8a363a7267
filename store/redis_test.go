package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"tierway/tenants"
)

// journal is a log that several goroutines write.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) lines() int { return strings.Count(j.String(), "\n") }

// watched is a Redis with a recorded log.
type watched struct {
	*Redis
	log journal
}

// states returns the logged changes: true when Redis became available, false when it became
// unavailable.
func (w *watched) states() (up []bool) {
	for line := range strings.Lines(w.log.String()) {
		if back := strings.Contains(line, "Redis available again"); back || strings.Contains(line, "Redis unavailable") {
			up = append(up, back)
		}
	}
	return up
}

// patient is the timeout of tests that are not about time: a busy machine is no outage.
const patient = time.Minute

// openRedis returns the Redis of a new gateway, with a recorded log.
func openRedis(t testing.TB, c RedisConfig) *watched {
	t.Helper()
	w := &watched{}
	c.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	r, err := OpenRedis(c)
	if err != nil {
		t.Fatal(err)
	}
	w.Redis = r
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// addHook adds a hook to requests and to probes.
func (w *watched) addHook(h redis.Hook) {
	w.client.AddHook(h)
	w.prober.AddHook(h)
}

// limits returns Limits on this Redis with the same log.
func (w *watched) limits(gateways int) *Limits {
	return NewLimits(LimitsConfig{Local: tenants.NewLimiter(), Redis: w.Redis, Gateways: gateways, Log: w.Redis.log})
}

// start runs what blocks until the returned function is called.
func start(runs ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() { run(ctx) })
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// failing is a hook that makes every command fail with err, if set.
type failing struct {
	err   atomic.Pointer[error]
	late  atomic.Int64 // ns that this process takes to read a reply
	calls atomic.Int64
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f.calls.Add(1)
		if err := f.err.Load(); err != nil {
			cmd.SetErr(*err)
			return *err
		}
		err := f.readLate(ctx, next(ctx, cmd))
		cmd.SetErr(err)
		return err
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return f.readLate(ctx, next(ctx, cmds)) }
}

// readLate returns err, or the error of a timeout, after the time that this process takes.
func (f *failing) readLate(ctx context.Context, err error) error {
	if time.Sleep(time.Duration(f.late.Load())); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// RS-07: the breaker sees the errors themselves. Once a probe has failed too, no command is sent.
func TestRedisIsDownAfterFiveFailuresInARow(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		away bool
	}{
		"a refused connection": {&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		"a timeout":            {context.DeadlineExceeded, true},
		"an answer of its own": {errors.New("READONLY You can't write against a read only replica."), true},
		"nothing there":        {redis.Nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, hook := newLine(t).open(t, RedisConfig{Timeout: patient}), &failing{}
				w.addHook(hook)
				ask := func() error {
					return w.do(t.Context(), "asking", func(ctx context.Context) error { return w.client.Get(ctx, "x").Err() })
				}
				hook.err.Store(&c.err)
				for range tripAfter - 1 {
					if err := ask(); !errors.Is(err, c.err) || !w.Up() {
						t.Fatalf("it is up: %v, %v", w.Up(), err)
					}
				}
				hook.err.Store(nil)
				if err := ask(); !errors.Is(err, redis.Nil) { // an answer resets the count
					t.Fatal(err)
				}
				hook.err.Store(&c.err)
				for range tripAfter {
					_ = ask()
				}
				if !w.Up() || w.log.lines() != 0 {
					t.Errorf("before a probe has failed too it is up: %v, and the log has:\n%s", w.Up(), w.log.String())
				}
				if c.away {
					if err := w.beat(t.Context()); err == nil {
						t.Error("a probe succeeds")
					}
				}
				if w.Up() == c.away {
					t.Errorf("it is up: %v", w.Up())
				}
				before := hook.calls.Load()
				for range 100 {
					_ = ask()
				}
				if touched := hook.calls.Load() - before; c.away && touched != 0 || !c.away && touched != 100 {
					t.Errorf("it is asked %d times more", touched)
				}
				if c.away && (w.log.lines() != 1 || len(w.states()) != 1 || w.states()[0]) {
					t.Errorf("it is told %v:\n%s", w.states(), w.log.String())
				}
			})
		})
	}
}

// outage is a gateway with limits at the end of a line, and a caller with limits that are not reached.
type outage struct {
	t      *testing.T
	line   *line
	redis  *watched
	limits *Limits
	caller *tenants.Caller
	asked  int64 // tokens
}

// newOutage returns a gateway in a bubble that has used Redis.
func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{t: t, line: newLine(t), caller: callerWith(
		tenants.Limits{RPM: 60_000, Burst: 60_000, Concurrent: 1000, DayTokens: 1 << 40}, tenants.Limits{})}
	o.redis = o.line.open(t, RedisConfig{})
	o.limits = o.redis.limits(2)
	t.Cleanup(start(o.redis.Run, o.limits.Run))
	for range 50 {
		o.ask()
	}
	synctest.Wait()
	if o.limits.Degraded() {
		t.Fatal("it is degraded")
	}
	return o
}

// ask sends one request and returns its wait for Redis.
func (o *outage) ask() time.Duration {
	o.t.Helper()
	began := time.Now()
	g, v, err := o.limits.TakeCharge(o.t.Context(), &tenants.Charge{Caller: o.caller, At: began, Tokens: 1})
	took := time.Since(began)
	if err != nil || v.Refused != "" {
		o.t.Fatalf("%+v, %v", v, err)
	}
	g.Settle(tenants.Used{Tokens: 1})
	o.asked++
	return took
}

// askEvery is the time between the requests of askMany.
const askEvery = 10 * time.Millisecond

// askMany sends n requests with a pause after each. It returns how many of them waited for Redis, and the longest wait.
func (o *outage) askMany(n int) (waited int, longest time.Duration) {
	o.t.Helper()
	for range n {
		took := o.ask()
		if longest = max(longest, took); took > 0 {
			waited++
		}
		time.Sleep(askEvery)
	}
	return waited, longest
}

// back returns the time until Redis is used again.
func (o *outage) back() time.Duration {
	began := time.Now()
	for !o.redis.Up() {
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// RS-01, RS-02, RS-08: whether Redis is killed, hangs or is slow, requests lose at most the timeout each: five, and
// those that begin before the probe confirms the outage. The log has one line for each change, and Redis is used again
// without help. The spending of the outage is sent to it.
func TestRedisOutageDelaysFewRequests(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end    func(*line)
		wait, longest time.Duration // of a request; of a slow answer, one may also wait for a new connection
		probe         time.Duration // time until the outage is confirmed
		cause         string
	}{
		"killed": {(*line).kill, (*line).restart, 0, 0, 0, "refused"},
		"hung":   {(*line).hang, (*line).resume, DefaultRedisTimeout, DefaultRedisTimeout, probeTimeout, "timeout"},
		"slow": {func(l *line) { l.slow(30 * time.Millisecond) }, func(l *line) { l.slow(0) }, 30 * time.Millisecond,
			DefaultRedisTimeout, confirmations * 30 * time.Millisecond, "slow"},
		"very slow": {func(l *line) { l.slow(time.Minute) }, func(l *line) { l.slow(0) }, DefaultRedisTimeout,
			DefaultRedisTimeout, probeTimeout, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutage(t)
				c.begin(o.line)
				waited, longest := o.askMany(500)
				most := tripAfter + int(c.probe/(c.wait+askEvery)) + 1
				if !o.limits.Degraded() || waited > most || longest > c.longest {
					t.Errorf("degraded: %v; %d requests waited for up to %v", o.limits.Degraded(), waited, longest)
				}
				if log := o.redis.log.String(); o.redis.log.lines() != 1 || !strings.Contains(log, c.cause) {
					t.Errorf("the log has:\n%s", log)
				}
				c.end(o.line)
				if took := o.back(); took > 2*time.Second {
					t.Errorf("it is used again after %v", took)
				}
				if took := o.ask(); took != 0 {
					t.Errorf("afterwards a request waits %v", took)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if got := o.redis.log.lines(); got != 2 || strings.Contains(o.redis.log.String(), "level=ERROR") {
					t.Errorf("the log has %d lines:\n%s", got, o.redis.log.String())
				}
				spent := o.line.HGet(fmt.Sprintf("tierway:{x}:d%d", tenants.Day(time.Now())), "tokens")
				if spent != fmt.Sprint(o.asked) {
					t.Errorf("Redis has %s tokens, %d are spent", spent, o.asked)
				}
			})
		})
	}
}

// A Redis that is slow now and then stays in its state: in use, or away after an outage. Otherwise it flaps.
func TestRedisThatIsSlowNowAndThenDoesNotFlap(t *testing.T) {
	for _, nth := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutage(t)
			o.line.slowEach(nth, DefaultRedisTimeout*3/5)
			o.askMany(100)
			if o.redis.log.lines() != 0 || !o.redis.Up() {
				t.Errorf("each answer of %d is late: the log has:\n%s", nth, o.redis.log.String())
			}
			o.line.slow(DefaultRedisTimeout * 3 / 5)
			o.askMany(100)
			o.line.slowEach(nth, DefaultRedisTimeout*3/5)
			o.askMany(1000)
			synctest.Wait() // the log follows the state
			if o.redis.log.lines() != 1 || o.redis.Up() {
				t.Errorf("after an outage each answer of %d is late: the log has:\n%s", nth, o.redis.log.String())
			}
		})
	}
}

// A gateway without CPU reads answers late that Redis sent in time. Its calls fail, or count as slow, and the probe on
// another connection finds Redis well: it is used again at once, and nothing is logged.
func TestLackOfCPUIsNoFaultOfRedis(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"answers are read late":     DefaultRedisTimeout * 3 / 5,
		"answers are read too late": DefaultRedisTimeout * 2,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, hook := newOutage(t), &failing{}
				o.redis.client.AddHook(hook)
				hook.late.Store(int64(late))
				var probes atomic.Int64
				o.redis.afterFunc = func(d time.Duration, f func()) *time.Timer { probes.Add(1); return time.AfterFunc(d, f) }
				for range 100 {
					o.ask()
					synctest.Wait() // a probe takes no time
					if !o.redis.Up() {
						t.Fatal("Redis counts as down")
					}
				}
				if n := probes.Load(); n < 100/tripAfter || o.redis.log.lines() != 0 {
					t.Errorf("after %d probes the log has:\n%s", n, o.redis.log.String())
				}
			})
		})
	}
}

// The probes of a gateway without CPU are late too. So is the timer that measures them, which tells both cases apart.
func TestLateProbesOfAGatewayWithoutCPUAreNoFaultOfRedis(t *testing.T) {
	for _, c := range []struct {
		timer time.Duration // its delay
		down  bool
	}{{0, true}, {DefaultRedisTimeout / 10, true}, {DefaultRedisTimeout, false}} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutage(t)
			synctest.Wait()
			o.redis.afterFunc = func(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d+c.timer, f) }
			o.line.slow(3 * DefaultRedisTimeout)
			o.askMany(200)
			if down := o.redis.log.lines() == 1; down != c.down {
				t.Errorf("with a timer that is %v late the log has:\n%s", c.timer, o.redis.log.String())
			}
		})
	}
}

// The timeout is what the configuration says, and so is the time from which an answer is slow.
func TestRedisTimeoutIsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		w := l.open(t, RedisConfig{Timeout: 2 * time.Second})
		defer start(w.Run)()
		get := func() (took time.Duration, err error) {
			began := time.Now()
			err = w.timed(t.Context(), "asking", func(ctx context.Context) error { return w.client.Get(ctx, "x").Err() }, true)
			return time.Since(began), err
		}
		l.slow(900 * time.Millisecond)
		for range 2 * tripAfter {
			if _, err := get(); !errors.Is(err, redis.Nil) || !w.Up() {
				t.Fatalf("up: %v, %v", w.Up(), err)
			}
		}
		l.hang()
		if took, err := get(); took != 2*time.Second || !isTimeout(err) {
			t.Errorf("after %v: %v", took, err)
		}
		l.resume()
	})
}

// RS-04: while Redis is unavailable a gateway enforces its share; fail-closed tenants are refused.
func TestGatewayEnforcesItsShareDuringARedisOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := newLine(t)
		w := link.open(t, RedisConfig{Timeout: patient})
		l := w.limits(4)
		caller := func(closed bool) *tenants.Caller {
			return tenants.NewCaller(tenants.Tenant{Name: "x", Limits: tenants.Limits{RPM: 60, Burst: 40}, FailClosed: closed},
				tenants.Key{})
		}
		take := func(closed bool) (tenants.Admission, error) {
			_, v, err := l.TakeCharge(t.Context(), &tenants.Charge{Caller: caller(closed), At: noon()})
			return v, err
		}
		if v, err := take(true); err != nil || v.Refused != "" {
			t.Fatalf("%+v, %v", v, err)
		}
		link.SetError("LOADING Redis is loading the dataset in memory")
		for range tripAfter {
			if w.beat(t.Context()) == nil {
				t.Fatal("a probe succeeds")
			}
		}
		admitted := 0
		for range 40 {
			if v, err := take(false); err != nil {
				t.Fatal(err)
			} else if v.Refused == "" {
				admitted++
			}
		}
		if admitted != 9 { // 40 in flight are 10 for one of 4, and Redis has admitted one
			t.Errorf("%d are admitted", admitted)
		}
		if v, err := take(true); !errors.Is(err, ErrLimitsAway) || v.Refused != "" {
			t.Errorf("a tenant that fails closed: %+v, %v", v, err)
		}
		w.gateways.Store(7) // the last number that Redis reported
		if l.share() != 7 || !l.Degraded() {
			t.Errorf("it is one of %d", l.share())
		}
	})
}

// RS-05: invalid replies send requests to the local limits. Redis counts as down after five, and
// recovers by itself.
func TestInvalidRedisRepliesFailNoRequest(t *testing.T) {
	for _, answer := range []string{
		"READONLY You can't write against a read only replica.", "OOM command not allowed when used memory > 'maxmemory'.",
		"LOADING Redis is loading the dataset in memory", "CLUSTERDOWN The cluster is down",
		"MASTERDOWN Link with MASTER is down",
		"NOSCRIPT No matching script. Please use EVAL.", "WRONGTYPE Operation against a key holding the wrong kind of value",
		"NOAUTH Authentication required.", "",
	} {
		t.Run(answer, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOutage(t)
				o.line.SetError(answer)
				for range 20 {
					o.ask()
				}
				synctest.Wait() // a probe takes no time
				if o.limits.Degraded() != (answer != "") {
					t.Errorf("degraded: %v", o.limits.Degraded())
				}
				o.line.SetError("")
				o.back()
				o.ask()
				time.Sleep(renewEvery)
				synctest.Wait()
				spent := o.line.HGet(fmt.Sprintf("tierway:{x}:d%d", tenants.Day(time.Now())), "tokens")
				if o.limits.Degraded() || spent != fmt.Sprint(o.asked) {
					t.Errorf("degraded: %v; Redis has %s tokens, %d are spent", o.limits.Degraded(), spent, o.asked)
				}
			})
		})
	}
}

// RS-05: scripts that Redis has lost are loaded again, in pipelines too.
func TestLostScriptsAreLoadedAgain(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		g := newGateway(t, server, "a", nil)
		c := callerWith(tenants.Limits{RPM: 600, DayTokens: 1000}, tenants.Limits{})
		for i := range 3 {
			if got := server.Do("SCRIPT FLUSH"); got != "+OK" {
				t.Fatal(got)
			}
			g.take(c, 0, false)
			server.Do("SCRIPT FLUSH")
			g.settle(tenants.Used{Tokens: 1})
			if g.redis.failures.Load() != 0 {
				t.Error("a lost script counts as a failure")
			}
			if got := server.Do(fmt.Sprintf("HGET tierway:{x}:d%d tokens", tenants.Day(noon()))); got != "$1" {
				t.Errorf("after %d rounds Redis says %s", i, got)
			}
		}
	})
}

// RS-05: whatever our keys contain, no request fails, and limits are enforced again.
func TestInvalidRedisContentsAreReplaced(t *testing.T) {
	day, month := fmt.Sprintf("tierway:{x}:d%d", tenants.Day(noon())),
		fmt.Sprintf("tierway:{x}:m%d", tenants.Month(noon()))
	spoilt := map[string][]string{"nothing": nil}
	sums := []string{"tokens", "money", "tokens:a", "money:a"}
	for key, fields := range map[string][]string{"tierway:{x}:rates": {"r", "ra", "s", "sa", "t", "ta"},
		"tierway:{x}:under": {"a", "b"}, day: sums, month: sums, gatewaysKey: {"a"}} {
		spoilt["a string at "+key] = []string{"SET " + key + " x"}
		spoilt["a list at "+key] = []string{"RPUSH " + key + " x"}
		for _, field := range fields {
			for _, value := range []string{"x", "nan", "-5", "1e999", "0x10", "99999999999999999999999999", "-nan", `"1 2"`,
				`"9 9 9 99999999999999999999"`} {
				name := "fields at " + key + " " + field
				spoilt[name] = append(spoilt[name], fmt.Sprintf("HSET %s %s %s", key, field, value))
			}
		}
	}
	for name, commands := range spoilt {
		t.Run(name, func(t *testing.T) {
			onRedis(t, func(t *testing.T, server *redisServer) {
				for i := range max(1, len(commands)) {
					server.Do("FLUSHALL")
					if len(commands) > 0 {
						server.Do(commands[i])
					}
					g := newGateway(t, server, "a", nil)
					c := callerWith(tenants.Limits{RPM: 6, RPS: 1000, Burst: 3, TPM: 6000, Concurrent: 100, DayTokens: 100,
						MonthMoney: 100}, tenants.Limits{})
					admitted := 0
					for range 6 {
						if g.take(c, 1, false).Refused == "" {
							admitted++
						}
					}
					g.settle(tenants.Used{Tokens: 100, Money: 100, Refund: true})
					v := g.take(c, 1, false)
					if err := g.redis.beat(t.Context()); err != nil {
						t.Error(err)
					}
					if admitted != 3 || v.Refused != tenants.LimitDayTokens || g.Degraded() || g.redis.failures.Load() != 0 {
						t.Errorf("after %v: %d are admitted, then %+v; degraded: %v, %d failures", commands, admitted, v, g.Degraded(),
							g.redis.failures.Load())
					}
				}
			})
		})
	}
}

func TestRedisCountsLiveGateways(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		open := func(id string) *Redis {
			r, err := OpenRedis(server.config(id))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close() })
			return r
		}
		a, b := open("a"), open("b")
		if a.Gateways() != 1 {
			t.Errorf("before anything is asked there are %d", a.Gateways())
		}
		stopB := start(b.Run)
		eventually(t, func() bool { return server.Do("ZCARD "+gatewaysKey) == ":1" })
		stopA := start(a.Run)
		defer stopA()
		eventually(t, func() bool { return a.Gateways() == 2 })
		stopB()
		if got := server.Do("ZCARD " + gatewaysKey); got != ":1" { // it has left properly
			t.Errorf("the list has %s", got)
		}
		server.Do(fmt.Sprintf("ZADD %s 1 dead %d wrong", gatewaysKey, time.Now().Add(time.Hour).UnixMilli()))
		if err := a.beat(t.Context()); err != nil || a.Gateways() != 1 {
			t.Errorf("with one whose lease is over and one of a wrong clock there are %d", a.Gateways())
		}
	})
}

// AU-07: a published change reaches every gateway at once, and an outage counts as a change.
func TestPublishedChangeReachesEveryGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		a, b := l.open(t, RedisConfig{}), l.open(t, RedisConfig{Gateway: "b"})
		var heard atomic.Int64
		b.OnChange(func() { heard.Add(1) })
		defer start(a.Run, b.Run)()
		synctest.Wait()
		publish := func(want int64) {
			t.Helper()
			if err := a.PublishChange(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait() // no time passes
			if got := heard.Load(); got != want {
				t.Errorf("%d changes are heard, want %d", got, want)
			}
		}
		publish(1)
		l.kill()
		for a.Up() || b.Up() {
			_, _ = a.PublishChange(t.Context()), b.PublishChange(t.Context())
			synctest.Wait() // the probes take no time
		}
		time.Sleep(time.Second)
		if err := b.PublishChange(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("while it is away: %v", err)
		}
		l.restart()
		time.Sleep(2 * time.Second)
		publish(3)
	})
}

func TestRedisURLsAreChecked(t *testing.T) {
	for url, want := range map[string]redis.UniversalOptions{
		"redis://h":         {Addrs: []string{"h:6379"}},
		"redis://u:p@h:1/2": {Addrs: []string{"h:1"}, Username: "u", Password: "p", DB: 2},
		"rediss://:p@h:1": {Addrs: []string{"h:1"}, Password: "p",
			TLSConfig: &tls.Config{ServerName: "h"}},
		"redis://[::1]:7": {Addrs: []string{"[::1]:7"}},
		"redis+cluster://u:p@a:1,b,[::1]:3": {Addrs: []string{"a:1", "b:6379", "[::1]:3"}, Username: "u",
			Password: "p", IsClusterMode: true},
		"rediss+cluster://a,b": {Addrs: []string{"a:6379", "b:6379"}, IsClusterMode: true,
			TLSConfig: &tls.Config{}},
		"redis+sentinel://:p@a:26379,b:26379/main/3": {Addrs: []string{"a:26379", "b:26379"}, Password: "p",
			MasterName: "main", DB: 3},
	} {
		o, err := redisOptions(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		sameTLS := (o.TLSConfig == nil) == (want.TLSConfig == nil) &&
			(o.TLSConfig == nil || o.TLSConfig.ServerName == want.TLSConfig.ServerName)
		if fmt.Sprint(o.Addrs) != fmt.Sprint(want.Addrs) || o.Username != want.Username || o.Password != want.Password ||
			o.DB != want.DB ||
			o.MasterName != want.MasterName || o.IsClusterMode != want.IsClusterMode || !sameTLS {
			t.Errorf("%s is read as %+v", url, o)
		}
	}
	for _, url := range []string{"", "h:1", "http://s3cret@h", "redis://u:s3cret@h:port", "redis://a,s3cret",
		"redis://s3cret/1/2", "redis://:s3cret@h/x", "redis://:s3cret@h/-1",
		"redis+sentinel://s3cret", "redis+cluster://s3cret/1", "redis+s3cret://h", "redis://:s3cret@h?db=1",
		"redis://:s3cret@", "redis+cluster://:s3cret@a,", "redis://:s3cret@h%zz", "memcached+cluster://s3cret"} {
		if _, err := OpenRedis(RedisConfig{URL: url}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// No secret of the URL is logged.
func TestRedisURLSecretsAreNotLogged(t *testing.T) {
	w := openRedis(t, RedisConfig{URL: "redis://someuser:s3cret@127.0.0.1:1", Timeout: patient})
	for range tripAfter { // no request is sent: the probes detect it
		if err := w.beat(t.Context()); err == nil || !w.Up() && w.log.lines() != 1 {
			t.Error(err)
		}
	}
	if w.Up() || w.log.lines() != 1 || strings.Contains(w.log.String(), "s3cret") ||
		strings.Contains(w.log.String(), "someuser") {
		t.Errorf("the log is:\n%s", w.log.String())
	}
}

// RS-08: a gateway that starts without Redis serves, degraded, and no request waits.
func TestGatewayServesWithoutRedisFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := newLine(t)
		link.kill()
		w := link.open(t, RedisConfig{})
		l := w.limits(2)
		defer start(w.Run, l.Run)()
		synctest.Wait()
		began := time.Now()
		g, v, err := l.TakeCharge(t.Context(),
			&tenants.Charge{Caller: callerWith(tenants.Limits{RPM: 6, Burst: 2}, tenants.Limits{}), At: began})
		// one of the two concurrent ones belongs to another gateway
		if err != nil || v.Refused != "" || v.Requests.Remaining != 0 || time.Since(began) != 0 {
			t.Fatalf("%+v, %v", v, err)
		}
		g.Settle(tenants.Used{})
		if !l.Degraded() || w.log.lines() != 1 || !l.local.Idle() {
			t.Errorf("degraded: %v; the log is:\n%s", l.Degraded(), w.log.String())
		}
	})
}

// A gateway stops within a second although a probe waits for a Redis that hangs.
func TestRunEndsWhileRedisHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		w := l.open(t, RedisConfig{Timeout: 10 * time.Second})
		l.hang()
		stop := start(w.Run)
		time.Sleep(time.Second)
		began := time.Now()
		if stop(); time.Since(began) > probeTimeout {
			t.Errorf("it took %v", time.Since(began))
		}
		l.resume()
	})
}
