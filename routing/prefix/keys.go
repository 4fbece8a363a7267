// Package prefix finds the part of a prompt by which a request is placed, and follows the
// traffic: the key of a prompt is the first block after what it shares with most of the
// traffic. If a key has too much traffic for one worker, it is split, and the same applies
// again to the requests under it alone.
package prefix

import (
	"slices"
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

// Block is one node of a prompt's chain. Its hash stands for all text from the prompt's
// beginning to the block's end.
type Block struct {
	Hash uint64
	End  int64 // characters of the prompt up to the block's end; grows along a chain
}

// Depth is how deep in their prompts the keys are.
type Depth struct {
	Shared  int   // blocks at the prompts' beginning that most of the traffic has in common
	Splits  int   // beginnings with so much traffic that their requests are placed by what follows
	Changes int64 // of any of this, each of which moved the requests under it
}

// Keys finds keys and learns from the requests. Only Depth is safe for concurrent use.
type Keys struct {
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

// New returns Keys that have seen no request.
func New() *Keys {
	return &Keys{root: branch{at: -1, trained: true}, branches: map[uint64]*branch{}}
}

// Depth returns how deep the keys are now.
func (k *Keys) Depth() Depth {
	return Depth{Shared: int(k.shared.Load()), Splits: int(k.splits.Load()), Changes: k.changes.Load()}
}

// Key returns the key of a chain, which has at least one block, for so many eligible
// workers, and learns from it.
func (k *Keys) Key(now time.Time, blocks []Block, workers int) uint64 {
	n := k.workers(now, workers)
	k.age(now, n)
	key, b := uint64(0), &k.root
	for {
		at, moved := b.place(now, blocks)
		if moved {
			k.changes.Add(1)
			k.shared.Store(int64(k.root.depth))
		}
		if at == b.at { // learning yet
			return key
		}
		key = blocks[at].Hash
		if at == len(blocks)-1 {
			return key // nothing follows that it could be split by
		}
		if b = k.branches[key]; b == nil {
			k.count(now, key, at, n)
			return key
		}
		// Two prompts with one hash must not lead below a chain's end, or in a circle.
		if b.at != at {
			return key
		}
		b.traffic += k.traffic.unit
	}
}

// Find returns the key of a chain, as Key does, and learns nothing.
func (k *Keys) Find(blocks []Block) uint64 {
	key, b := uint64(0), &k.root
	for {
		at := b.find(blocks)
		if at == b.at {
			return key
		}
		key = blocks[at].Hash
		next := k.branches[key]
		if at == len(blocks)-1 || next == nil || next.at != at {
			return key
		}
		b = next
	}
}

// workers returns the most workers that were eligible at once in the last settle time.
func (k *Keys) workers(now time.Time, eligible int) float64 {
	if !now.Before(k.windowEnd) {
		k.windowEnd, k.before, k.most = now.Add(settle), k.most, 0
	}
	k.most = max(k.most, eligible)
	return float64(max(k.most, k.before))
}

// age lets all counts fade, and once a second joins branches with little traffic.
func (k *Keys) age(now time.Time, n float64) {
	k.requests++
	k.traffic.add(now, trafficWindow, max(leastRequests, requestsAWorker*n))
	if k.traffic.unit > rescaleAt {
		by := k.traffic.rescale()
		k.keys.scale(by)
		for _, b := range k.branches {
			b.traffic *= by
		}
	}
	if now.Sub(k.swept) < betweenSweeps {
		return
	}
	k.swept = now
	for key, b := range k.branches {
		if b.traffic >= k.traffic.total*joinBelow/n {
			b.low = time.Time{}
		} else if b.low.IsZero() {
			b.low = now
		} else if now.Sub(b.low) >= settle {
			delete(k.branches, key)
			k.changes.Add(1)
		}
	}
	k.splits.Store(int64(len(k.branches)))
}

// count counts a request to its key, and splits the key if it has been too much for one
// worker for long enough.
func (k *Keys) count(now time.Time, key uint64, at int, n float64) {
	c := k.keys.add(key, k.traffic.unit)
	if c.count-c.over <= k.traffic.total*splitAbove/n || float64(k.requests) < splitRequests*n {
		c.above = time.Time{}
		return
	}
	if c.above.IsZero() {
		c.above = now
	}
	if now.Sub(c.above) < settle || len(k.branches) >= maxBranches {
		return
	}
	k.branches[key] = &branch{at: at, traffic: c.count - c.over}
	k.splits.Store(int64(len(k.branches)))
	*c = counter{}
}

// Clone returns a copy that may be asked once for the key of that chain.
func (k *Keys) Clone(blocks []Block) *Keys {
	c := &Keys{
		root: k.root.clone(), branches: make(map[uint64]*branch, len(k.branches)), keys: k.keys, traffic: k.traffic,
		requests: k.requests, swept: k.swept, windowEnd: k.windowEnd, most: k.most, before: k.before,
	}
	for key, b := range k.branches {
		same := *b // those that the chain does not lead to only age
		c.branches[key] = &same
	}
	for i := range blocks {
		if b := c.branches[blocks[i].Hash]; b != nil && b.at == i {
			*b = b.clone()
		}
	}
	return c
}

func (b *branch) clone() branch {
	c := *b
	c.main.chain, c.main.ends = slices.Clone(b.main.chain), slices.Clone(b.main.ends)
	c.rival.chain, c.rival.ends = slices.Clone(b.rival.chain), slices.Clone(b.rival.ends)
	return c
}
