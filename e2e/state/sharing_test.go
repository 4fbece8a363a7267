package state

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// sharers starts n gateways on one Redis under a policy and returns them.
func (r *stateRig) sharers(n int, redis, policy string) []*gateway.Process {
	r.T.Helper()
	own := rig.Settings{"store": stores("", redis), "policy": policy, "drain": `{ accept_grace: 100ms, timeout: 30s }`,
		"health": `{ interval: 1s, timeout: 1s, down_after: 30, up_after: 1 }`, "breaker": `{ open_for: 1s }`}
	all := make([]*gateway.Process, n)
	for i := range all {
		all[i] = r.start(own)
	}
	for _, p := range all {
		p.WaitUntilReady()
		waitForMetric(r.T, p, "tierway_sharing_gateways", float64(n-1), rig.Patience)
	}
	return all
}

// cachingEngines are engines on which a prompt of chatOf takes a seventh of a second unless it is cached.
func cachingEngines() engines.Config { return engines.Config{Prefill: 20_000, CacheTokens: 200_000} }

// chatOf returns the body of that turn of a conversation.
func chatOf(name string, turns int) string {
	text := strings.Repeat("This is the system prompt of "+name+". ", 300)
	messages := []string{`{"role":"system","content":` + rig.Quoted(text) + `}`}
	for i := range turns {
		messages = append(messages, `{"role":"user","content":`+rig.Quoted(fmt.Sprint(name, " asks ", i))+`}`,
			`{"role":"assistant","content":`+rig.Quoted(fmt.Sprint(name, " hears ", i))+`}`)
	}
	return `{"model":"sim","max_tokens":16,"stream":true,"messages":[` + strings.Join(messages[:len(messages)-1], ",") + `]}`
}

// sendTurn sends a turn to a gateway and returns its worker.
func (r *stateRig) sendTurn(p *gateway.Process, session, body string) string {
	r.T.Helper()
	got := r.Send(r.RequestTo(context.Background(), http.MethodPost, p.BaseURL+chatPath, body, "Authorization",
		"Bearer "+rig.TenantKey, "X-Session-ID", session))
	if got.Err != nil || got.Status != http.StatusOK {
		r.T.Fatalf("session %s: %d %v: %s", session, got.Status, got.Err, got.Body)
	}
	for i := len(r.Workers) - 1; i >= 0; i-- {
		for _, seen := range r.Workers[i].Recorder.Requests() {
			if seen.Header.Get("X-Request-Id") == got.ID {
				return r.Workers[i].Name
			}
		}
	}
	r.T.Fatalf("no worker has seen request %s", got.ID)
	return ""
}

// waitUntilShared waits until all gateways have the same model of the workers' caches, and have read that no request
// is in flight elsewhere. A gateway without load reads once per second, so it may have read both during a request.
func (r *stateRig) waitUntilShared(all ...*gateway.Process) {
	r.T.Helper()
	rig.Within(r.T, rig.Patience, func() error {
		var sums []float64
		for _, p := range all {
			m, err := p.Metrics()
			if err != nil {
				return err
			}
			sums = append(sums, m.Sum("tierway_worker_history_tokens"))
			if n := m.Sum("tierway_worker_other_gateways_inflight"); n != 0 {
				return errorf("a gateway counts %v requests of the others", n)
			}
		}
		// Each gateway estimates tokens with a factor of its own.
		if slices.Max(sums)-slices.Min(sums) > 0.01*sums[0] || sums[0] == 0 {
			return errorf("the gateways know %v tokens", sums)
		}
		return nil
	})
}

// waitForSum waits until the values of a metric, of all labels, have that sum, and returns the time that it took.
func waitForSum(t *testing.T, p *gateway.Process, name string, want float64) time.Duration {
	t.Helper()
	return rig.Within(t, rig.Patience, func() error {
		m, err := p.Metrics()
		if err == nil && m.Sum(name) != want {
			err = errorf("the sum of %s is %v, want %v", name, m.Sum(name), want)
		}
		return err
	})
}

// TestOneSessionReachesTheSameWorkerFromEachGateway under every policy with affinity.
func TestOneSessionReachesTheSameWorkerFromEachGateway(t *testing.T) {
	for name, policy := range map[string]string{
		"chwbl":           `{ name: chwbl }`,
		"consistent_hash": `{ name: consistent_hash }`,
		"rendezvous_hash": `{ name: rendezvous_hash }`,
		"kv_aware":        `{ name: kv_aware }`,
		"cache_aware":     `{ name: cache_aware }`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 4, cachingEngines())
			all := r.sharers(3, backends.Redis(t).URL, policy)
			homes := map[string]string{}
			for turn := 1; turn <= 4; turn++ {
				for i := range 12 {
					session := fmt.Sprint("session ", i)
					w := r.sendTurn(all[(turn+i)%3], session, chatOf(session, turn))
					if homes[session] == "" {
						homes[session] = w
					}
					if homes[session] != w {
						t.Errorf("turn %d of %s goes to %s, the first one went to %s", turn, session, w, homes[session])
					}
				}
				r.waitUntilShared(all...)
			}
			if used := len(slices.Compact(slices.Sorted(maps.Values(homes)))); used < 2 {
				t.Errorf("12 sessions use %d of 4 workers", used)
			}
		})
	}
}

// TestPinsAgreeAfterAnyRestart kills a worker, Redis, and a gateway, one after the other, while sessions go on through
// all gateways. No request fails, and at the end each session reaches one worker from each gateway.
//
// RS-01, SD-07.
func TestPinsAgreeAfterAnyRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, engines.Config{})
	redis := backends.Redis(t)
	all := r.sharers(3, redis.URL, `{ name: consistent_hash }`)
	session := func(i int) string { return fmt.Sprint("session ", i) }
	const sessions = 24
	round := func(shift int) {
		for i := range sessions {
			r.sendTurn(all[(i+shift)%3], session(i), chatOf(session(i), 1))
		}
	}
	agree := func(when string) map[string]string {
		t.Helper()
		homes := map[string]string{}
		rig.Within(t, rig.Patience, func() error {
			clear(homes)
			for i := range sessions {
				for k, p := range all {
					w := r.sendTurn(p, session(i), chatOf(session(i), 1))
					if homes[session(i)] == "" {
						homes[session(i)] = w
					}
					if homes[session(i)] != w {
						return errorf("%s, %s reaches %s from gateway %d, and %s from another one", when, session(i), w, k,
							homes[session(i)])
					}
				}
			}
			return nil
		})
		return homes
	}
	before := agree("at the start")
	r.Workers[2].Stop()
	round(0)
	round(1)
	without := agree("without w2")
	r.Workers[2].Listen()
	for _, p := range all {
		waitForSum(t, p, "tierway_worker_up", 4)
		waitForSum(t, p, "tierway_worker_breaker", 0)
	}
	with := agree("after w2 has come back")
	stayed := 0
	for id, home := range before {
		if home == "w2" && with[id] == without[id] {
			stayed++
		}
		if home != "w2" && with[id] != home {
			t.Errorf("%s was on %s, which did not fail, and is on %s", id, home, with[id])
		}
	}
	if stayed == 0 {
		t.Error("no session stays where it went while its home was down")
	}
	redis.Kill()
	round(2)
	redis.Restart()
	round(0)
	if again := agree("after Redis has come back"); !maps.Equal(again, with) {
		t.Errorf("after a restart of Redis the sessions are on %v, before on %v", again, with)
	}
	all[1].Kill()
	all[1] = r.addGateway(all[1].StartAgain())
	all[1].WaitUntilReady()
	waitForMetric(t, all[1], "tierway_sharing_caught_up", 1, rig.Patience)
	agree("after a gateway was killed and started again")
}

// TestRestartedGatewayKnowsTheCaches: what gateways published is in Redis for a gateway that starts. It reports when
// it has read that.
func TestRestartedGatewayKnowsTheCaches(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4, cachingEngines())
	all := r.sharers(2, backends.Redis(t).URL, `{ name: kv_aware }`)
	homes := map[string]string{}
	for i := range 12 {
		id := fmt.Sprint("chat ", i)
		homes[id] = r.sendTurn(all[i%2], id, chatOf(id, 2))
	}
	r.waitUntilShared(all...)
	all[1].Kill()
	all[1] = r.addGateway(all[1].StartAgain())
	all[1].WaitUntilReady()
	waitForMetric(t, all[1], "tierway_sharing_caught_up", 1, rig.Patience)
	r.waitUntilShared(all...)
	for id, home := range homes {
		if w := r.sendTurn(all[1], id, chatOf(id, 3)); w != home {
			t.Errorf("%s was on %s, and a gateway that has just started sends it to %s", id, home, w)
		}
	}
	if len(linesWith(all[1], "read what other gateways have published")) != 1 {
		t.Error("the log does not say once that the gateway has read what the others published")
	}
}

// TestLoadOfADeadGatewayExpires: the others see what a gateway has in flight, and forget it when the gateway is killed.
//
// SD-07.
func TestLoadOfADeadGatewayExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, engines.Config{})
	all := r.sharers(2, backends.Redis(t).URL, `{ name: least_load }`)
	for range 8 {
		r.Open(r.RequestTo(context.Background(), http.MethodPost, all[0].BaseURL+chatPath,
			rig.Chat("sim", rig.PauseMark, `"stream":true`), "Authorization", "Bearer "+rig.TenantKey))
	}
	waitForSum(t, all[1], "tierway_worker_other_gateways_inflight", 8)
	waitForSum(t, all[1], "tierway_worker_inflight", 0)
	all[0].Kill()
	took := waitForSum(t, all[1], "tierway_worker_other_gateways_inflight", 0)
	t.Logf("the load of a killed gateway counted for %v", took)
}

// TestWorkerThatOneGatewayFoundDeadIsProbedByTheOthers: its requests fail, although its health checks pass. The gateway
// without a request learns it from the other one and sends no more than probes, until they succeed.
func TestWorkerThatOneGatewayFoundDeadIsProbedByTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, engines.Config{})
	all := r.sharers(2, backends.Redis(t).URL, `{ name: round_robin }`)
	failing := chaos.Fault{Kind: chaos.Status, Status: http.StatusInternalServerError}
	if err := r.Workers[1].Handler.Set(failing); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		got := r.Send(r.RequestTo(context.Background(), http.MethodPost, all[0].BaseURL+chatPath,
			rig.Chat("sim", fmt.Sprint("question ", i)), "Authorization", "Bearer "+rig.TenantKey))
		if err := got.CheckOK(); err != nil {
			t.Fatal(err)
		}
	}
	if len(linesWith(all[0], "breaker is open")) == 0 {
		t.Error("the gateway with requests has not opened the breaker")
	}
	rig.Within(t, rig.Patience, func() error {
		if len(linesWith(all[1], "other_gateway")) == 0 {
			return errorf("the other gateway has not received the opening")
		}
		return nil
	})
	posts := func() (n int) {
		for _, seen := range r.Workers[1].Recorder.Requests() {
			if seen.Method == http.MethodPost {
				n++
			}
		}
		return n
	}
	before := posts()
	const requests = 40 // round_robin would send half of them to the worker
	for i := range requests {
		got := r.Send(r.RequestTo(context.Background(), http.MethodPost, all[1].BaseURL+chatPath,
			rig.Chat("sim", fmt.Sprint("question ", i)), "Authorization", "Bearer "+rig.TenantKey))
		if err := got.CheckOK(); err != nil {
			t.Fatal(err)
		}
	}
	if n := posts() - before; n > requests/4 {
		t.Errorf("the other gateway sends %d of %d requests to the worker", n, requests)
	}
}

// TestGatewayStopsWhileRedisHangs, after a start with a Redis that hangs and after one with a Redis that hangs later.
//
// SD-05.
func TestGatewayStopsWhileRedisHangs(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprint("early ", early), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 1, engines.Config{})
			redis := backends.Redis(t)
			if early {
				redis.Hang()
			}
			// A stop that waits for Redis would last as long as a drain.
			p := r.serve(rig.Settings{"store": hastyStores("", redis.URL),
				"drain": `{ accept_grace: 100ms, timeout: 10m }`})
			r.sendTurn(p, "session", chatOf("session", 1))
			if !early {
				redis.Hang()
			}
			p.Stop()
			redis.Resume()
		})
	}
}

// TestRestartsInAnyOrderFailNoRequest restarts gateways, Redis, PostgreSQL and workers in orders that differ by round,
// each while clients send requests through a balancer. Afterwards the gateways share as before.
//
// SD-02, RS-01.
func TestRestartsInAnyOrderFailNoRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3, engines.Config{})
	redis, sql := backends.Redis(t), backends.Postgres(t)
	own := rig.Settings{"store": stores(sql.URL, redis.URL), "policy": `{ name: kv_aware }`,
		"auth":   auth("app", "rpm: 1000000, tpm: 1000000000, concurrent: 100"),
		"health": `{ interval: 1s, timeout: 1s, up_after: 1 }`, "drain": `{ accept_grace: 2s, timeout: 30s }`}
	all := []*gateway.Process{r.start(own), r.start(own), r.start(own)}
	for _, p := range all {
		p.WaitUntilReady()
	}
	b := backends.NewBalancer(t, address(all[0]), address(all[1]), address(all[2]))
	settled := func() {
		rig.Within(t, rig.Patience, func() error {
			if n := len(b.Ready()); n != len(all) {
				return errorf("%d gateways are ready", n)
			}
			return nil
		})
		for _, p := range all {
			waitForSum(t, p, "tierway_worker_up", 3)
			waitForMetric(t, p, "tierway_redis_up", 1, rig.Patience)
			waitForMetric(t, p, "tierway_database_up", 1, rig.Patience)
			waitForMetric(t, p, "tierway_sharing_gateways", 2, rig.Patience)
		}
	}
	settled()
	restarts := map[string]func(){
		"gateway": func() { all[1] = r.addGateway(all[1].StartAgain()); all[1].WaitUntilReady() },
		"redis":   func() { redis.Kill(); pause(time.Second); redis.Restart() },
		"sql":     func() { sql.Kill(); pause(time.Second); sql.Restart() },
		"worker":  func() { r.Workers[2].Stop(); pause(time.Second); r.Workers[2].Listen() },
	}
	l := r.newLoad(rig.TenantKey, "http://"+b.Addr+"/v1")
	l.startChats(3)
	orders := [][]string{{"worker", "redis", "gateway", "sql"}, {"sql", "gateway", "redis", "worker"},
		{"redis", "sql", "worker", "gateway"}, {"gateway", "worker", "sql", "redis"}}
	for _, order := range orders[:rounds(t, 1, 4)] {
		for _, what := range order {
			restarts[what]()
		}
		settled()
	}
	l.end()
	r.checkNothingBooked(100, all[0].BaseURL, all[1].BaseURL, all[2].BaseURL)
	r.waitUntilShared(all...)
	t.Logf("%d requests", l.count())
}
