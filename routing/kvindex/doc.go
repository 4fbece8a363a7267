// Package kvindex knows which blocks of tokens each worker has in its KV cache, from the events
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
// Engines hash blocks in different ways, so the index makes keys of its own: the key of a block
// covers its tokens, what distinguishes it beside them, and the key of the block before it. Two
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
// An engine may hold several copies of a block; it is cached until each of them was removed. A
// block of which the parent is not known is dropped, because its place in a prompt is unknown.
//
// # Cost
//
// Overlap costs one look-up of a map for each block, for up to 64 workers at once, and does not
// allocate (BenchmarkOverlap). A block of one worker takes at most [BlockBytes] bytes, the bound
// that a budget is divided by; BenchmarkMemory measures it.
package kvindex
