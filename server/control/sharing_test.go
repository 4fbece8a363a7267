package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/breaker"
	"tierway/memnet"
	"tierway/memnet/memredis"
	"tierway/routing"
	"tierway/store"
)

// sharedTiers is a configuration with two workers behind one Redis. Its arguments are the URL and further settings.
const sharedTiers = `
store: { sql: "", redis: %q }
auth: { required: false }
health: { path: "off" }
%s
tiers: [ { name: small, model: m, workers: [ { name: w0, url: "http://127.0.0.1:1" },
  { name: w1, url: "http://127.0.0.1:2" } ] } ]
`

// newRedis returns an empty Redis on a network of its own.
func newRedis(t *testing.T) *memredis.Server { t.Helper(); return memredis.Start(t, memnet.New()) }

// newSharers returns n gateways on one Redis, which do not run: a test makes their steps.
func newSharers(t *testing.T, redis *memredis.Server, n int, settings string) (all []*Control) {
	t.Helper()
	for range n {
		c := newTestControlOn(t, redis.Network(), fmt.Sprintf(sharedTiers, redis.URL, settings))
		for _, p := range c.Snapshot().Pools {
			for name, m := range p.Members {
				p.Routing.Observe(name, m, routing.Status{Up: true, CacheTokens: 1 << 20})
			}
		}
		all = append(all, c)
	}
	return all
}

// poolOf returns the pool of the tier.
func poolOf(c *Control) *Pool { return c.Snapshot().Pools[0] }

// chainOf is the chain of a prompt of n blocks.
func chainOf(seed uint64, n int) []routing.Block {
	blocks := make([]routing.Block, n)
	for i := range blocks {
		seed = routing.Mix(seed + 1)
		blocks[i] = routing.Block{Hash: seed, End: int64(500 * (i + 1))}
	}
	return blocks
}

// book books a stream on a pool.
func book(t *testing.T, c *Control, now time.Time, blocks []routing.Block) routing.Lease {
	t.Helper()
	l, err := poolOf(c).Routing.Acquire(&routing.Request{Now: now, Rand: blocks[0].Hash, Blocks: blocks, Stream: true,
		PromptTokens: int64(125 * len(blocks)), OutputTokens: 10})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sums returns the requests of other gateways, and the tokens in the model of the caches.
func sums(c *Control, now time.Time) (peers int, history int64) {
	for _, v := range poolOf(c).Routing.Snapshot(now) {
		peers, history = peers+v.OthersInflight, history+v.HistoryTokens
	}
	return peers, history
}

// TestGatewaysExchangeLoadAndHistory through Redis.
func TestGatewaysExchangeLoadAndHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSharers(t, newRedis(t), 2, "")
		now := time.Now()
		l := book(t, g[0], now, chainOf(1, 20))
		l.Answered(now, nil)
		for range 2 {
			now = now.Add(shareEvery)
			for _, c := range g {
				c.Pools.sharing.exchangeIfDue(t.Context(), now)
			}
		}
		if peers, history := sums(g[1], now); peers != 1 || history < 2000 {
			t.Errorf("the other gateway sees %d requests and %d cached tokens of one stream of 2500", peers, history)
		}
		v := g[1].Pools.Sharing()
		if len(v.Gateways) != 1 || !v.CaughtUp || v.Entries != 1 || v.Unreadable != 0 || v.Failed != 0 || v.SharedAt == nil ||
			!slices.Equal(v.Gateways[0].Pools, []string{"small"}) {
			t.Errorf("the view is %+v", v)
		}
		l.Release(routing.Result{At: now})
		for range 2 {
			now = now.Add(shareEvery)
			for _, c := range g {
				c.Pools.sharing.exchangeIfDue(t.Context(), now)
			}
		}
		if peers, _ := sums(g[1], now); peers != 0 {
			t.Errorf("after its end %d requests count", peers)
		}
	})
}

// TestIdleGatewaysExchangeOncePerSecond, and with load at every step.
func TestIdleGatewaysExchangeOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSharers(t, newRedis(t), 1, "")[0]
		s, now := g.Pools.sharing, time.Now()
		run := func(d time.Duration) int64 {
			before := s.totals.Exchanges
			for end := now.Add(d); now.Before(end); now = now.Add(shareEvery) {
				s.exchangeIfDue(t.Context(), now)
			}
			return s.totals.Exchanges - before
		}
		run(time.Second)
		if n := run(10 * time.Second); n < 9 || n > 11 {
			t.Errorf("%d exchanges in 10 idle seconds", n)
		}
		for i := range uint64(40) {
			l := book(t, g, now, chainOf(i, 3))
			if n := run(shareEvery); n != 1 {
				t.Fatalf("%d exchanges in a step with load", n)
			}
			l.Release(routing.Result{At: now})
		}
	})
}

// TestJournalsAreBoundedPerSecond, whatever the traffic is. What waits too long is dropped and counted.
func TestJournalsAreBoundedPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSharers(t, newRedis(t), 1, "")[0]
		s, now := g.Pools.sharing, time.Now()
		const seconds = 5
		for i := range seconds * int(time.Second/shareEvery) {
			for k := range 20 {
				l := book(t, g, now, chainOf(uint64(1000*i+k), 100))
				l.Release(routing.Result{At: now})
			}
			now = now.Add(shareEvery)
			s.exchangeIfDue(t.Context(), now)
		}
		steps := seconds * int(time.Second/shareEvery)
		most := int64(journalBurst + seconds*journalRate + 64<<10 + steps*512)
		if s.totals.Sent < most/2 || s.totals.Sent > most {
			t.Errorf("%d bytes in %d seconds, want at most %d", s.totals.Sent, seconds, most)
		}
		if poolOf(g).Routing.JournalDropped() == 0 {
			t.Error("nothing was dropped")
		}
	})
}

// TestJournalOfAFailedExchangeIsSentAgain, and without loads each other gateway counts as much as this one.
//
// RS-01.
func TestJournalOfAFailedExchangeIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newRedis(t)
		g := newSharers(t, redis, 2, "gateways: 3")
		now := time.Now()
		step := func(all ...*Control) {
			now = now.Add(shareEvery)
			for _, c := range all {
				c.Pools.sharing.exchangeIfDue(t.Context(), now)
			}
		}
		step(g...)
		step(g...)
		redis.Kill()
		l := book(t, g[0], now, chainOf(7, 20))
		l.Answered(now, nil)
		step(g[0])
		if g[0].Pools.sharing.totals.Failed == 0 {
			t.Fatal("an exchange without Redis succeeds")
		}
		now = now.Add(shareIdle)
		step(g[0])
		if peers, _ := sums(g[0], now); peers != 2 {
			t.Errorf("without Redis two other gateways have %d requests, want 2 as this one has 1", peers)
		}
		redis.Restart(t)
		until(t, "the exchanges succeed", func() bool {
			step(g...)
			_, history := sums(g[1], now)
			return history > 2000
		})
		if v := g[1].Pools.Sharing(); v.Unreadable != 0 {
			t.Errorf("%d texts could not be read", v.Unreadable)
		}
		l.Release(routing.Result{At: now})
	})
}

// TestGatewaysOfOtherVersionsAreIgnored: fields that are not known, and texts of another form, which are counted.
func TestGatewaysOfOtherVersionsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSharers(t, newRedis(t), 1, "")[0]
		s, now := g.Pools.sharing, time.Now()
		load := poolOf(g).Routing.AppendLoad(nil, now)
		next := gatewayState{Pools: map[string]sharedPool{"small": {Load: append([]byte{99}, load[1:]...)}}}
		text, err := json.Marshal(next)
		if err != nil {
			t.Fatal(err)
		}
		known := strings.Replace(string(text), `"pools"`, `"later":{"x":[1]},"pools"`, 1)
		s.applyReceived(g.Snapshot().Pools, &store.Received{
			Loads: map[string]string{"later": known, "other": "not JSON", "without": `{"pools":{"unknown":{"load":"AQ=="}}}`},
			Journals: []store.ReceivedJournal{{Pools: []store.PoolText{{Pool: "small", Text: "\x63later"},
				{Pool: "unknown", Text: "x"}}}},
		}, now)
		if s.totals.Unreadable != 3 {
			t.Errorf("%d texts count as unreadable, want a load of another version, a text that is not JSON, and a journal",
				s.totals.Unreadable)
		}
		if peers, _ := sums(g, now); peers != 0 {
			t.Errorf("other gateways have %d requests", peers)
		}
	})
}

// TestEachOpeningIsOneSuspicion: a breaker that another gateway opened opens here once, until it is opened again.
func TestEachOpeningIsOneSuspicion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newSharers(t, newRedis(t), 1, "")[0]
		s, now := g.Pools.sharing, time.Now()
		m := poolOf(g).Members["w1"]
		share := func(at int64) {
			open := map[string]int64{}
			if at != 0 {
				open["w1"] = at
			}
			text, err := json.Marshal(gatewayState{Pools: map[string]sharedPool{"small": {
				Load: poolOf(g).Routing.AppendLoad(nil, now), Open: open}}})
			if err != nil {
				t.Fatal(err)
			}
			s.applyReceived(g.Snapshot().Pools, &store.Received{Loads: map[string]string{"other": string(text)}}, now)
			s.updateView()
		}
		share(0)
		if got := m.Gate.View().State; got != breaker.Closed {
			t.Fatalf("the breaker is %v before any opening", got)
		}
		share(1000)
		if v := m.Gate.View(); v.State != breaker.Open || v.Cause != breaker.CauseOtherGateway {
			t.Errorf("after an opening elsewhere the breaker is %v, %s", v.State, v.Cause)
		}
		if open := g.Pools.Sharing().Gateways[0].Open; !slices.Equal(open, []string{"small/w1"}) {
			t.Errorf("the view lists %v", open)
		}
		if own := poolOf(g).OwnOpenings(now); len(own) != 0 {
			t.Errorf("the suspicion is published as an own opening: %v", own)
		}
		if len(s.openings) != 1 {
			t.Errorf("%d openings are known", len(s.openings))
		}
		now = now.Add(keepOpening + time.Second)
		if share(0); len(s.openings) != 0 {
			t.Errorf("%d openings are known a minute after the other breaker has closed", len(s.openings))
		}
	})
}

// TestGatewayThatJoinsKnowsPinsAndPrompts of before, because the others repeat them.
func TestGatewayThatJoinsKnowsPinsAndPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := newRedis(t)
		g := newSharers(t, redis, 2, "policy: { name: rendezvous_hash }")
		now := time.Now()
		step := func() {
			now = now.Add(shareEvery)
			for _, c := range g {
				c.Pools.sharing.exchangeIfDue(t.Context(), now)
			}
		}
		send := func(c *Control, id uint64) string {
			l, err := poolOf(c).Routing.Acquire(&routing.Request{Now: now, Rand: routing.Mix(id), Key: routing.Mix(id + 1),
				KeyOf: routing.KeySession, PromptTokens: 10, Stream: true})
			if err != nil {
				t.Fatal(err)
			}
			l.Release(routing.Result{At: now})
			return l.Worker().ID()
		}
		up := func(yes bool) {
			for _, c := range g {
				poolOf(c).Routing.Observe("w1", poolOf(c).Members["w1"], routing.Status{Up: yes, CacheTokens: 1 << 20})
			}
		}
		step()
		up(false)
		for id := range uint64(50) {
			send(g[0], id)
		}
		step()
		step()
		up(true)
		redis.FlushAll()
		g = append(g, newSharers(t, redis, 1, "policy: { name: rendezvous_hash }")...)
		for range 4 {
			step()
		}
		for id := range uint64(50) {
			if got := send(g[2], id); got != "w0" {
				t.Fatalf("session %d was moved to w0, and a gateway that has joined since sends it to %s", id, got)
			}
		}
	})
}
