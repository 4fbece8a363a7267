package routing

import (
	"math/bits"
	"slices"
	"sort"
	"time"
)

// cacheModel is the gateway's own estimate of the workers' prefix caches: the blocks of the prompts
// that each worker has prefilled, and the answers that followed. Like an engine it keeps as many
// tokens as the worker's cache holds, and evicts the least recently used ones first.
//
// A prompt is recorded from its end to its beginning. A block is therefore never evicted before the
// blocks behind it, and the workers that have a block have all blocks before it.
type cacheModel struct {
	byHash    map[uint64]copies
	blocks    []cachedBlock // by number; number 0 means no block
	unused    int32         // list of free blocks, linked by older
	maxBlocks int           // blocks of one worker; 0: no limit
	every     time.Duration // interval at which the limit is applied
	limited   int64         // when it was last applied, ms since 1970
	lists     [modelWorkers]cacheList

	views [modelWorkers]int32 // index of the view by column, during a decision
}

// copies are the holders of a block, as bits by column, and the number of the first copy.
type copies struct {
	holders uint64
	first   int32
}

// cachedBlock is one block of one worker.
type cachedBlock struct {
	hash         uint64
	at           int64 // last use, ms since 1970
	newer, older int32 // in the worker's list
	other        int32 // next copy of the same block
	tokens       int32 // including the answer's
	answer       int32 // tokens of the answer to the prompt that ends here; it is cached too
	before       int32 // the block before it in a prompt, which is evicted later; 0: none
	epoch        int32 // epoch of the journal in which it was published last; 0: never
	column       uint8
	leaf         bool // a prompt ends here, and none has continued it
	recent       bool // in the worker's working set
}

// cacheList is the cache of one worker, by last use.
type cacheList struct {
	newest, oldest int32
	blocks         int
	tokens         int64
	capacity       int64 // in tokens
	edge           int32 // oldest block of the working set
	working        int64 // tokens of the working set
}

// modelWorkers is the number of columns, the bits of a word. The model has no cache of further workers.
const modelWorkers = 64

// defaultCacheTokens is the assumed size of a cache: that of an 8 billion parameter model on a GPU of
// 80 GB. An estimate that is too small costs more time than one that is too large.
const defaultCacheTokens = 500_000

// promptBlock is one block of a recorded prompt.
type promptBlock struct {
	hash   uint64
	tokens int32
}

// appendPromptBlocks appends the blocks of a prompt of that many tokens.
func appendPromptBlocks(to []promptBlock, blocks []Block, prompt int64) []promptBlock {
	if len(blocks) == 0 {
		return to
	}
	before, end := int64(0), blocks[len(blocks)-1].End
	for i := range blocks {
		upTo := max(before, tokensUpTo(blocks[i].End, end, prompt))
		to = append(to, promptBlock{blocks[i].Hash, int32(min(upTo-before, 1<<30))})
		before = upTo
	}
	return to
}

// record records that the worker of that column has prefilled a prompt, which was published in that epoch of the
// journal (0: not at all). A prompt of another gateway may have any hashes: the chain of blocks has no cycle, because
// each block of a prompt leads to an earlier one of the same prompt, or to none.
func (c *cacheModel) record(prompt []promptBlock, epoch int32, column int, at time.Time) {
	if c.byHash == nil {
		c.byHash, c.blocks = map[uint64]copies{}, make([]cachedBlock, 1)
	}
	l := &c.lists[column]
	now := at.UnixMilli()
	if l.newest != 0 {
		now = max(now, c.blocks[l.newest].at)
	}
	after := int32(0)
	for i := len(prompt) - 1; i >= 0; i-- {
		n := c.find(prompt[i].hash, column)
		if n == 0 {
			n = c.insert(prompt[i].hash, column)
		} else {
			c.unlink(n)
		}
		if after != 0 {
			c.blocks[after].before = n
		}
		if i == 0 {
			c.blocks[n].before = 0
		}
		after = n
		b := &c.blocks[n]
		leaf := i == len(prompt)-1
		if !leaf {
			b.answer = 0
		}
		l.resize(b, prompt[i].tokens+b.answer)
		b.leaf, b.at, b.epoch = leaf, now, max(b.epoch, epoch)
		c.pushNewest(n)
	}
	c.evict(l)
	c.applyLimit(now)
}

// published returns how many leading blocks of a prompt a worker has that were published in that epoch.
func (c *cacheModel) published(prompt []promptBlock, epoch int32, column int) int {
	return sort.Search(len(prompt), func(i int) bool {
		n := c.find(prompt[i].hash, column)
		return n == 0 || c.blocks[n].epoch != epoch
	})
}

// appendChain appends the blocks of a worker from the beginning of a prompt up to that hash; none if the worker
// lacks it.
func (c *cacheModel) appendChain(to []promptBlock, hash uint64, column int) []promptBlock {
	for n := c.find(hash, column); n != 0; n = c.blocks[n].before {
		b := &c.blocks[n]
		to = append(to, promptBlock{b.hash, b.tokens - b.answer})
	}
	slices.Reverse(to)
	return to
}

// recordAnswer records the answer to a recorded prompt that ends with that block.
func (c *cacheModel) recordAnswer(hash uint64, tokens int64, column int) {
	n := c.find(hash, column)
	if n == 0 || !c.blocks[n].leaf {
		return
	}
	b, l := &c.blocks[n], &c.lists[column]
	answer := int32(min(max(0, tokens), 1<<30))
	l.resize(b, b.tokens-b.answer+answer)
	b.answer = answer
	c.evict(l)
}

// find returns the number of a worker's block, or 0.
func (c *cacheModel) find(hash uint64, column int) int32 {
	e := c.byHash[hash]
	if e.holders&(1<<column) == 0 {
		return 0
	}
	n := e.first
	for int(c.blocks[n].column) != column {
		n = c.blocks[n].other
	}
	return n
}

// insert adds a block without tokens, in no list.
func (c *cacheModel) insert(hash uint64, column int) int32 {
	n := c.unused
	if n != 0 {
		c.unused = c.blocks[n].older
	} else {
		n = int32(len(c.blocks))
		c.blocks = append(c.blocks, cachedBlock{})
	}
	e := c.byHash[hash]
	c.lists[column].blocks++
	c.blocks[n] = cachedBlock{hash: hash, column: uint8(column), other: e.first}
	c.byHash[hash] = copies{holders: e.holders | 1<<column, first: n}
	return n
}

// remove takes a block out of the model.
func (c *cacheModel) remove(n int32) {
	c.unlink(n)
	b := &c.blocks[n]
	l := &c.lists[b.column]
	l.resize(b, 0)
	l.blocks--
	e := c.byHash[b.hash]
	if e.holders &^= 1 << b.column; e.holders == 0 {
		delete(c.byHash, b.hash)
	} else {
		at := &e.first
		for *at != n {
			at = &c.blocks[*at].other
		}
		*at = b.other
		c.byHash[b.hash] = e
	}
	*b = cachedBlock{older: c.unused}
	c.unused = n
}

// unlink takes a block out of its worker's list.
func (c *cacheModel) unlink(n int32) {
	b := &c.blocks[n]
	l := &c.lists[b.column]
	if l.edge == n {
		l.edge = b.newer
	}
	if b.newer == 0 {
		l.newest = b.older
	} else {
		c.blocks[b.newer].older = b.older
	}
	if b.older == 0 {
		l.oldest = b.newer
	} else {
		c.blocks[b.older].newer = b.newer
	}
}

// pushNewest puts a block at the head of its worker's list and into the working set.
func (c *cacheModel) pushNewest(n int32) {
	b := &c.blocks[n]
	l := &c.lists[b.column]
	b.newer, b.older = 0, l.newest
	if l.newest == 0 {
		l.oldest = n
	} else {
		c.blocks[l.newest].newer = n
	}
	l.newest = n
	if l.edge == 0 {
		l.edge = n
	}
	if !b.recent {
		b.recent = true
		l.working += int64(b.tokens)
	}
}

func (l *cacheList) resize(b *cachedBlock, tokens int32) {
	l.tokens += int64(tokens - b.tokens)
	if b.recent {
		l.working += int64(tokens - b.tokens)
	}
	b.tokens = tokens
}

// leastBlock is the least mean number of tokens of a block with which the model can hold a whole cache. It
// bounds the memory for prompts of empty messages.
const leastBlock = 16

// evict removes the least recently used blocks that exceed the capacity.
func (c *cacheModel) evict(l *cacheList) {
	for (l.tokens > l.capacity || int64(l.blocks) > l.capacity/leastBlock+1) && l.oldest != 0 {
		c.remove(l.oldest)
	}
}

// limitTrees limits the blocks of each worker, at intervals. 0 blocks is no limit.
func (c *cacheModel) limitTrees(blocks int, every time.Duration) {
	c.maxBlocks, c.every = blocks, every
}

// applyLimit removes the least recently used blocks over the limit, once per interval.
func (c *cacheModel) applyLimit(now int64) {
	if c.maxBlocks == 0 || now-c.limited < c.every.Milliseconds() {
		return
	}
	c.limited = now
	for i := range c.lists {
		for l := &c.lists[i]; l.blocks > c.maxBlocks; {
			c.remove(l.oldest)
		}
	}
}

// setCapacity sets the size of a worker's cache in tokens. 0 means unknown, and keeps a known size.
func (c *cacheModel) setCapacity(column int, tokens int64) {
	l := &c.lists[column]
	if tokens <= 0 && l.capacity > 0 {
		return
	}
	if tokens <= 0 {
		tokens = defaultCacheTokens
	}
	if l.capacity != tokens {
		l.capacity = tokens
		c.evict(l)
	}
}

func (c *cacheModel) blocksOf(column int) int {
	if column < 0 || column >= modelWorkers {
		return 0
	}
	return c.lists[column].blocks
}

func (c *cacheModel) tokensOf(column int) int64 {
	if column < 0 || column >= modelWorkers {
		return 0
	}
	return c.lists[column].tokens
}

// forgetWorker empties a column.
func (c *cacheModel) forgetWorker(column int) {
	for l := &c.lists[column]; l.oldest != 0; {
		c.remove(l.oldest)
	}
}

// workingSet returns the share of the cache, 0 to 1, that was used since a time in ms.
func (c *cacheModel) workingSet(column int, since int64) float64 {
	l := &c.lists[column]
	if l.capacity == 0 {
		return 0
	}
	for l.edge != 0 && c.blocks[l.edge].at < since {
		b := &c.blocks[l.edge]
		b.recent = false
		l.working -= int64(b.tokens)
		l.edge = b.newer
	}
	next := l.newest
	if l.edge != 0 {
		next = c.blocks[l.edge].older
	}
	for next != 0 && c.blocks[next].at >= since {
		b := &c.blocks[next]
		b.recent = true
		l.working += int64(b.tokens)
		l.edge, next = next, b.older
	}
	return min(1, float64(l.working)/float64(l.capacity))
}

// predict sets the leading prompt tokens that each view's worker should have cached. It returns the
// time since the last use of the conversation that the prompt continues, or a negative time if it
// continues none.
func (c *cacheModel) predict(r *Request, prompt int64, ws []View, workers []*Worker) (reuse time.Duration) {
	if len(c.byHash) == 0 || len(r.Blocks) == 0 {
		return -1
	}
	shown := uint64(0)
	for i := range ws {
		if column := workers[ws[i].Index].column; column >= 0 && column < modelWorkers {
			shown |= 1 << column
			c.views[column] = int32(i)
		}
	}
	lookup := r.CachedAt
	if lookup.IsZero() {
		lookup = r.Now
	}
	s := overlapSearch{model: c, request: r, prompt: prompt, views: ws,
		published: lookup.Add(-maxEventDelay).UnixMilli()}
	s.bisect(0, len(r.Blocks), shown)
	if s.depth == 0 || !s.continues {
		return -1
	}
	return max(0, r.Now.Sub(time.UnixMilli(s.used)))
}

// overlapSearch finds the cached prefixes of one prompt.
type overlapSearch struct {
	model     *cacheModel
	request   *Request
	prompt    int64
	views     []View
	published int64 // ms since 1970; events of blocks recorded until then had arrived at the look-up
	depth     int   // blocks of the longest prefix so far
	continues bool  // that prefix is a whole earlier prompt
	used      int64 // its last use, ms since 1970
}

// bisect finds the cached prefixes of workers that have the blocks before low and not the one at high.
func (s *overlapSearch) bisect(low, high int, workers uint64) {
	for workers != 0 && low < high {
		middle := (low + high) / 2
		have := s.model.byHash[s.request.Blocks[middle].Hash].holders & workers
		if have == workers {
			low = middle + 1
			continue
		}
		s.bisect(middle+1, high, have)
		high, workers = middle, workers&^have
	}
	if low == 0 {
		return
	}
	for ; workers != 0; workers &= workers - 1 {
		s.end(low, bits.TrailingZeros64(workers))
	}
}

// end sets the overlap of a worker that has that many blocks. If these are a whole earlier prompt, this
// prompt most likely continues with the earlier answer.
func (s *overlapSearch) end(blocks, column int) {
	c, all := s.model, s.request.Blocks
	tokens := tokensUpTo(all[blocks-1].End, all[len(all)-1].End, s.prompt)
	b, v := &c.blocks[c.find(all[blocks-1].Hash, column)], &s.views[c.views[column]]
	if b.at <= s.published {
		v.published = tokens // without the answer, which may be more recent
	}
	if blocks < len(all) && b.leaf {
		tokens = min(s.prompt, tokens+int64(b.answer))
	}
	if blocks > s.depth || blocks == s.depth && b.leaf && b.at > s.used {
		s.depth, s.continues, s.used = blocks, b.leaf, b.at
	}
	v.predicted[fromHistory] = tokens
}

// recordPrefixLocked records that the booking's prompt is in its worker's cache.
func (p *Pool) recordPrefixLocked(b *booking, at time.Time) {
	if w := b.worker; len(b.blocks) > 0 && !w.removed && w.column < modelWorkers {
		p.caches.record(b.blocks, b.epoch, w.column, at)
		b.recorded = true
	}
}

// forgetCacheLocked empties the model of the worker's cache.
func (p *Pool) forgetCacheLocked(w *Worker) {
	if w.column < modelWorkers {
		p.caches.forgetWorker(w.column)
	}
}
