package kvcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tierway/routing/kvindex"
	"tierway/workers/kvevents"
	"tierway/workers/kvstream"
)

// logEvery is the shortest time between two log lines about losses of a stream, and between two about its
// gaps, restarts and replays.
const logEvery = time.Minute

// knownShare is the share of an engine's cache that the index must have if the stream began after the
// engine, or if the index has evicted blocks. Blocks behind an unknown block are not in the index, so with
// a lower share the prompts of many requests would be missing.
const knownShare = 0.9

// rank is the stream of one source with its blocks in the index. It is the stream's sink.
type rank struct {
	worker *Worker
	source Source
	index  *kvindex.Worker
	stream *kvstream.Stream
	cancel context.CancelFunc // ends the reader; nil before it was started. Guarded by the lock of Caches

	closed    atomic.Bool
	live      atomic.Bool
	complete  atomic.Bool  // the index has all blocks, or nearly all
	unnamed   atomic.Bool  // the engine has blocks of LoRA adapters that it states without a name
	blockSize atomic.Int64 // in tokens; 0 before the first event
	// of blocks in slower media, if it differs from blockSize; 0: none
	offloadSize atomic.Int64
	aging       int          // limit of index.SetAging; used by the reader only
	evicted     atomic.Int64 // blocks that the index had evicted after the last batch

	mu         sync.Mutex // guards the rest
	counts     Counts
	since      time.Time // of the last change of live; zero before the first
	fault      string    // cause of the last loss; empty while live
	lost       bool      // the last loss was logged, and no later connection
	lostLogged time.Time // time of the last line about a loss
	lastGap    time.Time
	lag        time.Duration
	upToDate   time.Time // older batches were queued or replayed: the lag does not count them
	logged     time.Time // last log line about a gap, restart or replay
}

var _ kvstream.Sink = (*rank)(nil)

// errUnnamed is the reason why the events of an engine with such blocks are not used.
var errUnnamed = errors.New("the engine states LoRA adapters by number, and requests by name: blocks of adapters " +
	"cannot be found; update the engine to a version that publishes lora_name")

// newRank returns the stream of a source, which Caches.start starts. The error is that of the index.
func newRank(w *Worker, s Source) (*rank, error) {
	index, err := w.pool.index.Add("")
	if err != nil {
		return nil, fmt.Errorf("%w: divide the pool's workers among several pools", err)
	}
	r := &rank{worker: w, source: s, index: index}
	r.stream = kvstream.New(kvstream.Config{Topic: s.Topic, Replay: s.Replay, Network: w.pool.caches.options.Network}, r)
	return r, nil
}

// known reports whether the index has the cache of the rank: its stream is live and complete.
func (r *rank) known() bool { return r.live.Load() && r.complete.Load() && !r.unnamed.Load() }

func (r *rank) Apply(b *kvevents.Batch) {
	if limit := r.worker.offloadTokens(); limit != r.aging { // a lock that most batches need not take
		r.index.SetAging(limit)
		r.aging = limit
	}
	r.index.Apply(b)
	r.blockSize.Store(int64(r.index.BlockSize()))
	r.offloadSize.Store(int64(r.index.OffloadSize()))
	r.judgeComplete(b)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.Rejected[kvevents.UnnamedAdapter] > 0 {
		r.unnamed.Store(true)
		r.logRarely(now, "unnamed_adapter", errUnnamed)
	}
	r.counts.add(b)
	if at := unixTime(b.Time); at.After(r.upToDate) {
		r.lag = max(0, now.Sub(at))
	}
}

// unixTime returns the time of a batch; zero for a time that is not valid.
func unixTime(seconds float64) time.Time {
	const maxSeconds = 1 << 33 // the year 2242
	if !(seconds > 0 && seconds < maxSeconds) {
		return time.Time{}
	}
	return time.Unix(0, int64(seconds*1e9))
}

// judgeComplete sets complete and unnamed after a batch. An index that evicts for its budget is treated
// like one that began late: the chats that go on behind an evicted block are unknown, however often they
// are used.
func (r *rank) judgeComplete(b *kvevents.Batch) {
	cleared := slices.ContainsFunc(b.Events, func(e kvevents.Event) bool { return e.Kind == kvevents.Cleared })
	if cleared {
		r.unnamed.Store(false)
	}
	evicted := int64(r.index.Counts().Evicted)
	switch {
	case r.evicted.Swap(evicted) < evicted:
		r.complete.Store(r.knowsMost())
	case cleared:
		r.complete.Store(true)
	case !r.complete.Load():
		r.complete.Store(r.knowsMost())
	}
}

// knowsMost reports whether the index has most of the cache of the rank. The engine's cache is that of all
// its ranks.
func (r *rank) knowsMost() bool {
	tokens := float64(r.worker.cacheTokens.Load()) / float64(max(1, r.worker.rankCount.Load()))
	known := float64(int64(r.index.OnGPU()) * r.blockSize.Load())
	return tokens > 0 && known >= knownShare*tokens
}

func (r *rank) Reset() {
	r.complete.Store(false)
	r.unnamed.Store(false)
	r.index.Reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Resets++
}

func (r *rank) SetLive(live bool) {
	if r.closed.Load() {
		return
	}
	r.live.Store(live)
	r.mu.Lock()
	defer r.mu.Unlock()
	if live {
		if r.lost || r.since.IsZero() {
			r.log(slog.LevelInfo, "KV events are read")
		}
		r.lost, r.fault = false, ""
	}
	r.since = time.Now()
}

func (r *rank) Report(h kvstream.Happening, err error) {
	if h == kvstream.Begun {
		r.complete.Store(true)
		return
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Happened[h]++
	switch h {
	case kvstream.Connected:
		r.upToDate = now
	case kvstream.Lost:
		r.fault = err.Error()
		if !r.lost && now.Sub(r.lostLogged) >= logEvery {
			r.lost, r.lostLogged = true, now
			message := "KV events are lost; routing uses its own history of the worker"
			if r.since.IsZero() {
				message = "KV events cannot be read; routing uses its own history of the worker"
			}
			r.log(slog.LevelWarn, message, cause(err))
		}
	case kvstream.Gap, kvstream.Restarted:
		r.upToDate, r.lastGap = now, now
		r.logRarely(now, h.String(), err)
	case kvstream.ReplayFailed, kvstream.Undecodable, kvstream.Unsequenced:
		r.logRarely(now, h.String(), err)
	}
}

// logRarely writes a line about a happening unless the last one is recent.
func (r *rank) logRarely(now time.Time, kind string, err error) {
	if now.Sub(r.logged) < logEvery {
		return
	}
	r.logged = now
	attrs := []slog.Attr{slog.String("kind", kind)}
	if err != nil {
		attrs = append(attrs, cause(err))
	}
	r.log(slog.LevelWarn, "KV events are incomplete", attrs...)
}

func cause(err error) slog.Attr { return slog.String("cause", err.Error()) }

// log writes a line about the stream, unless it was closed.
func (r *rank) log(level slog.Level, message string, attrs ...slog.Attr) {
	if r.closed.Load() {
		return
	}
	from := r.source.Address
	if from == "" {
		from = "topic " + r.source.Topic
	}
	r.worker.log(level, message, append([]slog.Attr{slog.Int("rank", r.source.Rank), slog.String("from", from)},
		attrs...)...)
}

// log writes a line about the worker.
func (w *Worker) log(level slog.Level, message string, attrs ...slog.Attr) {
	w.pool.caches.options.Log.LogAttrs(context.Background(), level, message,
		append([]slog.Attr{slog.String("worker", w.name)}, attrs...)...)
}
