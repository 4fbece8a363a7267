// Package prefix finds the key of a prompt: the part of its chain by which a request is placed. It
// follows the traffic: the key is the first block after the prefix that the prompt shares with most
// of the traffic. If one key has too much traffic for one worker, it is split, and the same rule
// applies to the requests under it.
//
// Keys.Key returns the key of a chain and learns from it; Keys.Find only returns the key. Depth shows
// how long the shared prefix is and how many keys are split. All memory is bounded.
package prefix

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// splitAbove and joinBelow are shares of a pool's traffic, in fair shares of one worker. A key
	// with more than one share does not fit on one worker. With six tenants of 1.2 to 1.8 shares,
	// one turn in four left its home at a limit of 2, and one in thirty at 1. Between the two
	// values nothing changes.
	splitAbove, joinBelow = 1.0, 0.25
	// settleTime is how long a condition must last before a key changes, because a change costs
	// every chat under the key its cache.
	settleTime = time.Minute
	// trafficWindow is how long requests count for shares. At least requestsAWorker requests per
	// worker count, so that 1/n differs from 0.25/n.
	trafficWindow   = time.Minute
	requestsAWorker = 32
	splitRequests   = 8   // per worker, before shares count at all
	leastRequests   = 128 // window of small pools
	maxBranches     = 128 // at most 4n keys have a share of joinBelow/n at one depth; each takes up to 32 KiB
	rescaleAt       = 1e30
	betweenSweeps   = time.Second
)

// Block is one hashed segment of a prompt. Its hash covers all text from the prompt's start to the
// block's end.
type Block struct {
	Hash uint64
	End  int64 // characters of the prompt up to the block's end; increases along a chain
}

// Depth describes how much of the prompts the keys cover.
type Depth struct {
	Shared  int   // leading blocks that most of the traffic shares
	Splits  int   // keys with so much traffic that later blocks place their requests
	Changes int64 // of Shared or Splits; each change moved the requests under it
}

// Keys finds keys and learns from the requests. Only Depth is safe for concurrent use.
type Keys struct {
	root     branch
	branches map[uint64]*branch // by the key that they split
	keys     sketch             // traffic of keys that could be split
	traffic  fading
	requests int64 // in total
	swept    time.Time

	windowEnd              time.Time // the number of eligible workers varies by the second if they are full
	maxEligible, maxBefore int       // largest number of eligible workers in this settleTime and in the last one

	shared, splits, changes atomic.Int64 // copies for other goroutines
}

// New returns Keys without traffic.
func New() *Keys {
	return &Keys{root: branch{at: -1, trained: true}, branches: map[uint64]*branch{}}
}

// Depth returns the present depth of the keys. It is safe for concurrent use.
func (k *Keys) Depth() Depth {
	return Depth{Shared: int(k.shared.Load()), Splits: int(k.splits.Load()), Changes: k.changes.Load()}
}

// Key returns the key of a chain with at least one block, and learns from it. workers is the number of
// eligible workers.
func (k *Keys) Key(now time.Time, blocks []Block, workers int) uint64 {
	n := k.mostWorkers(now, workers)
	k.fadeCounts(now, n)
	key, b := uint64(0), &k.root
	for {
		at, moved := b.locate(now, blocks)
		if moved {
			k.changes.Add(1)
			k.shared.Store(int64(k.root.depth))
		}
		if at == b.at { // not trained yet
			return key // no block follows by which it could be split
		}
		key = blocks[at].Hash
		if at == len(blocks)-1 {
			return key // nothing follows that it could be split by
		}
		if b = k.branches[key]; b == nil {
			k.countRequest(now, key, at, n)
			return key
		}
		// A forged hash at another depth must not lead below the chain's end or into a cycle.
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

// mostWorkers returns the largest number of workers that were eligible at once within this settleTime and
// the last one.
func (k *Keys) mostWorkers(now time.Time, eligible int) float64 {
	if !now.Before(k.windowEnd) {
		k.windowEnd, k.maxBefore, k.maxEligible = now.Add(settleTime), k.maxEligible, 0
	}
	k.maxEligible = max(k.maxEligible, eligible)
	return float64(max(k.maxEligible, k.maxBefore))
}

// fadeCounts lets all counts fade, and once per second joins branches with little traffic.
func (k *Keys) fadeCounts(now time.Time, n float64) {
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
		} else if now.Sub(b.low) >= settleTime {
			delete(k.branches, key)
			k.changes.Add(1)
		}
	}
	k.splits.Store(int64(len(k.branches)))
}

// countRequest counts a request for its key. It splits the key if the key has been too large for one worker
// for settleTime.
func (k *Keys) countRequest(now time.Time, key uint64, at int, n float64) {
	c := k.keys.add(key, k.traffic.unit)
	if c.count-c.over <= k.traffic.total*splitAbove/n || float64(k.requests) < splitRequests*n {
		c.above = time.Time{}
		return
	}
	if c.above.IsZero() {
		c.above = now
	}
	if now.Sub(c.above) < settleTime || len(k.branches) >= maxBranches {
		return
	}
	k.branches[key] = &branch{at: at, traffic: c.count - c.over}
	k.splits.Store(int64(len(k.branches)))
	*c = counter{}
}

// Clone returns a copy for one call of Key with that chain.
func (k *Keys) Clone(blocks []Block) *Keys {
	c := &Keys{
		root: k.root.clone(), branches: make(map[uint64]*branch, len(k.branches)), keys: k.keys, traffic: k.traffic,
		requests: k.requests, swept: k.swept, windowEnd: k.windowEnd, maxEligible: k.maxEligible, maxBefore: k.maxBefore,
	}
	for key, b := range k.branches {
		same := *b // branches outside the chain only fade
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
