package kvcache

import (
	"context"
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

// logEvery is the shortest time between two log lines about gaps, restarts and replays of a stream.
const logEvery = time.Minute

// knownShare is the share of an engine's cache that the index must have for a stream that began
// after the engine. The blocks behind an unknown one are unknown too, so a lower share means that
// prompts of many requests are missing.
const knownShare = 0.9

// rank is the stream of one source with its place in the index. It is the stream's sink.
type rank struct {
	worker *Worker
	source Source
	index  *kvindex.Worker
	stream *kvstream.Stream
	cancel context.CancelFunc // ends the reader; nil before it was started. Guarded by the lock of Caches

	closed    atomic.Bool
	live      atomic.Bool
	complete  atomic.Bool  // the index has all blocks, or nearly all
	blockSize atomic.Int64 // in tokens; 0 before the first event

	mu       sync.Mutex // guards the rest
	counts   Counts
	since    time.Time // of the last change of live; zero before the first
	fault    string    // cause of the last loss; empty while live
	lost     bool      // the loss was logged
	lastGap  time.Time
	lag      time.Duration
	upToDate time.Time // batches that are older were kept for the reader, and say nothing about the lag
	logged   time.Time // last line about a gap, restart or replay
}

var _ kvstream.Sink = (*rank)(nil)

// newRank returns the stream of a source. It has to be started. The error is that of the index.
func newRank(w *Worker, s Source) (*rank, error) {
	index, err := w.pool.index.Add("")
	if err != nil {
		return nil, fmt.Errorf("%w: divide the pool's workers among several pools", err)
	}
	r := &rank{worker: w, source: s, index: index}
	r.stream = kvstream.New(kvstream.Config{Topic: s.Topic, Replay: s.Replay}, r)
	return r, nil
}

// close ends the stream and frees its blocks. It does not wait for the reader.
func (r *rank) close() {
	r.closed.Store(true)
	r.live.Store(false)
	if r.cancel != nil {
		r.cancel()
	}
	r.index.Remove()
}

// known reports whether the index knows the cache of the rank.
func (r *rank) known() bool { return r.live.Load() && r.complete.Load() }

// Apply implements kvstream.Sink.
func (r *rank) Apply(b *kvevents.Batch) {
	r.index.Apply(b)
	r.blockSize.Store(int64(r.index.BlockSize()))
	if slices.ContainsFunc(b.Events, func(e kvevents.Event) bool { return e.Kind == kvevents.Cleared }) {
		r.complete.Store(true)
	} else if !r.complete.Load() {
		r.complete.Store(r.knowsMost())
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.add(b)
	if at := unixTime(b.Time); at.After(r.upToDate) {
		r.lag = max(0, now.Sub(at))
	}
}

// unixTime returns the time of a batch. A time that no clock can show is zero.
func unixTime(seconds float64) time.Time {
	const most = 1 << 33 // the year 2242
	if !(seconds > 0 && seconds < most) {
		return time.Time{}
	}
	return time.Unix(0, int64(seconds*1e9))
}

// knowsMost reports whether the index has most of the engine's cache.
func (r *rank) knowsMost() bool {
	tokens := r.worker.cacheTokens.Load()
	known := int64(r.index.Len()) * r.blockSize.Load()
	return tokens > 0 && float64(known) >= knownShare*float64(tokens)
}

// Reset implements kvstream.Sink.
func (r *rank) Reset() {
	r.complete.Store(false)
	r.index.Reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Resets++
}

// SetLive implements kvstream.Sink.
func (r *rank) SetLive(live bool) {
	if r.closed.Load() {
		return
	}
	r.live.Store(live)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Now()
	if live {
		r.lost, r.fault = false, ""
		r.log(slog.LevelInfo, "KV events are read")
	}
}

// Report implements kvstream.Sink.
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
		if !r.lost {
			r.lost = true
			r.log(slog.LevelWarn, "KV events are lost; routing uses its own history of the worker", cause(err))
		}
	case kvstream.Gap, kvstream.Restarted:
		r.upToDate, r.lastGap = now, now
		r.logRarely(now, h, err)
	case kvstream.ReplayFailed, kvstream.Undecodable, kvstream.Unsequenced:
		r.logRarely(now, h, err)
	}
}

// logRarely writes a line about a happening unless the last one is recent.
func (r *rank) logRarely(now time.Time, h kvstream.Happening, err error) {
	if now.Sub(r.logged) < logEvery {
		return
	}
	r.logged = now
	attrs := []slog.Attr{slog.String("kind", h.String())}
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
