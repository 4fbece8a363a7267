package prefix

import (
	"sort"
	"time"
)

const (
	// maxShared is the longest shared prefix in blocks, which take 16 bytes of memory each.
	maxShared = 1024
	// A depth is left if less than keepShare of the traffic reaches it, or more than moveShare
	// reaches the next one. More than half of the traffic reaches the new depth. A steady mix
	// changes nothing: with the window below, 0.1 is six standard deviations.
	keepShare, moveShare = 0.4, 0.6
	// depthWindow and depthRequests are the least time and number of requests behind a share.
	depthWindow   = 5 * time.Minute
	depthRequests = 512
	// minRequests is the number of requests before the first change of a branch: at 32, a share
	// over 0.6 is really over a half with a probability of nine in ten.
	minRequests = 32
	// A rival is tried for trialRequests and at least settleTime. The first rivals of a branch are
	// tried for firstTrial requests without delay, because no cache can be lost yet.
	trialRequests, firstTrial = 256, 64
)

// branch places one part of the traffic: all of it at the root, otherwise the requests whose chains
// contain the block that the branch splits.
type branch struct {
	at      int  // index of that block in its chain; -1 at the root
	depth   int  // blocks after it that most of the branch's traffic shares
	trained bool // the branch places requests
	seen    int  // requests, up to depthRequests

	main, rival knownChain
	since       time.Time // when the rival appeared

	traffic float64   // in units of the pool's traffic
	low     time.Time // since when it is too little for a branch; zero while it is not
}

// locate returns the index of the block by which the request is placed, and whether the depth has
// changed. If the branch is not trained or no block follows, the index is the branch's own.
func (b *branch) locate(now time.Time, blocks []Block) (at int, moved bool) {
	rest := blocks[b.at+1:]
	if len(rest) == 0 {
		return b.at, false
	}
	if b.main.chain == nil {
		b.main.begin(rest)
	}
	shared := b.main.add(now, rest, b.depth)
	b.seen = min(b.seen+1, depthRequests)
	moved = b.compareRival(now, rest, shared)
	if !moved {
		moved = b.followMajority()
	}
	if moved {
		shared = b.main.common(rest)
	}
	if !b.trained {
		return b.at, moved
	}
	return b.at + 1 + min(shared, b.depth, len(rest)-1), moved
}

// find returns the index that locate would return, and counts nothing.
func (b *branch) find(blocks []Block) int {
	rest := blocks[b.at+1:]
	if len(rest) == 0 || !b.trained {
		return b.at
	}
	return b.at + 1 + min(b.main.common(rest), b.depth, len(rest)-1)
}

// followMajority adapts the depth to the majority of the traffic along the known chain.
func (b *branch) followMajority() bool {
	g := &b.main
	if b.seen < minRequests {
		return false
	}
	first := !b.trained
	b.trained = true
	next := g.deep
	if b.depth < len(g.ends) {
		next -= g.ends[b.depth]
	}
	if !first && g.deep >= keepShare*g.traffic.total && next <= moveShare*g.traffic.total {
		return false
	}
	return b.setDepth(g.depthOfShare(0.5)) || first
}

// setDepth sets the depth and reports whether it has changed.
func (b *branch) setDepth(depth int) bool {
	changed := depth != b.depth
	b.depth = depth
	b.main.deep = b.main.trafficFrom(depth)
	return changed
}

// compareRival counts a request on the rival chain, which leaves the known chain at the branch's depth
// or before. If most of the traffic shares more with the rival, the rival becomes the known chain.
func (b *branch) compareRival(now time.Time, rest []Block, shared int) (moved bool) {
	g := &b.rival
	if len(g.chain) == 0 {
		if (!b.trained || shared <= b.depth) && b.seen > 1 {
			g.begin(rest)
			b.since = now
		}
		return false
	}
	g.add(now, rest, 0)
	if b.trained && b.seen < depthRequests {
		if g.requests < firstTrial {
			return false
		}
	} else if b.trained && (g.requests < trialRequests || now.Sub(b.since) < settleTime) {
		return false
	} else if b.seen < minRequests {
		return false
	}
	if g.depthOfShare(moveShare) > max(b.depth, b.main.depthOfShare(0.5)) {
		b.main, b.rival = b.rival, b.main
		moved = b.setDepth(b.main.depthOfShare(0.5)) || !b.trained
		b.trained = true
	}
	b.rival.chain = b.rival.chain[:0]
	return moved
}

// knownChain is one chain of blocks, and how much of it later requests share.
type knownChain struct {
	chain    []uint64
	ends     []float64 // by number of blocks: the traffic that shares exactly that many
	deep     float64   // the traffic that shares at least the branch's depth
	requests int       // up to trialRequests
	traffic  fading
}

// begin makes the first blocks of a request the chain.
func (g *knownChain) begin(rest []Block) {
	rest = rest[:min(len(rest), maxShared)]
	g.chain, g.ends = g.chain[:0], g.ends[:0]
	for i := range rest {
		g.chain = append(g.chain, rest[i].Hash)
		g.ends = append(g.ends, 0)
	}
	g.ends = append(g.ends, 0)
	g.deep, g.requests, g.traffic = 0, 0, fading{}
}

// common returns how many blocks a request shares with the chain. Because each hash covers everything
// before it, a binary search suffices.
func (g *knownChain) common(rest []Block) int {
	n := min(len(g.chain), len(rest))
	return sort.Search(n, func(i int) bool { return g.chain[i] != rest[i].Hash })
}

// add counts a request and returns how many blocks it shares with the chain.
func (g *knownChain) add(now time.Time, rest []Block, depth int) int {
	shared := g.common(rest)
	g.requests = min(g.requests+1, trialRequests)
	g.traffic.add(now, depthWindow, depthRequests)
	if g.traffic.unit > rescaleAt {
		by := g.traffic.rescale()
		g.deep *= by
		for i := range g.ends {
			g.ends[i] *= by
		}
	}
	g.ends[shared] += g.traffic.unit
	if shared >= depth {
		g.deep += g.traffic.unit
	}
	return shared
}

// trafficFrom returns the traffic that shares at least depth blocks of the chain.
func (g *knownChain) trafficFrom(depth int) float64 {
	sum := 0.0
	for _, t := range g.ends[min(depth, len(g.ends)):] {
		sum += t
	}
	return sum
}

// depthOfShare returns the largest number of blocks that more than that share of the traffic has.
func (g *knownChain) depthOfShare(share float64) int {
	sum := 0.0
	for depth := len(g.ends) - 1; depth > 0; depth-- {
		if sum += g.ends[depth]; sum > share*g.traffic.total {
			return depth
		}
	}
	return 0
}
