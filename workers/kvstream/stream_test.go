package kvstream

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tierway/workers/kvevents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setSink is an index of hashes only.
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

func (s *setSink) has(hash uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache[hash]
}

func (s *setSink) knows(cache map[uint64]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live && maps.Equal(s.cache, cache)
}

// follow starts a stream of an engine that ends with the test.
func follow(t *testing.T, config Config, e *fakeEngine) *setSink {
	config.Network = e.zmtp()
	sink := newSink()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(config, sink).Follow(ctx, e.address())
	}()
	t.Cleanup(func() { cancel(); <-done })
	return sink
}

// agree waits until the sink has exactly the engine's blocks. It first sends a batch, which shows a gap.
func agree(t *testing.T, e *fakeEngine, s *setSink) {
	t.Helper()
	e.subscribed()
	mark := uint64(1 << 40)
	e.locked(func() { mark += uint64(e.asked) })
	e.send(false, "store", mark)
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
				synctest.Test(t, func(t *testing.T) {
					e := startFake(t)
					e.old = old
					for h := range uint64(10) {
						e.send(false, "store", h)
					}
					s := follow(t, Config{Replay: e.replay()}, e)
					agree(t, e, s)
					if change != nil {
						change(e)
					}
					agree(t, e, s)
				})
			})
		}
	}
}

func TestSinkWithoutAReplayNeverKnowsWhatTheEngineHasNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(20) {
			e, rng := startFake(t), rand.New(rand.NewPCG(seed, 0))
			s := follow(t, Config{}, e)
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
			eventually(t, "last event", func() bool { return s.has(last) })
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
	})
}

func TestEngineWithoutEventsHasBegunBeforeItsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			change        func(e *fakeEngine)
			begun, resets int
		}{
			"its first event":               {nil, 1, 0},
			"a new connection":              {func(e *fakeEngine) { e.locked(e.cut) }, 1, 0},
			"its first event is lost":       {func(e *fakeEngine) { e.send(true, "store", 1) }, 1, 0},
			"its first events are too old":  {func(e *fakeEngine) { e.sendForgotten(3) }, 1, 1},
			"its replay ends":               {func(e *fakeEngine) { e.sendForgotten(3); e.router.Close() }, 1, 1},
			"a restart before it publishes": {func(e *fakeEngine) { e.restart(true) }, 1, 0},
		} {
			e := startFake(t)
			s := follow(t, Config{Replay: e.replay()}, e)
			e.subscribed()
			eventually(t, "live stream", s.isLive)
			if s.count(Begun) != 1 {
				t.Errorf("%s: %+v before an event", name, s)
			}
			if c.change != nil {
				c.change(e)
				e.subscribed()
			}
			e.send(false, "store", 9)
			eventually(t, "event", func() bool { return s.has(9) })
			s.mu.Lock()
			if s.counts[Begun] != c.begun || s.resets != c.resets {
				t.Errorf("%s: %+v", name, s)
			}
			s.mu.Unlock()
		}
	})
}

func TestReplayThatFailsResetsOnceAndIsTriedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, breakReplay := range map[string]func(e *fakeEngine){
			"a hole":            func(e *fakeEngine) { e.hole = true },
			"no endpoint there": func(e *fakeEngine) { e.router.Close() },
		} {
			e := startFake(t)
			s := follow(t, Config{Replay: e.replay()}, e)
			agree(t, e, s)
			e.locked(func() { breakReplay(e) })
			e.send(true, "store", 1)
			e.send(true, "store", 2)
			e.send(false, "store", 3)
			e.send(false, "store", 4)
			eventually(t, "last event", func() bool { return s.has(4) })
			s.mu.Lock()
			if s.counts[ReplayFailed] != 1 || s.counts[Gap] != 1 || !s.live || s.cache[1<<40] {
				t.Errorf("%s: %+v", name, s)
			}
			s.mu.Unlock()
		}
	})
}

func TestMessagesWithoutANumberAreAppliedAndReportedOnce(t *testing.T) {
	e, s := startFake(t), newSink()
	for h := range uint64(3) {
		e.send(false, "store", h)
	}
	stream, from := New(Config{}, s), &reader{}
	for _, payload := range e.log {
		stream.applyMessage(t.Context(), from, [][]byte{[]byte("kv"), payload})
	}
	if len(s.cache) != 3 || s.counts[Unsequenced] != 1 {
		t.Errorf("%+v", s)
	}
	stream.applyMessage(t.Context(), from, [][]byte{[]byte("kv"), []byte("no batch")})
	stream.applyMessage(t.Context(), from, [][]byte{[]byte("kv"), {1, 2}, e.log[0]})
	if len(s.cache) != 0 || s.counts[Unsequenced] != 1 || s.counts[Undecodable] != 2 {
		t.Errorf("after two that cannot be read: %+v", s)
	}
}

func TestUndecodableMessageIsReportedOnceAndTakesItsNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := startFake(t), newSink()
		e.send(true, "store", 1)
		stream, from := New(Config{}, s), &reader{}
		stream.applyMessage(t.Context(), from, message(0, []byte("no batch")))
		stream.applyMessage(t.Context(), from, message(1, e.log[0]))
		if s.counts[Undecodable] != 1 || s.counts[Gap] != 0 || !s.cache[1] {
			t.Errorf("%+v", s)
		}
		stream.applyMessage(t.Context(), from, message(2, []byte("no batch")))
		if s.cache[1] {
			t.Error("the sink keeps its blocks, although the message may have removed them")
		}
	})
}

// TestUndecodableMessagesSuspendTheStream: after maxFaults of them, no further one is decoded until the window
// ends, whether the publisher was dialed or has dialed.
func TestUndecodableMessagesSuspendTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSink()
		stream, from := New(Config{}, s), &reader{}
		stream.join(t.Context(), from)
		stream.applyMessage(t.Context(), from, message(0, batchOf(1, 1)))
		for n := range uint64(maxFaults) {
			if stream.isSuspended() || !s.isLive() {
				t.Fatalf("suspended after %d undecodable messages", n)
			}
			stream.applyMessage(t.Context(), from, message(n+1, []byte("no batch")))
		}
		if !stream.isSuspended() || s.isLive() || len(s.blocks()) > 0 {
			t.Errorf("after %d undecodable messages: %+v", maxFaults, s)
		}
		time.Sleep(faultWindow)
		if stream.isSuspended() {
			t.Error("suspended after the window")
		}
		stream.applyMessage(t.Context(), from, message(99, batchOf(2, 2)))
		if !s.isLive() || !slices.Equal(s.blocks(), []uint64{2}) || s.counts[Gap] != 1 {
			t.Errorf("after the window: %+v", s)
		}
		for range 3 {
			time.Sleep(faultWindow)
			for range maxFaults - 1 {
				stream.applyMessage(t.Context(), from, message(100, []byte("no batch")))
			}
		}
		if stream.isSuspended() {
			t.Error("suspended, although the undecodable messages are rare")
		}
	})
}

// TestFollowLeavesAPublisherOfUndecodableMessages, and says why.
func TestFollowLeavesAPublisherOfUndecodableMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startFake(t)
		s := follow(t, Config{}, e)
		e.subscribed()
		eventually(t, "live stream", s.isLive)
		for range maxFaults {
			e.locked(func() {
				for c := range e.readers {
					writeMessage(c, message(0, []byte("no batch"))...) // the reader has left
				}
			})
		}
		eventually(t, "end of the connection", func() bool { return s.count(Lost) == 1 })
		if s.isLive() || s.count(Connected) != 1 || s.count(Undecodable) != maxFaults {
			t.Errorf("%+v", s)
		}
	})
}

// TestReplayEndsAtAnUndecodableBatch: what follows it is not the whole cache.
func TestReplayEndsAtAnUndecodableBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startFake(t)
		e.send(true, "store", 1)
		e.locked(func() { e.log = append(e.log, []byte("no batch")) })
		e.send(true, "store", 3)
		s := follow(t, Config{Replay: e.replay()}, e)
		e.subscribed()
		e.send(false, "store", 4)
		eventually(t, "last event", func() bool { return s.has(4) })
		if s.count(Replayed) > 0 || s.count(ReplayFailed) == 0 || s.count(Undecodable) == 0 ||
			!slices.Equal(s.blocks(), []uint64{4}) {
			t.Errorf("%+v", s)
		}
	})
}

// message is a live message of the topic kv.
func message(number uint64, payload []byte) [][]byte {
	return [][]byte{[]byte("kv"), binary.BigEndian.AppendUint64(nil, number), payload}
}

func TestReplayThatFailedIsRequestedAgainAfterThePauseOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startFake(t)
		for h := range uint64(40) {
			e.send(true, "store", h)
		}
		e.router.Close()
		s := newSink()
		stream, from := New(Config{Replay: e.replay(), Network: e.zmtp()}, s), &reader{}
		number := uint64(10)
		receive := func() { stream.applyMessage(t.Context(), from, message(number, e.log[number])) }
		receive()
		stream.setLive(true)
		for range 5 {
			number += 2
			receive()
			if !s.knows(map[uint64]bool{number: true}) {
				t.Fatalf("after the gap before %d: %+v", number, s)
			}
		}
		if s.counts[ReplayFailed] != 1 || s.counts[Gap] != 5 {
			t.Errorf("within the pause: %+v", s)
		}
		stream.connect(t.Context(), false) // of another connection
		if s.counts[ReplayFailed] != 1 || len(s.cache) > 0 {
			t.Errorf("a new connection within the pause: %+v", s)
		}
		time.Sleep(RetryReplay)
		number++
		receive()
		if s.counts[ReplayFailed] != 2 || !s.knows(map[uint64]bool{number: true}) {
			t.Errorf("after the pause: %+v", s)
		}
	})
}

func TestStreamIsNotLiveDuringAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startFake(t)
		e.send(true, "store", 1)
		s := follow(t, Config{Replay: e.replay()}, e)
		agree(t, e, s)
		hold, before := make(chan struct{}), 0
		release := sync.OnceFunc(func() { close(hold) })
		defer release()
		e.locked(func() { e.hold, before = hold, e.asked })
		e.send(true, "clear", 0)
		e.send(false, "store", 2)
		eventually(t, "replay", func() (asked bool) { e.locked(func() { asked = e.asked > before }); return asked })
		if s.isLive() {
			t.Error("live, with blocks that the engine has cleared")
		}
		release()
		eventually(t, "agreement", func() bool { return s.knows(map[uint64]bool{2: true}) })
	})
}

// panickingSink panics at its first batch.
type panickingSink struct {
	*setSink
	batches int
}

func (s *panickingSink) Apply(b *kvevents.Batch) {
	if s.batches++; s.batches == 1 {
		panic("a fault of the sink")
	}
	s.setSink.Apply(b)
}

func TestStreamIsLiveAgainAfterAPanicOfItsSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := startFake(t), &panickingSink{setSink: newSink()}
		stream := New(Config{Network: e.zmtp()}, s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				func() {
					defer func() {
						if recover() != nil {
							s.setSink.SetLive(false)
						}
					}()
					stream.Follow(ctx, e.address())
				}()
			}
		}()
		defer func() { cancel(); <-done }()
		e.subscribed()
		e.send(false, "store", 1)
		eventually(t, "panic", func() bool { return s.count(Connected) == 2 })
		eventually(t, "live stream", s.isLive)
	})
}

// blocks returns the sink's blocks in order.
func (s *setSink) blocks() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.cache))
}
