package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newExchanges returns the exchanges of n gateways, called g0, g1, … on one Redis.
func newExchanges(t *testing.T, server *redisServer, n int) (all []*Exchange) {
	t.Helper()
	for i := range n {
		all = append(all, openRedis(t, server.config(fmt.Sprint("g", i))).NewExchange())
	}
	return all
}

// exchange makes one exchange and returns what the others have published, without the ages.
func exchange(t *testing.T, e *Exchange, load string, texts ...string) Received {
	t.Helper()
	var journal []PoolText
	for _, text := range texts {
		journal = append(journal, PoolText{"small", text})
	}
	got, err := e.PublishAndRead(context.Background(), load, journal)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Journals {
		if age := got.Journals[i].Age; age < 0 || age > time.Minute {
			t.Errorf("an entry is %v old", age)
		}
		if got.Journals[i].Gateway == "" {
			t.Error("an entry has no gateway")
		}
		got.Journals[i].Age, got.Journals[i].Gateway = 0, ""
	}
	return got
}

// entriesOf are the journals with these texts, each an entry of its own.
func entriesOf(texts ...string) (all []ReceivedJournal) {
	for _, text := range texts {
		all = append(all, ReceivedJournal{Pools: []PoolText{{"small", text}}})
	}
	return all
}

// TestExchangeReturnsWhatOthersPublished: their loads, and their entries since the last exchange in the order of the
// log; never the gateway's own. A gateway that starts gets the entries of before.
func TestExchangeReturnsWhatOthersPublished(t *testing.T) { onRedis(t, checkExchange) }

func checkExchange(t *testing.T, server *redisServer) {
	g := newExchanges(t, server, 3)
	want := func(got Received, loads map[string]string, journals []ReceivedJournal) {
		t.Helper()
		if diff := cmp.Diff(Received{Loads: loads, Journals: journals}, got); diff != "" {
			t.Error(diff)
		}
	}
	want(exchange(t, g[0], "a"), map[string]string{}, nil)
	want(exchange(t, g[1], "b", "one"), map[string]string{"g0": "a"}, nil)
	want(exchange(t, g[0], "a2", "two"), map[string]string{"g1": "b"}, entriesOf("one"))
	want(exchange(t, g[1], "b"), map[string]string{"g0": "a2"}, entriesOf("two"))
	want(exchange(t, g[1], "b\x00\n"), map[string]string{"g0": "a2"}, nil)
	want(exchange(t, g[0], "", "\x00\xff\n", "four"), map[string]string{"g1": "b\x00\n"}, nil)
	both := ReceivedJournal{Pools: []PoolText{{"small", "\x00\xff\n"}, {"small", "four"}}}
	want(exchange(t, g[2], ""), map[string]string{"g0": "", "g1": "b\x00\n"}, append(entriesOf("one", "two"), both))
}

// TestLoadExpiresWithItsGateway, and so do both keys without any gateway.
func TestLoadExpiresWithItsGateway(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		g := newExchanges(t, server, 2)
		exchange(t, g[0], "a", "one")
		server.Do("HSET " + loadsKey + " dead 1000000000000:x")
		if got := exchange(t, g[1], "b").Loads; len(got) != 1 || got["g0"] != "a" {
			t.Errorf("the loads are %v", got)
		}
		if n := server.Do("HLEN " + loadsKey); n != ":2" {
			t.Errorf("the hash has %s fields, want the two live gateways", n)
		}
		for key, most := range map[string]time.Duration{loadsKey: loadLease, journalKey: journalKept} {
			var ms int64
			if _, err := fmt.Sscanf(server.Do("PTTL "+key), ":%d", &ms); err != nil || ms <= 0 || ms > most.Milliseconds() {
				t.Errorf("%s expires in %d ms (%v), want up to %v", key, ms, err, most)
			}
		}
	})
}

// TestJournalIsTrimmedByAge: entries that are older than five minutes make no memory.
func TestJournalIsTrimmedByAge(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		g := newExchanges(t, server, 1)
		old := time.Now().Add(-journalKept - time.Minute).UnixMilli()
		for i := range 300 { // Redis trims whole nodes of 100 entries
			server.Do(fmt.Sprintf("XADD %s %d-1 gateway other small old", journalKey, old+int64(i)))
		}
		exchange(t, g[0], "", "new")
		var n int
		if _, err := fmt.Sscanf(server.Do("XLEN "+journalKey), ":%d", &n); err != nil || n > 101 {
			t.Errorf("the log has %d entries (%v)", n, err)
		}
	})
}

// TestLongLogIsReadInParts, and completely.
func TestLongLogIsReadInParts(t *testing.T) {
	onRedis(t, func(t *testing.T, server *redisServer) {
		g := newExchanges(t, server, 2)
		for range 40 {
			exchange(t, g[0], "", strings.Repeat("x", 64<<10))
		}
		parts, entries := 0, 0
		for more := true; more; parts++ {
			got := exchange(t, g[1], "")
			more, entries = got.More, entries+len(got.Journals)
			if size := len(got.Journals) * 64 << 10; size > maxExchanged+128<<10 {
				t.Errorf("a part has %d bytes", size)
			}
		}
		if parts < 40*64<<10/(maxExchanged+64<<10) || entries != 40 {
			t.Errorf("%d entries in %d parts, want 40", entries, parts)
		}
	})
}

// TestExchangeSurvivesFaultsOfRedis: keys of another type, a lost script, lost data, and a clock that goes back. At
// most one exchange fails, and the next one publishes and reads again.
//
// RS-05.
func TestExchangeSurvivesFaultsOfRedis(t *testing.T) {
	for name, fault := range map[string]func(*redisServer, *Exchange){
		"loads of another type": func(server *redisServer, _ *Exchange) {
			server.Do("DEL " + loadsKey)
			server.Do("SET " + loadsKey + " x")
		},
		"journal of another type": func(server *redisServer, _ *Exchange) {
			server.Do("DEL " + journalKey)
			server.Do("SADD " + journalKey + " x")
		},
		"garbage in the loads":  func(server *redisServer, _ *Exchange) { server.Do("HSET " + loadsKey + " stranger garbage") },
		"an entry without text": func(server *redisServer, _ *Exchange) { server.Do("XADD " + journalKey + " * gateway stranger") },
		"an odd entry":          func(server *redisServer, _ *Exchange) { server.Do("XADD " + journalKey + " * a b c d") },
		"lost data":             func(server *redisServer, _ *Exchange) { server.Do("FLUSHALL") },
		"lost script":           func(server *redisServer, _ *Exchange) { server.Do("SCRIPT FLUSH") },
		"restart":               func(server *redisServer, _ *Exchange) { server.restart() },
		"another log": func(server *redisServer, e *Exchange) { // with entries before those of the lost one
			server.Do("DEL " + journalKey)
			e.last = "99999999999999-0"
		},
		"clock": func(server *redisServer, _ *Exchange) { // it went back: loads and entries are from the future
			server.Do("HSET " + loadsKey + " dead 99999999999999:x")
			server.Do("XADD " + journalKey + " 99999999999999-0 gateway dead small future")
		},
	} {
		t.Run(name, func(t *testing.T) {
			onRedis(t, func(t *testing.T, server *redisServer) {
				if server.mini != nil && strings.HasSuffix(name, "of another type") {
					return // miniredis reports a wrong type in a script as a fault of the script
				}
				g := newExchanges(t, server, 2)
				exchange(t, g[0], "a", "one")
				exchange(t, g[1], "b")
				time.Sleep(2 * time.Millisecond) // a log that begins again in the same one repeats an id; exchanges are 25 ms apart
				fault(server, g[1])
				for range 2 {
					_, _ = g[0].PublishAndRead(context.Background(), "a", nil) // the first one may fail
				}
				_, _ = g[1].PublishAndRead(context.Background(), "b", nil) // it may fail
				exchange(t, g[0], "a2", "two")
				got := exchange(t, g[1], "b")
				if got.Loads["g0"] != "a2" || len(got.Journals) == 0 || got.Journals[len(got.Journals)-1].Pools[0].Text != "two" {
					t.Errorf("afterwards the other gateway reads %+v", got)
				}
				if again := exchange(t, g[1], "b"); len(again.Journals) > 0 || again.Loads["dead"] != "" {
					t.Errorf("without news the other gateway reads %+v", again)
				}
				if !g[1].redis.Up() {
					t.Error("Redis counts as down")
				}
			})
		})
	}
}

// TestExchangeWaitsForNoRedis that hangs: at most the timeout, and not at all once it is down.
//
// RS-02.
func TestExchangeWaitsForNoRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		e := l.open(t, RedisConfig{}).NewExchange()
		exchange(t, e, "a")
		l.hang()
		for i := range 2 * tripAfter {
			want := DefaultRedisTimeout
			if i >= tripAfter {
				want = 0
			}
			if i == tripAfter && e.redis.beat(t.Context()) == nil {
				t.Fatal("a probe of a Redis that hangs succeeds")
			}
			began := time.Now()
			_, err := e.PublishAndRead(t.Context(), "a", nil)
			if took := time.Since(began); err == nil || took != want || errors.Is(err, errAway) != (want == 0) {
				t.Errorf("exchange %d with a Redis that hangs takes %v: %v", i+1, took, err)
			}
		}
		l.resume()
	})
}
