package kvcache

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"tierway/routing/kvindex"
)

// Worker is one worker of a pool. Its methods may be called concurrently.
type Worker struct {
	pool        *Pool
	name        string
	ref         any
	number      int          // in the order of Add
	cacheTokens atomic.Int64 // size of the cache of all sources; 0: unknown
	offload     atomic.Int64 // configured size of their caches in slower media; 0: none
	rankCount   atomic.Int64 // number of sources

	// guarded by the lock of Caches
	sources []Source // of the last Configure
	stated  bool     // the engine has stated the sources; else they are configured
	ranks   []*rank  // one for each source that is read
	refused bool     // the log has a line that the sources are not read
	// counts of streams that have ended, so that counters never decrease
	ended      Counts
	endedIndex kvindex.Counts
}

// Configure sets the sources of the worker's events, from its configuration, its host and the sources that
// its engine states. Streams with an unchanged source are kept, and the others end. A removed worker has
// no sources.
func (w *Worker) Configure(c Config, host string, announced []Announced) {
	sources := c.Sources(host, announced)
	w.offload.Store(c.OffloadTokens)
	all := w.pool.caches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.workers[w] && !slices.Equal(sources, w.sources) {
		w.sources, w.stated, w.refused = sources, c.Port == 0, false
		w.rankCount.Store(int64(len(sources)))
		if len(sources) > 1 {
			w.log(slog.LevelWarn, "the engine publishes the events of several ranks, and chooses the rank of a request: only "+
				"the mean of their caches counts; with 'ranks' of the worker, requests go to the rank that has their prompt",
				slog.Int("ranks", len(sources)))
		}
		w.pool.connectLocked()
	}
}

// SetCacheTokens sets the size of the cache in tokens, of all ranks with a source together; 0 means
// unknown.
func (w *Worker) SetCacheTokens(tokens int64) { w.cacheTokens.Store(tokens) }

// unknownOffload is the assumed size, in tokens, of a cache in slower media if that of the GPU is unknown too.
const unknownOffload = 100_000

// offloadTokens returns the size of one source's cache in slower media, in tokens.
func (w *Worker) offloadTokens() int {
	all := cmp.Or(w.offload.Load(), w.cacheTokens.Load(), unknownOffload)
	return int(max(1, all/max(1, w.rankCount.Load())))
}

// Remove ends the streams and frees the memory of the worker. Remove and later calls of Configure
// have no effect on a removed worker.
func (w *Worker) Remove() {
	all := w.pool.caches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.workers[w] {
		delete(all.workers, w)
		w.sources = nil
		w.closeExceptLocked(nil)
		w.pool.connectLocked()
	}
}

// connectLocked makes the ranks of the pool's workers match their sources. The places of the index go to
// configured sources before those that engines state, and to workers with few sources first: an engine that
// states many takes no place that another worker needs.
func (p *Pool) connectLocked() {
	var all []*Worker
	for w := range p.caches.workers {
		if w.pool == p && (len(w.sources) > 0 || len(w.ranks) > 0) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *Worker) int {
		switch {
		case a.stated != b.stated && b.stated:
			return -1
		case a.stated != b.stated:
			return 1
		}
		return cmp.Or(len(a.sources)-len(b.sources), a.number-b.number)
	})
	free := kvindex.MaxWorkers
	var readable []*Worker
	for _, w := range all {
		why := w.unreadableLocked()
		if why == "" && len(w.sources) > free {
			why = fmt.Sprintf("%d sources, and the pool has places for %d of its %d left: divide the pool's workers among "+
				"several pools", len(w.sources), free, kvindex.MaxWorkers)
		}
		if why != "" {
			w.refuseLocked(why)
			w.closeExceptLocked(nil)
			continue
		}
		free -= len(w.sources)
		w.refused = false
		w.closeExceptLocked(w.sources)
		readable = append(readable, w)
	}
	for _, w := range readable { // after others have freed their places
		w.openLocked()
	}
	p.caches.publishLocked(p)
}

// closeExceptLocked ends the worker's streams of other sources than those.
func (w *Worker) closeExceptLocked(wanted []Source) {
	w.ranks = slices.DeleteFunc(slices.Clone(w.ranks), func(r *rank) bool {
		ends := !slices.Contains(wanted, r.source)
		if ends {
			w.closeLocked(r)
		}
		return ends
	})
}

// openLocked makes the streams of the worker's sources that have none.
func (w *Worker) openLocked() {
	for _, s := range w.sources {
		if slices.ContainsFunc(w.ranks, func(r *rank) bool { return r.source == s }) {
			continue
		}
		r, err := newRank(w, s)
		if err != nil {
			w.refuseLocked(err.Error())
			w.closeExceptLocked(nil)
			return
		}
		w.ranks = append(w.ranks, r)
	}
}

// closeLocked ends one of the worker's streams, frees its blocks and keeps its counts. It does not wait for the reader.
func (w *Worker) closeLocked(r *rank) {
	r.closed.Store(true)
	r.live.Store(false)
	if r.cancel != nil {
		r.cancel()
	}
	r.index.Remove()
	addIndex(&w.endedIndex, r.index.Counts())
	r.mu.Lock()
	defer r.mu.Unlock()
	w.ended.merge(&r.counts)
}

// unreadableLocked returns the reason for which the sources cannot be read; empty if they can.
func (w *Worker) unreadableLocked() string {
	all := w.pool.caches
	for _, s := range w.sources {
		if s.Address != "" {
			continue
		}
		if all.options.Listen == "" {
			return "the engine connects to the readers of its events, and kv_events.listen is not set: set it to the " +
				"address that the engine connects to, or let the engine listen with the endpoint tcp://*:5557"
		}
		for other := range all.workers {
			if other != w && slices.ContainsFunc(other.ranks, func(r *rank) bool {
				return r.source.Address == "" && r.source.Topic == s.Topic
			}) {
				return "the worker " + other.name + " has the same topic: give each engine that connects to " +
					"kv_events.listen a topic of its own"
			}
		}
	}
	return ""
}

// refuseLocked logs once that the sources are not read.
func (w *Worker) refuseLocked(why string) {
	if !w.refused {
		w.refused = true
		w.log(slog.LevelWarn, "KV events are not read", slog.String("cause", why))
	}
}
