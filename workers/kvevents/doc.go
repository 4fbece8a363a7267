// Package kvevents decodes the events that inference engines publish about the blocks in their
// KV caches.
//
// A [Decoder] reads the MessagePack payloads of vLLM (all forms since 0.10), SGLang, LMCache and
// llm-d-inference-sim: batches and events as arrays or as maps, hashes as integers or bytes. It
// detects the form by the type of each value, never by a version of the engine:
//
//	var d kvevents.Decoder
//	batch, err := d.Decode(payload)
//	for i := range batch.Events {
//		switch e := &batch.Events[i]; e.Kind {
//		case kvevents.Stored: // blocks e.Hashes with tokens e.Tokens follow block e.Parent
//		case kvevents.Removed: // blocks e.Hashes left the cache
//		case kvevents.Cleared: // the whole cache is empty
//		}
//	}
//
// An event that cannot be used is skipped and counted in [Batch].Rejected; the other events of
// its batch are kept. Only a payload that is no batch is an error.
//
// # Hashes
//
// Engines hash blocks in different ways, with or without a seed. A hash is therefore an opaque
// name for a block of one worker. It links parents and removals; the content of the block is in
// [Event].Tokens and [Event].Extra.
//
// # Memory
//
// A batch has at most [MaxEvents], [MaxBlocks] and [MaxTokens]; one with more is an error. Whatever a
// payload announces or has, its batch takes at most 16 MiB. The decoder keeps its buffers for the next
// payload, unless the payload was over 64 KiB; [Decoder.Trim] frees these at once.
package kvevents
