// Package kvcache records the contents of the KV caches of a gateway's workers, from the events that their
// engines publish.
//
// [Caches] belongs to one gateway. It owns the event streams, and one index for each pool:
//
//	caches := kvcache.New(kvcache.Options{Log: log})
//	pool := caches.NewPool()
//	w := pool.Add("small-0", ref)
//	w.Configure(config, host, announced)
//	go caches.Run(ctx)
//
// A request is looked up by the keys of its prompt's blocks (see package kvindex):
//
//	for _, size := range pool.BlockSizes(nil) {
//		pool.Lookup(&request, size, keys, true)
//	}
//
// # Sources
//
// A source is one publisher of events. A worker has one for each data-parallel rank, or one if it is
// itself a rank. They come from the first of these that applies:
//
//	kv_events.port           the publisher listens on port + rank of the worker's host
//	GET /kv_event_sources    the engine states endpoint, replay endpoint and topic of each rank
//	kv_events.topic          the publisher connects to kv_events.listen and sends this topic
//
// The gateway connects to the worker's own host only, whatever host an engine states.
//
// # Ranks
//
// Each rank has a cache of its own. If the engine chooses the rank of a request, the expected number
// of cached tokens of a worker is the mean over its ranks.
//
// # Complete streams
//
// A worker has an entry in [routing.Request.Cached] while all its streams are live and complete. A
// stream is complete if it has read all events since the engine's start or since its cache was
// cleared. A stream that begins later is complete once the index has nine tenths of the rank's cache on
// the GPU. The same holds for a stream that had blocks evicted from the index. For a worker without an
// entry, the history of its pool decides.
//
// # Memory
//
// All streams have equal shares of the budget. A stream evicts the ends of the prompts that were least
// recently stored. A pool's index has places for 64 streams; further workers have no entry.
package kvcache
