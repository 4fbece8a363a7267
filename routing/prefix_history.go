package routing

import (
	"math/bits"
	"time"
)

// prefixHistory records which workers prefilled the prefixes of prompts within the last minutes, and
// so may have them cached when the next turn of a chat arrives. It is the gateway's own estimate.
//
// It is a table of fixed size with four entries per set. A new block replaces the least recently used
// entry of its set. If hashes collide, an entry is lost, and nothing else is wrong.
type prefixHistory struct {
	sets [][historyWays]historyBlock // nil until the first record

	// State of one decision.
	views [historyWorkers]int32 // index of the view, by column
	found []hit
}

// historyBlock records the workers that prefilled a prompt up to one block, as bits by column.
type historyBlock struct {
	hash  uint64
	young uint64 // in the period of last
	old   uint64 // in the period before it, and not since
	last  int64  // seconds since 1970
}

// hit is a block in the history and the workers that have it.
type hit struct {
	depth   int
	workers uint64
}

const (
	// historyWays times historySets are 65,536 blocks in 2 MiB. They cover at least 8 million
	// tokens, the caches of sixteen engines with half a million tokens each. Under load the table
	// then forgets about when the caches do.
	historyWays = 4
	historySets = 1 << historyBits
	historyBits = 14
	// historyWorkers is the number of columns in a word. Other workers count as cold.
	historyWorkers = 64
	// historyPeriod is half of the longest life of an entry, in seconds. Engines under load keep a
	// cache for five minutes. If a cached prompt counts as cold, only its booking is too high.
	historyPeriod = 150
	// historyMisses is the number of consecutive misses that end a search, because a prompt is
	// recorded as a whole.
	historyMisses = 4
	// historyTail bounds the search between two landmarks for the end of a prompt that has grown
	// since. It finds every end among the first 1,024 blocks; beyond them less than a twelfth of
	// the prompt is missed.
	historyTail = 64
)

// historyLandmarkLog makes historyLandmarks landmarks of a chain of 4,096 blocks. At most a ninth of
// a shared prefix is missed.
const historyLandmarkLog, historyLandmarks = 4, 81

func (c *prefixHistory) set(hash uint64) *[historyWays]historyBlock {
	return &c.sets[hash*golden>>(64-historyBits)]
}

// record records that the worker of that column prefilled these blocks at at.
func (c *prefixHistory) record(hashes []uint64, column int, at time.Time) {
	if c.sets == nil {
		c.sets = make([][historyWays]historyBlock, historySets)
		c.found = make([]hit, 0, historyLandmarks+historyTail)
	}
	now := at.Unix()
	for _, hash := range hashes {
		set := c.set(hash)
		m := &set[0]
		for i := range set {
			if set[i].hash == hash {
				m = &set[i]
				break
			}
			if set[i].last < m.last {
				m = &set[i]
			}
		}
		if m.hash != hash {
			*m = historyBlock{hash: hash, last: now}
		}
		m.record(1<<column, now)
	}
}

// record sets the workers' bits. Calls may arrive out of order of time.
func (m *historyBlock) record(workers uint64, now int64) {
	switch passed := now/historyPeriod - m.last/historyPeriod; {
	case passed < -1:
		return
	case passed == -1:
		m.old |= workers
		return
	case passed == 1:
		m.old, m.young = m.young, 0
	case passed > 1:
		m.old, m.young = 0, 0
	}
	m.young |= workers
	m.last = max(m.last, now)
}

// workersWith returns the workers that still have the block, as bits by column.
func (c *prefixHistory) workersWith(hash uint64, now int64) uint64 {
	set := c.set(hash)
	for i := range set {
		m := &set[i]
		if m.hash != hash {
			continue
		}
		switch passed := now/historyPeriod - m.last/historyPeriod; {
		case passed <= 0:
			return m.young | m.old
		case passed == 1:
			return m.young
		}
		return 0
	}
	return 0
}

// forgetWorker clears a column. It reads the whole table, which takes a tenth of a millisecond.
func (c *prefixHistory) forgetWorker(column int) {
	for i := range c.sets {
		for k := range c.sets[i] {
			c.sets[i][k].young &^= 1 << column
			c.sets[i][k].old &^= 1 << column
		}
	}
}

// setOverlaps raises the views' Overlap to the leading prompt tokens that the worker prefilled
// within the last minutes.
func (c *prefixHistory) setOverlaps(r *Request, prompt int64, ws []View, workers []*Worker) {
	if c.sets == nil || len(r.Blocks) == 0 {
		return
	}
	shown := uint64(0)
	for i := range ws {
		if column := workers[ws[i].Index].column; column >= 0 && column < historyWorkers {
			shown |= 1 << column
			c.views[column] = int32(i)
		}
	}
	c.search(r.Blocks, r.Now.Unix(), shown)
	last := len(r.Blocks) - 1
	// A worker that has a block has all blocks before it.
	for i := len(c.found) - 1; i >= 0 && shown != 0; i-- {
		have := c.found[i].workers & shown
		if have == 0 {
			continue
		}
		shown &^= have
		tokens := tokensUpTo(r.Blocks[c.found[i].depth].End, r.Blocks[last].End, prompt)
		for ; have != 0; have &= have - 1 {
			v := &ws[c.views[bits.TrailingZeros64(have)]]
			v.Overlap = max(v.Overlap, tokens)
		}
	}
}

// search finds blocks of the chain that any of the shown workers has: among its landmarks, and
// among all blocks between the deepest landmark found and the next one.
func (c *prefixHistory) search(blocks []Block, now int64, shown uint64) {
	c.found = c.found[:0]
	last, missed := len(blocks)-1, 0
	for d := 0; d <= last; d = nextLandmark(d, last, historyLandmarkLog) {
		if have := c.workersWith(blocks[d].Hash, now) & shown; have != 0 {
			c.found, missed = append(c.found, hit{d, have}), 0
		} else if missed++; missed == historyMisses {
			break
		}
	}
	if len(c.found) == 0 {
		return
	}
	deepest := c.found[len(c.found)-1].depth
	for d := deepest + 1; d < min(nextLandmark(deepest, last, historyLandmarkLog), deepest+historyTail); d++ {
		if have := c.workersWith(blocks[d].Hash, now) & shown; have != 0 {
			c.found = append(c.found, hit{d, have})
		}
	}
}

// recordPrefixLocked records that the booking's prompt is in its worker's cache.
func (p *Pool) recordPrefixLocked(b *booking, at time.Time) {
	if w := b.worker; len(b.hashes) > 0 && !w.removed {
		p.history.record(b.hashes, w.column, at)
		w.inHistory = true
	}
}

// forgetCacheLocked removes the worker from the prefix history.
func (p *Pool) forgetCacheLocked(w *Worker) {
	if w.inHistory {
		p.history.forgetWorker(w.column)
		w.inHistory = false
	}
}
