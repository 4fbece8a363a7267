package routing

import "math/bits"

// inflightPrefixes records which prompt prefixes are in flight on which worker: an engine caches a
// prompt's blocks from their prefill on, long before the answer ends. It keeps landmarks only: a
// subset of the blocks of a chain. A worker that has a landmark has all landmarks before it.
//
// It is a table with a row for each landmark and a column for each worker, all of it reused. The
// map is Go's own, whose seed is unknown to clients: with a table keyed directly by the blocks'
// hashes, forged prompts could force long probes under the pool's lock.
type inflightPrefixes struct {
	rowsByHash map[uint64]int32 // row by a landmark's hash
	width      int              // columns
	counts     []int32          // by row, then column: bookings of the landmark on the worker
	rows       []landmark
	unused     []int32 // rows to be reused
	columns    []bool  // which columns are taken

	// State of one decision, from setOverlaps to addBooking.
	found []int32  // rows of the request's landmarks that are in flight
	next  int      // depth of the first landmark after found
	alive []holder // workers that have all landmarks so far
}

// holder is the index of a view and its worker's column.
type holder struct{ view, column int32 }

// landmark is one row: a hash and its bookings on all workers.
type landmark struct {
	hash     uint64
	bookings int32
}

// inflightLandmarkLog makes 45 landmarks of a chain of 4,096 blocks. Less than a fifth of a prefix
// that two prompts share lies after its last landmark and is missed.
const inflightLandmarkLog = 3

// nextLandmark returns the depth of the landmark after the one at depth d, or last+1 after the last
// one. Landmarks are the first 2^log blocks, beyond that 2^(log-1) blocks per octave, and the
// last block, so that equal prompts match completely.
func nextLandmark(d, last, log int) int {
	switch {
	case d >= last:
		return last + 1
	case d < 1<<log:
		return d + 1
	}
	return min(d+1<<(bits.Len(uint(d))-log), last)
}

// takeColumn returns a free column and marks it as taken.
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

// releaseColumn frees a column, whose counts must all be zero.
func (c *inflightPrefixes) releaseColumn(column int) { c.columns[column] = false }

func (c *inflightPrefixes) widen(width int) {
	counts := make([]int32, len(c.rows)*width)
	for row := range c.rows {
		copy(counts[row*width:], c.counts[row*c.width:(row+1)*c.width])
	}
	c.counts, c.width = counts, width
}

// reserveRoom makes buffers for a decision among n workers.
func (c *inflightPrefixes) reserveRoom(n int) { c.alive = make([]holder, 0, n) }

// setOverlaps sets the views' Overlap to the leading prompt tokens that requests in flight on the
// worker share.
func (c *inflightPrefixes) setOverlaps(blocks []Block, prompt int64, ws []View, workers []*Worker) {
	c.found, c.next = c.found[:0], 0
	if len(blocks) == 0 || len(c.rowsByHash) == 0 {
		return
	}
	c.alive = c.alive[:0]
	for i := range ws {
		if column := workers[ws[i].Index].column; column >= 0 { // -1: a draft's new worker
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

// tokensUpTo returns the prompt's tokens up to the character end, of a prompt that ends at last.
func tokensUpTo(end, last, prompt int64) int64 {
	if end >= last {
		return prompt
	}
	return int64(float64(prompt) * float64(max(0, end)) / float64(last))
}

// addBooking counts the request of the last setOverlaps on the worker of that column. It appends
// the rows of the request's landmarks to rows.
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

// rowOf returns the landmark's row, and makes one if there is none.
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

// removeBooking reverses addBooking.
func (c *inflightPrefixes) removeBooking(rows []int32, column int) {
	for _, row := range rows {
		c.counts[int(row)*c.width+column]--
		if c.rows[row].bookings--; c.rows[row].bookings == 0 {
			delete(c.rowsByHash, c.rows[row].hash)
			c.unused = append(c.unused, row)
		}
	}
}
