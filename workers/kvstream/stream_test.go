package kvstream

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"tierway/workers/kvevents"
	"tierway/workers/zmtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setSink is an index that knows hashes only.
type setSink struct {
	mu     sync.Mutex
	cache  map[uint64]bool
	live   bool
	counts [Happenings]int
	resets int
}

func newSink() *setSink { return &setSink{cache: map[uint64]bool{}} }

func (s *setSink) Apply(b *kvevents.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.Events {
		for _, h := range e.Hashes {
			if e.Kind == kvevents.Stored {
				s.cache[h] = true
			} else {
				delete(s.cache, h)
			}
		}
		if e.Kind == kvevents.Cleared {
			clear(s.cache)
		}
	}
}

func (s *setSink) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cache)
	s.resets++
}

func (s *setSink) SetLive(live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = live
}

func (s *setSink) Report(h Happening, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[h]++
}

func (s *setSink) count(h Happening) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[h]
}

func (s *setSink) isLive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

func (s *setSink) knows(cache map[uint64]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live && maps.Equal(s.cache, cache)
}

// follow starts a stream that ends with the test.
func follow(t *testing.T, config Config, address string) *setSink {
	sink := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(config, sink).Follow(ctx, address)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return sink
}

// agree waits until the sink knows exactly what the engine has. A last batch shows the gaps.
func agree(t *testing.T, e *fakeEngine, s *setSink) {
	t.Helper()
	e.subscribed()
	e.send(false, "store", 1<<40+uint64(e.asked))
	eventually(t, "agreement", func() bool {
		e.mu.Lock()
		cache := maps.Clone(e.cache)
		e.mu.Unlock()
		return s.knows(cache)
	})
}

func TestSinkKnowsTheEnginesCacheAfterEveryDisturbance(t *testing.T) {
	disturb := map[string]func(e *fakeEngine){
		"nothing":               nil,
		"messages are lost":     func(e *fakeEngine) { e.send(true, "store", 50); e.send(true, "remove", 3) },
		"a clear is lost":       func(e *fakeEngine) { e.send(true, "clear", 0); e.send(true, "store", 51) },
		"the connection is cut": func(e *fakeEngine) { e.locked(e.cut) },
		"cut, and messages lost": func(e *fakeEngine) {
			e.locked(e.cut)
			e.send(true, "remove", 4)
			e.send(true, "store", 52)
		},
		"a restart": func(e *fakeEngine) { e.restart(true); e.send(true, "store", 53) },
		"a restart behind a proxy": func(e *fakeEngine) {
			e.restart(false)
			e.send(false, "store", 54)
		},
		"a restart that passes the last number": func(e *fakeEngine) {
			e.restart(true)
			for h := range uint64(40) {
				e.send(true, "store", 100+h)
			}
		},
		"a buffer that begins later": func(e *fakeEngine) {
			e.send(true, "clear", 0)
			e.send(true, "store", 60)
			e.locked(func() { e.from = len(e.log) - 1 })
		},
	}
	for name, change := range disturb {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replies without a topic: %v", name, old), func(t *testing.T) {
				e := startFake(t)
				e.old = old
				for h := range uint64(10) {
					e.send(false, "store", h)
				}
				s := follow(t, Config{Replay: e.replay()}, e.address())
				agree(t, e, s)
				if change != nil {
					change(e)
				}
				agree(t, e, s)
			})
		}
	}
}

func TestSinkWithoutAReplayNeverKnowsWhatTheEngineHasNot(t *testing.T) {
	for seed := range uint64(20) {
		e, rng := startFake(t), rand.New(rand.NewPCG(seed, 0))
		s := follow(t, Config{}, e.address())
		e.subscribed()
		for range 60 {
			switch n := rng.IntN(20); {
			case n == 0:
				e.restart(rng.IntN(2) == 0)
			case n == 1:
				e.locked(e.cut)
			case n < 12:
				e.send(rng.IntN(8) == 0, "store", rng.Uint64N(20))
			default:
				e.send(rng.IntN(8) == 0, "remove", rng.Uint64N(20))
			}
		}
		e.subscribed()
		eventually(t, "live stream", s.isLive)
		last := 100 + seed
		e.send(false, "store", last)
		e.send(false, "store", last)
		eventually(t, "last event", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.cache[last] })
		e.mu.Lock()
		s.mu.Lock()
		for h := range s.cache {
			if !e.cache[h] {
				t.Errorf("seed %d: %d is not in the engine's cache", seed, h)
			}
		}
		s.mu.Unlock()
		e.mu.Unlock()
	}
}

func TestReplayThatFailsResetsOnceAndIsTriedLater(t *testing.T) {
	for name, breakReplay := range map[string]func(e *fakeEngine){
		"a hole":            func(e *fakeEngine) { e.hole = true },
		"no endpoint there": func(e *fakeEngine) { e.router.Close() },
	} {
		e := startFake(t)
		s := follow(t, Config{Replay: e.replay()}, e.address())
		agree(t, e, s)
		e.locked(func() { breakReplay(e) })
		e.send(true, "store", 1)
		e.send(true, "store", 2)
		e.send(false, "store", 3)
		e.send(false, "store", 4)
		eventually(t, "last event", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.cache[4] })
		s.mu.Lock()
		if s.counts[ReplayFailed] != 1 || s.counts[Gap] != 1 || !s.live || s.cache[1<<40] {
			t.Errorf("%s: %+v", name, s)
		}
		s.mu.Unlock()
	}
}

func TestMessagesWithoutANumberAreAppliedAndReportedOnce(t *testing.T) {
	e, s := startFake(t), newSink()
	for h := range uint64(3) {
		e.send(false, "store", h)
	}
	stream := New(Config{}, s)
	for _, payload := range e.log {
		stream.takeMessage(t.Context(), [][]byte{[]byte("kv"), payload})
	}
	stream.takeMessage(t.Context(), [][]byte{[]byte("kv"), []byte("no batch")})
	stream.takeMessage(t.Context(), [][]byte{[]byte("kv"), {1, 2}, e.log[0]})
	if len(s.cache) != 3 || s.counts[Unsequenced] != 1 || s.counts[Undecodable] != 2 {
		t.Errorf("%+v", s)
	}
}

func TestServeTellsPublishersApartByTopic(t *testing.T) {
	l, err := zmtp.Listen(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sinks := map[string]*setSink{"kv@a": newSink(), "kv@b": newSink()}
	streams := map[string]*Stream{}
	for topic, s := range sinks {
		streams[topic] = New(Config{}, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, func(topic []byte) *Stream { return streams[string(topic)] }) }()
	e := startFake(t)
	e.send(false, "store", 5)
	c := dialAsPublisher(t, l.Addr().String())
	for _, topic := range []string{"kv@a", "kv@stranger", "kv@b"} {
		if err := writeMessage(c, []byte(topic), make([]byte, 8), e.log[0]); err != nil {
			t.Fatal(err)
		}
	}
	for topic, s := range sinks {
		eventually(t, "event of "+topic, func() bool { return s.knows(map[uint64]bool{5: true}) })
	}
	c.Close()
	for topic, s := range sinks {
		eventually(t, "end of "+topic, func() bool { return !s.isLive() && s.count(Lost) == 1 })
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
