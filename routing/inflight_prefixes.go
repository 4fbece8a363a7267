package routing

import "math/bits"

// chains knows which blocks of prompts in flight are on which worker: an engine's
// cache holds a prompt's blocks from its prefill on, long before any event says so.
// Only landmarks are kept. A chain is prefix-closed: a worker that has a landmark has
// all landmarks before it.
//
// It is a table with a row for each landmark and a column for each worker, all of it
// reused. The map is Go's own, whose seed a client cannot know: a table that trusted
// the blocks' hashes could be driven into one long probe under the pool's lock.
type inflightPrefixes struct {
	rowsByHash map[uint64]int32 // a landmark's hash → its row
	width      int              // columns
	counts     []int32          // row by row: bookings of the landmark on each worker
	rows       []landmark
	unused     []int32 // rows to be used again
	columns    []bool  // which are taken

	// Of one decision, between overlaps and book.
	found []int32  // rows of the request's landmarks that are in flight
	next  int      // depth of the first landmark after them
	alive []holder // of all of them up to now
}

// holder is a view and its worker's column.
type holder struct{ view, column int32 }

// landmark is a row's bookings on all workers.
type landmark struct {
	hash     uint64
	bookings int32
}

// inflightLandmarkLog makes 45 landmarks of a chain of 4,096 blocks. A prefix that two prompts
// share is seen up to its last landmark: less than a fifth of it is missed.
const inflightLandmarkLog = 3

// nextLandmark returns the depth of the landmark after the one at depth d; it is beyond
// last after the last one. The first 2^log blocks are landmarks, beyond that half as many
// an octave, and the last block, so that equal prompts are seen whole.
func nextLandmark(d, last, log int) int {
	switch {
	case d >= last:
		return last + 1
	case d < 1<<log:
		return d + 1
	}
	return min(d+1<<(bits.Len(uint(d))-log), last)
}

// join returns a free column.
func (c *inflightPrefixes) takeColumn() int {
	for i, taken := range c.columns {
		if !taken {
			c.columns[i] = true
			return i
		}
	}
	c.columns = append(c.columns, true)
	if len(c.columns) > c.width {
		c.widen(2 * len(c.columns))
	}
	return len(c.columns) - 1
}

// part releases a column. All its counts are zero.
func (c *inflightPrefixes) releaseColumn(column int) { c.columns[column] = false }

func (c *inflightPrefixes) widen(width int) {
	counts := make([]int32, len(c.rows)*width)
	for row := range c.rows {
		copy(counts[row*width:], c.counts[row*c.width:(row+1)*c.width])
	}
	c.counts, c.width = counts, width
}

// room makes room for a decision among n workers.
func (c *inflightPrefixes) reserveRoom(n int) { c.alive = make([]holder, 0, n) }

// overlaps fills the views' Overlap: how many of the prompt's tokens are at
// the start of prompts in flight on the worker.
func (c *inflightPrefixes) setOverlaps(blocks []Block, prompt int64, ws []View, workers []*Worker) {
	c.found, c.next = c.found[:0], 0
	if len(blocks) == 0 || len(c.rowsByHash) == 0 {
		return
	}
	c.alive = c.alive[:0]
	for i := range ws {
		if column := workers[ws[i].Index].column; column >= 0 { // else a draft's new one
			c.alive = append(c.alive, holder{int32(i), int32(column)})
		}
	}
	last, shared := len(blocks)-1, int64(0)
	d := 0
	for ; d <= last; d = nextLandmark(d, last, inflightLandmarkLog) {
		row, ok := c.rowsByHash[blocks[d].Hash]
		if !ok {
			break
		}
		c.found = append(c.found, row)
		if len(c.alive) == 0 {
			continue
		}
		counts, n := c.counts[int(row)*c.width:], 0
		for _, h := range c.alive {
			if counts[h.column] > 0 {
				c.alive[n] = h
				n++
				continue
			}
			ws[h.view].Overlap, ws[h.view].computing = shared, shared
		}
		c.alive = c.alive[:n]
		shared = max(shared, tokensUpTo(blocks[d].End, blocks[last].End, prompt))
	}
	c.next = d
	for _, h := range c.alive {
		ws[h.view].Overlap, ws[h.view].computing = shared, shared
	}
}

// tokensUpTo is the share of the prompt's tokens that ends with a block.
func tokensUpTo(end, last, prompt int64) int64 {
	if end >= last {
		return prompt
	}
	return int64(float64(prompt) * float64(max(0, end)) / float64(last))
}

// book enters the request of the last overlaps on the worker of that column
// and appends the rows of its landmarks to rows.
func (c *inflightPrefixes) addBooking(blocks []Block, column int, rows []int32) []int32 {
	rows = append(rows, c.found...)
	for d, last := c.next, len(blocks)-1; d <= last; d = nextLandmark(d, last, inflightLandmarkLog) {
		rows = append(rows, c.rowOf(blocks[d].Hash))
	}
	for _, row := range rows {
		c.rows[row].bookings++
		c.counts[int(row)*c.width+column]++
	}
	return rows
}

// rowOf returns the landmark's row, a new one when it has none.
func (c *inflightPrefixes) rowOf(hash uint64) int32 {
	if row, ok := c.rowsByHash[hash]; ok {
		return row
	}
	var row int32
	if n := len(c.unused); n > 0 {
		row, c.unused = c.unused[n-1], c.unused[:n-1]
	} else {
		row = int32(len(c.rows))
		c.rows = append(c.rows, landmark{})
		c.counts = append(c.counts, make([]int32, c.width)...)
	}
	c.rows[row].hash = hash
	c.rowsByHash[hash] = row
	return row
}

// unbook takes back what book entered.
func (c *inflightPrefixes) removeBooking(rows []int32, column int) {
	for _, row := range rows {
		c.counts[int(row)*c.width+column]--
		if c.rows[row].bookings--; c.rows[row].bookings == 0 {
			delete(c.rowsByHash, c.rows[row].hash)
			c.unused = append(c.unused, row)
		}
	}
}
