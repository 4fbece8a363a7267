// Package kvindex records which blocks of tokens each worker has in its KV cache, from the events
// that the workers' engines publish.
//
// An [Index] serves the workers of one pool. The stream of each worker writes through a
// [Worker]; requests read with [Index.Overlap], for all workers at once:
//
//	x := kvindex.New(budget)
//	w := x.Add("")
//	w.Apply(batch)
//	…
//	keys = kvindex.AppendKeys(keys[:0], kvindex.Root("", 16), 16, tokens, extras)
//	x.Overlap(keys, matches) // matches[w.ID()].Blocks is the length of the cached prefix
//
// # Keys
//
// Engines hash blocks in different ways, so the index makes keys of its own. The key of a block
// covers its tokens, its extra (see [kvevents.ExtraKey]) and the key of the block before it. Two
// workers with different hash functions therefore share entries, and a prompt is looked up
// without any engine's hash. Blocks of different sizes, or of different models, have different
// roots and never match.
//
// # What counts as cached
//
// A prefix is cached by a worker if all its blocks are, in an unbroken run from the first one. A
// model with sliding-window attention has further groups of blocks; a prefix counts only if each
// of these has the blocks of the prefix's last window.
//
// Engines with LMCache publish what they store in CPU memory, and not what they evict from it. A worker drops
// blocks of a slower medium by age (see [Worker.SetAging]) until its engine publishes a removal from that medium.
//
// An engine may hold several copies of a block, which is cached until each copy was removed. A block
// with an unknown parent is dropped, because its place in a prompt is unknown.
//
// KV-cache groups of other kinds, such as the state of mamba, represent no prefix. Their stores and
// removals change nothing.
//
// # Budget
//
// Each worker has the same share of the budget. A worker that exceeds it evicts the least recently
// stored block without children. So the system prompt of many chats stays, and a prompt larger than
// the share keeps its beginning. An evicted block is unknown until the engine stores it again: matches
// may be too short, and never too long.
//
// The memory of blocks that were removed is used again. It is given back when a worker is reset or
// removed, or when its share of the budget has become smaller.
//
// # Cost
//
// Overlap costs one look-up of a map for each block, for up to 64 workers at once and with any
// windows, and does not allocate (BenchmarkOverlap). It waits for about a thousand blocks of a batch
// at most: [Worker.Apply] releases its lock in between, so a look-up may find any part of a batch.
// BenchmarkLookupsBesideEvents measures both together.
//
// A block of one worker takes at most [BlockBytes] bytes, by which a budget is divided.
package kvindex
