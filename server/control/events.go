package control

import (
	"tierway/telemetry"
	"tierway/workers/kvcache"
	"tierway/workers/kvstream"
)

// eventGauges returns the state of a worker's KV-cache events for a scrape; nil if none are read.
func eventGauges(v *kvcache.View) *telemetry.EventGauges {
	if v.Streams == 0 {
		return nil
	}
	c := &v.Counts
	return &telemetry.EventGauges{
		Up:           v.Live,
		Known:        v.Known,
		Blocks:       v.Blocks,
		Lag:          v.Lag,
		Batches:      c.Batches,
		Stored:       c.Stored,
		Removed:      c.Removed,
		Cleared:      c.Cleared,
		Rejected:     c.Rejected,
		Unnamed:      c.Unnamed,
		StoredBlocks: int64(v.Index.Stored), RemovedBlocks: int64(v.Index.Removed),
		UnknownBlocks: int64(v.Index.Unknown), EvictedBlocks: int64(v.Index.Evicted), AgedBlocks: int64(v.Index.Aged),
		UnusableBlocks: int64(v.Index.Unusable), ChangedBlocks: int64(v.Index.Resettled),
		Lost:         c.Happened[kvstream.Lost],
		Gaps:         c.Happened[kvstream.Gap],
		Restarts:     c.Happened[kvstream.Restarted],
		Undecodable:  c.Happened[kvstream.Undecodable],
		Unsequenced:  c.Happened[kvstream.Unsequenced],
		Resets:       c.Resets,
		Replayed:     c.Happened[kvstream.Replayed],
		ReplayFailed: c.Happened[kvstream.ReplayFailed],
	}
}

// IndexMemory returns the memory of what is known of the workers' caches, for a scrape.
func (ps *Pools) IndexMemory() telemetry.IndexMemory {
	used, limit := ps.caches.Memory()
	return telemetry.IndexMemory{Used: int64(used), Limit: int64(limit)}
}
