package kvcache

import (
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
	rankCount   atomic.Int64 // number of sources

	// guarded by the lock of Caches
	sources []Source // of the last Configure
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
	all := w.pool.caches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.workers[w] && !slices.Equal(sources, w.sources) {
		w.sources, w.refused = sources, false
		w.rankCount.Store(int64(len(sources)))
		w.connectLocked()
	}
}

// SetCacheTokens sets the size of the cache in tokens, of all ranks with a source together; 0 means
// unknown.
func (w *Worker) SetCacheTokens(tokens int64) { w.cacheTokens.Store(tokens) }

// Remove ends the streams and frees the memory of the worker. Remove and later calls of Configure
// have no effect on a removed worker.
func (w *Worker) Remove() {
	all := w.pool.caches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.workers[w] {
		delete(all.workers, w)
		w.sources = nil
		w.connectLocked()
	}
}

// connectLocked makes the worker's ranks match its sources.
func (w *Worker) connectLocked() {
	var kept []*rank
	wanted := w.sources
	if why := w.unreadableLocked(); why != "" {
		wanted = nil
		w.refuseLocked(why)
	}
	for _, r := range w.ranks {
		if slices.Contains(wanted, r.source) {
			kept = append(kept, r)
		} else {
			w.closeLocked(r)
		}
	}
	for _, s := range wanted {
		if slices.ContainsFunc(kept, func(r *rank) bool { return r.source == s }) {
			continue
		}
		r, err := newRank(w, s)
		if err != nil {
			w.refuseLocked(err.Error())
			for _, r := range kept {
				w.closeLocked(r)
			}
			kept = nil
			break
		}
		kept = append(kept, r)
	}
	w.ranks = kept
	w.pool.caches.publishLocked(w.pool)
}

// closeLocked ends one of the worker's streams and keeps its counts.
func (w *Worker) closeLocked(r *rank) {
	r.close()
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
