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
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"tierway/e2e/backends"
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

func openRedis(t testing.TB, url string) *watched {
	t.Helper()
	w := &watched{}
	r, err := OpenRedis(RedisConfig{URL: url, Gateway: "gw", Log: slog.New(slog.NewTextHandler(&w.log, nil))})
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
	slow  atomic.Int64 // additional ns per reply
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
		if d := f.slow.Load(); d > 0 {
			<-time.After(time.Duration(d))
		}
		return next(ctx, cmd)
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if d := f.slow.Load(); d > 0 {
			<-time.After(time.Duration(d))
		}
		return next(ctx, cmds)
	}
}

// RS-07: the breaker sees the errors themselves. Once it has tripped, no command is sent.
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
			_, url := newMini(t)
			w, hook := openRedis(t, url), &failing{}
			w.client.AddHook(hook)
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
			if w.Up() == c.away {
				t.Errorf("it is up: %v", w.Up())
			}
			if c.away {
				if w.log.lines() != 0 {
					t.Errorf("it is told before a probe has failed too:\n%s", w.log.String())
				}
				if err := w.beat(t.Context()); err == nil {
					t.Error("a probe succeeds")
				}
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
	}
}

// RS-02: a Redis that answers slowly also costs few requests time, and counts as up after several
// fast answers.
func TestSlowRedisIsDown(t *testing.T) {
	_, url := newMini(t)
	w, hook := openRedis(t, url), &failing{}
	w.client.AddHook(hook)
	l := w.limits(1)
	defer start(w.Run, l.Run)()
	c := callerWith(tenants.Limits{RPM: 60_000, Burst: 60_000, Concurrent: 1000}, tenants.Limits{})
	ask := func() time.Duration {
		began := time.Now()
		g, v, err := l.TakeCharge(t.Context(), &tenants.Charge{Caller: c, At: began})
		if err != nil || v.Refused != "" {
			t.Fatalf("%+v, %v", v, err)
		}
		g.Settle(tenants.Used{})
		return time.Since(began)
	}
	for range 20 {
		ask()
	}
	hook.slow.Store(int64(patience * 3 / 5))
	slow := 0
	for range 200 {
		if ask() > patience/2 {
			slow++
		}
	}
	if w.Up() || slow > 2*tripAfter { // the machine itself may be slow once or twice
		t.Errorf("it is up: %v; %d requests waited for it", w.Up(), slow)
	}
	eventually(t, w.logged.Load)
	hook.slow.Store(0)
	eventually(t, w.Up)
	// The machine may also be so slow that the first cause is a timeout.
	if log := w.log.String(); strings.Count(log, "Redis unavailable;") != 1 || strings.Count(log, "again;") != 1 ||
		!strings.Contains(log, "slow") {
		t.Errorf("the log has:\n%s", log)
	}
}

// RS-01, RS-02, RS-08: whether Redis is killed, hangs or never starts, a few requests lose at most
// 50 ms each. The log has one line for each change, and Redis is used again without help.
func TestRedisOutageDelaysFewRequests(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(*backends.RedisServer) }{
		"killed": {(*backends.RedisServer).Kill, (*backends.RedisServer).Restart},
		"hung":   {(*backends.RedisServer).Hang, (*backends.RedisServer).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			current := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, current) }) // after everything else is closed
			server := backends.Redis(t)
			w := openRedis(t, server.URL)
			l := w.limits(2)
			defer start(w.Run, l.Run)()
			caller := callerWith(tenants.Limits{RPM: 60_000, Burst: 60_000, Concurrent: 1000, DayTokens: 1 << 40},
				tenants.Limits{})
			var slow []time.Duration
			ask := func() {
				began := time.Now()
				g, v, err := l.TakeCharge(t.Context(), &tenants.Charge{Caller: caller, At: began, Tokens: 1})
				if took := time.Since(began); took > 10*time.Millisecond {
					slow = append(slow, took)
				}
				if err != nil || v.Refused != "" {
					t.Fatalf("%+v, %v", v, err)
				}
				g.Settle(tenants.Used{Tokens: 1})
			}
			for range 50 {
				ask()
			}
			if l.Degraded() {
				t.Fatal("it is degraded")
			}
			eventually(t, func() bool { return l.queue.Stats().Waiting == 0 })
			slow = nil
			c.begin(server)
			for range 500 {
				ask()
			}
			t.Logf("slow requests: %v", slow)
			if !l.Degraded() || len(slow) > tripAfter {
				t.Errorf("degraded: %v; %d requests were slow: %v", l.Degraded(), len(slow), slow)
			}
			for _, took := range slow {
				if took > 2*patience { // allowance for a busy machine; the client alone would take 5 s
					t.Errorf("a request lost %v", took)
				}
			}
			eventually(t, w.logged.Load) // a probe has also failed
			c.end(server)
			back := time.Now()
			eventually(t, func() bool { return !l.Degraded() })
			t.Logf("used again %v after it came back", time.Since(back))
			if took := time.Since(back); took > 2*time.Second {
				t.Errorf("it is used again after %v", took)
			}
			ask()
			if got := w.log.lines(); got != 2 || strings.Contains(w.log.String(), "level=ERROR") {
				t.Errorf("the log has %d lines:\n%s", got, w.log.String())
			}
			// The spending of the outage is sent without help.
			spent, _ := l.local.Spent("x", "", time.Now())
			eventually(t, func() bool {
				got, err := w.client.HGet(t.Context(), fmt.Sprintf("tierway:{x}:d%d", tenants.Day(time.Now())), "tokens").Int64()
				return err == nil && got == 551 && spent.Tokens == 551
			})
		})
	}
}

// RS-04: while Redis is unavailable a gateway enforces its share; fail-closed tenants are refused.
func TestGatewayEnforcesItsShareDuringARedisOutage(t *testing.T) {
	mini, url := newMini(t)
	w := openRedis(t, url)
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
	mini.SetError("LOADING Redis is loading the dataset in memory")
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
			mini, url := newMini(t)
			w := openRedis(t, url)
			l := w.limits(1)
			defer start(l.Run)()
			c := callerWith(tenants.Limits{RPM: 600, DayTokens: 1000}, tenants.Limits{Concurrent: 50})
			ask := func() {
				g, v, err := l.TakeCharge(t.Context(), &tenants.Charge{Caller: c, At: noon(), Tokens: 1})
				if err != nil || v.Refused != "" {
					t.Fatalf("%+v, %v", v, err)
				}
				g.Settle(tenants.Used{Tokens: 1})
			}
			ask()
			eventually(t, func() bool { return l.queue.Stats().Waiting == 0 })
			mini.SetError(answer)
			for range 20 {
				ask()
			}
			if l.Degraded() != (answer != "") {
				t.Errorf("degraded: %v", l.Degraded())
			}
			mini.SetError("")
			if err := w.beat(t.Context()); err != nil {
				t.Error(err)
			}
			if l.Degraded() {
				t.Error("it is not back")
			}
			ask()
			eventually(t, func() bool {
				return mini.HGet(fmt.Sprintf("tierway:{x}:d%d", tenants.Day(noon())), "tokens") == "22"
			})
		})
	}
}

// RS-05: scripts that Redis has lost are loaded again, in pipelines too.
func TestLostScriptsAreLoadedAgain(t *testing.T) {
	server := backends.Redis(t)
	g := newGateway(t, server.URL, "a", nil)
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
}

// RS-05: whatever our keys contain, no request fails, and limits are enforced again.
func TestInvalidRedisContentsAreReplaced(t *testing.T) {
	server := backends.Redis(t)
	day, month := fmt.Sprintf("tierway:{x}:d%d", tenants.Day(noon())),
		fmt.Sprintf("tierway:{x}:m%d", tenants.Month(noon()))
	spoilt := map[string][]string{"nothing": nil}
	for _, key := range []string{"tierway:{x}:rates", "tierway:{x}:under", day, month, gatewaysKey} {
		spoilt["a string at "+key] = []string{"SET " + key + " x"}
		spoilt["a list at "+key] = []string{"RPUSH " + key + " x"}
		var words []string
		for _, field := range []string{"r", "ra", "s", "sa", "t", "ta", "tokens", "money", "tokens:a", "money:a", "a", "b"} {
			for _, value := range []string{"x", "nan", "-5", "1e999", "0x10", "99999999999999999999999999", "-nan", `"1 2"`,
				`"9 9 9 99999999999999999999"`} {
				words = append(words, fmt.Sprintf("HSET %s %s %s", key, field, value))
			}
			spoilt["fields at "+key+" "+field] = words
			words = nil
		}
	}
	for name, commands := range spoilt {
		t.Run(name, func(t *testing.T) {
			for i := range max(1, len(commands)) {
				server.Do("FLUSHALL")
				if len(commands) > 0 {
					server.Do(commands[i])
				}
				g := newGateway(t, server.URL, "a", nil)
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
	}
}

// All keys of a script are on one node of a cluster.
func TestScriptsRunInACluster(t *testing.T) {
	server := backends.RedisCluster(t)
	if got := server.Do("CLUSTER ADDSLOTSRANGE 0 16383"); got != "+OK" {
		t.Fatal(got)
	}
	eventually(t, func() bool {
		return server.Do("CLUSTER COUNTKEYSINSLOT 0") == ":0" && server.Do("SET probe x") == "+OK"
	})
	g := newGateway(t, "redis+cluster://"+server.Addr, "a", nil)
	c := callerWith(tenants.Limits{RPM: 6, Burst: 3, TPM: 600, Concurrent: 5, DayTokens: 100},
		tenants.Limits{RPM: 600, Concurrent: 5, MonthMoney: 100})
	eventually(t, func() bool { // the client's first command learns the nodes
		_, v, err := g.TakeCharge(t.Context(), &tenants.Charge{Caller: c, At: noon(), Tokens: 1})
		return err != nil || v.Refused != ""
	})
	if err := g.redis.beat(t.Context()); err != nil {
		t.Error(err)
	}
	if g.Degraded() || g.redis.failures.Load() != 0 || g.redis.Gateways() != 1 {
		t.Errorf("degraded: %v, %d failures", g.Degraded(), g.redis.failures.Load())
	}
}

func TestRedisCountsLiveGateways(t *testing.T) {
	server := backends.Redis(t)
	open := func(id string) *Redis {
		r, err := OpenRedis(RedisConfig{URL: server.URL, Gateway: id})
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
}

// AU-07: a published change reaches every gateway at once, and an outage counts as a change.
func TestPublishedChangeReachesEveryGateway(t *testing.T) {
	server := backends.Redis(t)
	a, b := openRedis(t, server.URL), openRedis(t, server.URL)
	var heard atomic.Int64
	b.OnChange(func() { heard.Add(1) })
	defer start(a.Run, b.Run)()
	eventually(t, func() bool { return server.Do("PUBLISH "+changes+" gw") == ":1" })
	eventually(t, func() bool { return heard.Load() == 1 })
	began := time.Now()
	if err := a.PublishChange(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return heard.Load() == 2 })
	t.Logf("heard after %v", time.Since(began))
	server.Kill()
	for b.Up() {
		_ = b.PublishChange(t.Context())
	}
	if err := b.PublishChange(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("while it is away: %v", err)
	}
	server.Restart()
	eventually(t, func() bool { return b.Up() && heard.Load() >= 3 })
	eventually(t, func() bool { return server.Do("PUBLISH "+changes+" gw") == ":1" })
	eventually(t, func() bool { return heard.Load() >= 4 })
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
	w := openRedis(t, "redis://someuser:s3cret@127.0.0.1:1")
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

// RS-08: a gateway that starts without Redis serves, degraded, and sends no commands.
func TestGatewayServesWithoutRedisFromTheStart(t *testing.T) {
	w := openRedis(t, "redis://127.0.0.1:1")
	l := w.limits(2)
	defer start(w.Run, l.Run)()
	eventually(t, l.Degraded)
	g, v, err := l.TakeCharge(t.Context(),
		&tenants.Charge{Caller: callerWith(tenants.Limits{RPM: 6, Burst: 2}, tenants.Limits{}), At: noon()})
	// one of the two concurrent ones belongs to another gateway
	if err != nil || v.Refused != "" || v.Requests.Remaining != 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	g.Settle(tenants.Used{})
	if w.log.lines() != 1 || !l.local.Idle() {
		t.Errorf("the log is:\n%s", w.log.String())
	}
}
