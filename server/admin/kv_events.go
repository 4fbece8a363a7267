package admin

import (
	"tierway/workers/kvcache"
	"tierway/workers/kvstream"
)

// eventsState is the state of a worker's KV-cache events, of all its data-parallel ranks together.
type eventsState struct {
	State     string  `json:"state" enum:"complete,partial,down" doc:"complete: requests are routed by the events. partial: events are read, but the engine may have blocks that no event named, or blocks of a LoRA adapter without its name; routing uses its own history of the worker. down: a stream is not connected, or replays missed events; routing uses its own history."`
	Since     string  `json:"since,omitempty" doc:"Time when a stream last came up or went down."`
	Error     string  `json:"error,omitempty" doc:"Why a stream is down."`
	Streams   int     `json:"streams" doc:"Number of streams: one for each data-parallel rank."`
	BlockSize int     `json:"block_size" doc:"Tokens of a block. 0: no event was read yet."`
	Blocks    int     `json:"blocks" doc:"Cached blocks that the gateway knows."`
	Lag       float64 `json:"lag_ms" doc:"Time from the engine's timestamp of the last batch until the gateway had applied it."`
	Batches   int64   `json:"batches" doc:"Batches of events since the worker was added, like the numbers below."`
	Gaps      int64   `json:"gaps"`
	Restarts  int64   `json:"restarts" doc:"Streams that the engine began again."`
	Replays   int64   `json:"replays"`
	Failed    int64   `json:"failed_replays"`
	Resets    int64   `json:"resets" doc:"Times that the known blocks of a stream were dropped."`
	Evicted   int64   `json:"evicted_blocks" doc:"Blocks that were dropped because kv_events.max_bytes was reached."`
	Lookups   int64   `json:"lookups" doc:"Requests of the tier or pool of which the prompt was looked up in the known blocks."`
	Late      int64   `json:"late_lookups" doc:"Lookups of the tier or pool that got the tokens of their prompt too late; see policy.lookup_timeout. The known beginning of the prompt or the history decided."`
	LastGap   string  `json:"last_gap,omitempty" doc:"Time of the last gap or restart."`
}

// eventsOf returns the state of a worker's events; nil if none are read. lookups and late are those of its pool.
func eventsOf(v *kvcache.View, lookups, late int64) *eventsState {
	if v.Streams == 0 {
		return nil
	}
	state := "partial"
	switch {
	case !v.Live:
		state = "down"
	case v.Known:
		state = "complete"
	}
	c := &v.Counts
	return &eventsState{
		State:     state,
		Since:     seconds(v.Since),
		Error:     v.Fault,
		Streams:   v.Streams,
		BlockSize: v.BlockSize,
		Blocks:    v.Blocks,
		Lag:       millis(v.Lag),
		Batches:   c.Batches,
		Gaps:      c.Happened[kvstream.Gap],
		Restarts:  c.Happened[kvstream.Restarted],
		Replays:   c.Happened[kvstream.Replayed],
		Failed:    c.Happened[kvstream.ReplayFailed],
		Resets:    c.Resets,
		Evicted:   int64(v.Index.Evicted),
		Lookups:   lookups,
		Late:      late,
		LastGap:   seconds(v.LastGap),
	}
}
