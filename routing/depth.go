package routing

import (
	"sync/atomic"
	"time"
)

const (
	// splitAbove and joinBelow are shares of a pool's traffic, in fair shares of one worker.
	// A key with a whole share cannot stay on one: with 2 in place of 1, one turn in four
	// of six tenants with 1.2 to 1.8 shares left its home, and one in thirty with 1. Between
	// the two nothing changes.
	splitAbove, joinBelow = 1.0, 0.25
	// settle is how long traffic must be so before a key changes, which costs every chat
	// under it its cache.
	settle = time.Minute
	// trafficWindow is how long requests count for shares, and requestsAWorker how many
	// count at least, for 1/n to differ from 0.25/n.
	trafficWindow   = time.Minute
	requestsAWorker = 32
	splitRequests   = 8   // for each worker, before shares are believed at all
	leastRequests   = 128 // the window of small pools
	maxBranches     = 128 // at most 4n keys hold a share of joinBelow/n at one depth; each costs up to 32 KiB
	rescaleAt       = 1e30
	betweenSweeps   = time.Second
)

// Depth is how deep in their prompts the keys of an adaptive policy are.
type Depth struct {
	Shared  int   // blocks at the prompts' beginning that most of the traffic has in common
	Splits  int   // beginnings with so much traffic that their requests are placed by what follows
	Changes int64 // of any of this, each of which moved the requests under it
}

// Adaptive is a Policy that places requests by a part of their prompts that follows the
// traffic.
type Adaptive interface {
	// Depth is safe for concurrent use.
	Depth() Depth
}

var _ Adaptive = (*chwbl)(nil)

// depth finds the key of a prompt: the first block after what it shares with most of the
// traffic. If a key has too much traffic for one worker, its branch does the same again
// with the requests under it alone.
type depth struct {
	root     branch
	branches map[uint64]*branch // by the key that they split
	keys     sketch             // traffic of the keys that could be split
	traffic  fading
	requests int64 // ever
	swept    time.Time

	windowEnd    time.Time // eligible workers come and go by the second when they are full
	most, before int       // the most that were eligible in this settle time and in the last

	shared, splits, changes atomic.Int64 // of branches and root, for other goroutines
}

func newDepth() *depth {
	return &depth{root: branch{at: -1, trained: true}, branches: map[uint64]*branch{}}
}

func (d *depth) state() Depth {
	return Depth{Shared: int(d.shared.Load()), Splits: int(d.splits.Load()), Changes: d.changes.Load()}
}

// key returns the key of a chain, which has at least one block, and learns
// from it.
func (d *depth) key(now time.Time, blocks []Block, workers int) uint64 {
	n := d.workers(now, workers)
	d.age(now, n)
	key, b := uint64(0), &d.root
	for {
		at, moved := b.place(now, blocks)
		if moved {
			d.changes.Add(1)
			d.shared.Store(int64(d.root.depth))
		}
		if at == b.at { // learning yet
			return key
		}
		key = blocks[at].Hash
		if at == len(blocks)-1 {
			return key // nothing follows that it could be split by
		}
		if b = d.branches[key]; b == nil {
			d.count(now, key, at, n)
			return key
		}
		// Two prompts with one hash must not lead below a chain's end, or in a circle.
		if b.at != at {
			return key
		}
		b.traffic += d.traffic.unit
	}
}

// find returns the key of a chain, as key does, and learns nothing.
func (d *depth) find(blocks []Block) uint64 {
	key, b := uint64(0), &d.root
	for {
		at := b.find(blocks)
		if at == b.at {
			return key
		}
		key = blocks[at].Hash
		next := d.branches[key]
		if at == len(blocks)-1 || next == nil || next.at != at {
			return key
		}
		b = next
	}
}

// workers returns the most workers that were eligible at once in the last settle time.
func (d *depth) workers(now time.Time, eligible int) float64 {
	if !now.Before(d.windowEnd) {
		d.windowEnd, d.before, d.most = now.Add(settle), d.most, 0
	}
	d.most = max(d.most, eligible)
	return float64(max(d.most, d.before))
}

// age lets all counts fade, and once a second joins branches with little traffic.
func (d *depth) age(now time.Time, n float64) {
	d.requests++
	d.traffic.add(now, trafficWindow, max(leastRequests, requestsAWorker*n))
	if d.traffic.unit > rescaleAt {
		by := d.traffic.rescale()
		d.keys.scale(by)
		for _, b := range d.branches {
			b.traffic *= by
		}
	}
	if now.Sub(d.swept) < betweenSweeps {
		return
	}
	d.swept = now
	for key, b := range d.branches {
		if b.traffic >= d.traffic.total*joinBelow/n {
			b.low = time.Time{}
		} else if b.low.IsZero() {
			b.low = now
		} else if now.Sub(b.low) >= settle {
			delete(d.branches, key)
			d.changes.Add(1)
		}
	}
	d.splits.Store(int64(len(d.branches)))
}

// count counts a request to its key, and splits the key if it has been too much for one
// worker for long enough.
func (d *depth) count(now time.Time, key uint64, at int, n float64) {
	c := d.keys.add(key, d.traffic.unit)
	if c.count-c.over <= d.traffic.total*splitAbove/n || float64(d.requests) < splitRequests*n {
		c.above = time.Time{}
		return
	}
	if c.above.IsZero() {
		c.above = now
	}
	if now.Sub(c.above) < settle || len(d.branches) >= maxBranches {
		return
	}
	d.branches[key] = &branch{at: at, traffic: c.count - c.over}
	d.splits.Store(int64(len(d.branches)))
	*c = counter{}
}
