package kvcache

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/routing"
	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

func TestEventsSayWhatEachWorkerHasCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, Options{})
		pool := c.NewPool()
		a, b := publish(t, c), publish(t, c)
		a.store("GPU", 3, true) // before any reader: only the replay has it
		for name, p := range map[string]*publisher{"a": a, "b": b} {
			pool.Add(name, name).Configure(p.config(true), "127.0.0.1", nil)
		}
		eventually(t, "entry of a", func() bool { return cached(pool)["a"].Tokens == 3*blockSize })
		if e, known := cached(pool)["b"]; known {
			t.Errorf("b has published nothing, and its entry is %+v", e)
		}
		b.store("GPU", 2, true)
		a.store("CPU", 5, true)
		eventually(t, "entry of b", func() bool { return cached(pool)["b"].Tokens == 2*blockSize })
		eventually(t, "blocks of a in CPU memory", func() bool {
			e := cached(pool)["a"]
			return e.Tokens == 5*blockSize && e.Load == 2*blockSize*loadCPU
		})
	})
}

func TestRanksOfAWorkerAreAveraged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, Options{})
		pool := c.NewPool()
		w := pool.Add("w", "w")
		ranks := []*publisher{publish(t, c), publish(t, c)}
		var announced []Announced
		for i, p := range ranks {
			announced = append(announced, Announced{Rank: i, Endpoint: fmt.Sprintf("tcp://*:%d", port(p.pub.Addr())),
				Replay: fmt.Sprintf("tcp://*:%d", port(p.router.Addr()))})
			p.store("GPU", 1+3*i, true)
		}
		w.Configure(Config{}, "localhost", announced)
		eventually(t, "mean of 1 and 4 blocks", func() bool { return cached(pool)["w"].Tokens == 5*blockSize/2 })
		ranks[1].pub.Close()
		eventually(t, "no entry without one of the ranks", func() bool { return len(cached(pool)) == 0 })
		if v := w.View(); v.Live || v.Streams != 2 || v.Blocks != 5 || v.Fault == "" {
			t.Errorf("the view is %+v", v)
		}
	})
}

// TestLateReaderHasNoEntryUntilItKnowsTheCache: an engine that ran before its reader, and has no
// replay, may have blocks without an event.
func TestLateReaderHasNoEntryUntilItKnowsTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, Options{})
		pool := c.NewPool()
		w, p := pool.Add("w", "w"), publish(t, c)
		for range 3 {
			p.store("GPU", 1, true)
		}
		w.Configure(p.config(false), "127.0.0.1", nil)
		eventually(t, "stream", func() bool { return w.View().Live })
		read := func(blocks int) {
			eventually(t, "event", func() bool {
				p.store("GPU", blocks, true)
				return w.View().Blocks == blocks
			})
		}
		read(2)
		if all := cached(pool); len(all) > 0 {
			t.Errorf("%+v without knowledge of the cache", all)
		}
		w.SetCacheTokens(5 * blockSize)
		read(4)
		if all := cached(pool); len(all) > 0 {
			t.Errorf("%+v with 4 of 5 blocks", all)
		}
		read(5)
		eventually(t, "entry with all blocks", func() bool { return cached(pool)["w"].Tokens == 5*blockSize })
	})
}

func TestUnchangedSourceKeepsItsStreamAndAChangedOneDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, Options{})
		pool := c.NewPool()
		w, first, second := pool.Add("w", "w"), publish(t, c), publish(t, c)
		first.store("GPU", 3, true)
		second.store("GPU", 1, true)
		w.Configure(first.config(true), "127.0.0.1", nil)
		eventually(t, "entry", func() bool { return cached(pool)["w"].Tokens == 3*blockSize })
		connections := w.View().Counts.Happened[kvstream.Connected]
		w.Configure(first.config(true), "127.0.0.1", []Announced{{Endpoint: "tcp://*:1"}}) // a port takes precedence
		if cached(pool)["w"].Tokens != 3*blockSize {
			t.Error("the stream of an unchanged source has ended")
		}
		w.Configure(second.config(true), "127.0.0.1", nil)
		eventually(t, "entry of the other publisher", func() bool { return cached(pool)["w"].Tokens == blockSize })
		if n := w.View().Counts.Happened[kvstream.Connected] - connections; n != 1 {
			t.Errorf("%d connections for one change", n)
		}
		w.Configure(Config{Enabled: new(false)}, "127.0.0.1", nil)
		if v := w.View(); v.Streams != 0 || v.Counts.Stored < 2 || len(cached(pool)) > 0 {
			t.Errorf("switched off: %+v", v)
		}
	})
}

func TestRemovedWorkerFreesItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, Options{})
		pool := c.NewPool()
		p := publish(t, c)
		p.store("GPU", 5, true)
		w := pool.Add("w", "w")
		w.Configure(p.config(true), "127.0.0.1", nil)
		eventually(t, "entry", func() bool { return len(cached(pool)) == 1 })
		if used, _ := c.Memory(); used != 5*kvindex.BlockBytes {
			t.Errorf("%d bytes for five blocks", used)
		}
		w.Remove()
		w.Remove()
		w.Configure(p.config(true), "127.0.0.1", nil) // a status that was on its way
		if used, _ := c.Memory(); used != 0 || len(cached(pool)) > 0 || w.View().Streams != 0 {
			t.Errorf("%d bytes are left", used)
		}
	})
}

func TestWorkersBeyondTheIndexHaveNoEntry(t *testing.T) {
	var log lines
	c := New(Options{Log: log.logger()})
	pool := c.NewPool()
	var last *Worker
	for i := range 65 {
		last = pool.Add(fmt.Sprint("w", i), i)
		last.Configure(Config{Port: 1}, "h", nil)
	}
	if n := len(*pool.entries.Load()); n != 64 || last.View().Streams != 0 {
		t.Errorf("%d workers have streams", n)
	}
	if !log.has("KV events are not read", "w64", "divide the pool's workers") {
		t.Errorf("the log is %s", log.String())
	}
	if c.SetMemory(64 << 20); pool.index.Budget() != 64<<20 {
		t.Errorf("the index may have %d bytes", pool.index.Budget())
	}
}

func TestEnginesThatConnectAreToldApartByTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := run(t, Options{Log: log.logger(), Listen: "127.0.0.1:0"})
		pool := c.NewPool()
		a, b := pool.Add("a", "a"), pool.Add("b", "b")
		a.Configure(Config{Topic: "kv@a"}, "127.0.0.1", nil)
		b.Configure(Config{Topic: "kv@a"}, "127.0.0.1", nil)
		if b.View().Streams != 0 || !log.has("KV events are not read", "the worker a has the same topic") {
			t.Errorf("a shared topic is read: %s", log.String())
		}
		b.Configure(Config{Topic: "kv@b"}, "127.0.0.1", nil)
		if v := b.View(); v.Streams != 1 {
			t.Errorf("the view is %+v", v)
		}
		topics := *c.byTopic.Load()
		if len(topics) != 2 || topics["kv@a"] == topics["kv@b"] {
			t.Errorf("%d topics", len(topics))
		}
		eventually(t, "listener", func() bool { return log.has("listening for publishers of KV events") })
	})
}

func TestEngineThatConnectsNeedsAListener(t *testing.T) {
	var log lines
	c := New(Options{Log: log.logger()})
	w := c.NewPool().Add("w", "w")
	for range 2 {
		w.Configure(Config{}, "h", []Announced{{Endpoint: "tcp://gateway:5557"}})
	}
	if log.count("kv_events.listen is not set") != 1 || w.View().Streams != 0 {
		t.Errorf("the log is %s", log.String())
	}
}

func TestEachChangeOfAStreamIsOneLogLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		c := run(t, Options{Log: log.logger()})
		pool := c.NewPool()
		p := publish(t, c)
		pool.Add("small-0", "w").Configure(p.config(true), "127.0.0.1", nil)
		eventually(t, "line of the start", func() bool { return log.has("KV events are read", "small-0") })
		for range 20 {
			p.store("GPU", 3, true)
		}
		p.pub.Close()
		eventually(t, "attempts to connect", func() bool {
			w := (*pool.entries.Load())[0].worker
			return w.View().Counts.Happened[kvstream.Lost] >= 3
		})
		if log.count("KV events are lost") != 1 || log.count("\n") != 2 {
			t.Errorf("the log is %s", log.String())
		}
	})
}

func TestReaderThatPanicsIsStartedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panicked atomic.Bool
		c := run(t, Options{Recover: func(work string, step func() error) error {
			if work != "reading the KV events of the worker w" {
				t.Errorf("the work is %q", work)
			}
			if panicked.CompareAndSwap(false, true) {
				return fmt.Errorf("a panic")
			}
			return step()
		}})
		w, p := c.NewPool().Add("w", "w"), publish(t, c)
		w.Configure(p.config(true), "127.0.0.1", nil)
		eventually(t, "stream after the panic", func() bool { return w.View().Live })
		if !panicked.Load() {
			t.Error("the reader did not panic")
		}
	})
}

func TestLagIsThatOfBatchesAfterTheConnection(t *testing.T) {
	c := New(Options{})
	w := c.NewPool().Add("w", "w")
	w.Configure(Config{Port: 1}, "h", nil)
	r := w.ranks[0]
	now := time.Now()
	at := func(d time.Duration) *kvevents.Batch {
		return &kvevents.Batch{Time: float64(now.Add(d).UnixNano()) / 1e9}
	}
	r.Report(kvstream.Connected, nil)
	r.Apply(at(-time.Hour)) // from a replay
	if lag := w.View().Lag; lag != 0 {
		t.Errorf("a replayed batch makes a lag of %v", lag)
	}
	r.mu.Lock()
	r.upToDate = now.Add(-2 * time.Minute)
	r.mu.Unlock()
	r.Apply(at(-time.Minute))
	if lag := w.View().Lag; lag < time.Minute || lag > 2*time.Minute {
		t.Errorf("the lag is %v", lag)
	}
	for _, seconds := range []float64{-1, 1e300} {
		if at := unixTime(seconds); !at.IsZero() {
			t.Errorf("%v is %v", seconds, at)
		}
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	c := New(Options{})
	pool := c.NewPool()
	for i := range 16 {
		w := pool.Add(fmt.Sprint(i), i)
		w.Configure(Config{Port: 1}, "h", nil)
		w.ranks[0].live.Store(true)
		w.ranks[0].complete.Store(true)
		w.ranks[0].Apply(&kvevents.Batch{Events: []kvevents.Event{{Kind: kvevents.Stored, Hashes: []uint64{1, 2, 3},
			Tokens: prompt(3), BlockSize: blockSize}}})
	}
	keys, sizes, r := keysOf(5), make([]int, 0, 4), routing.Request{}
	if n := testing.AllocsPerRun(100, func() {
		r.Cached = r.Cached[:0]
		for _, size := range pool.BlockSizes(sizes[:0]) {
			pool.Lookup(&r, size, keys, true)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if len(r.Cached) != 16 || r.Cached[0].Tokens != 3*blockSize || r.Cached[0].More {
		t.Errorf("%+v", r.Cached)
	}
	for known, more := range map[int]bool{2: true, 3: true, 4: false} {
		r.Cached = r.Cached[:0]
		pool.Lookup(&r, blockSize, keys[:known], false)
		if got := r.Cached[0]; got.More != more || got.Tokens != int64(min(known, 3)*blockSize) {
			t.Errorf("of %d known blocks: %+v", known, got)
		}
	}
}

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) count(part string) int { return strings.Count(l.String(), part) }

// has reports whether one line has all parts.
func (l *lines) has(parts ...string) bool {
	for line := range strings.Lines(l.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			return true
		}
	}
	return false
}
