package prefix

import (
	"sort"
	"time"
)

const (
	// maxShared is the longest shared beginning, in blocks of 16 bytes each.
	maxShared = 1024
	// A depth is left if fewer than keepShare of the traffic reach it, or more than
	// moveShare reach the next one, and the new one has more than half. A steady mix
	// changes nothing: with the window below, 0.1 is six standard deviations.
	keepShare, moveShare = 0.4, 0.6
	// depthWindow and depthRequests are the least that a share is taken over.
	depthWindow   = 5 * time.Minute
	depthRequests = 512
	// minRequests is how many requests a branch sees before it moves at all: at 32 a share
	// of more than 0.6 is over a half with a chance of nine in ten.
	minRequests = 32
	// A rival is tried for trialRequests and at least settle, a branch's first ones for
	// fewer and without delay: no cache can be lost yet.
	trialRequests, firstTrial = 256, 64
)

// branch places one part of the traffic: all of it at the root, else what begins with the
// block that it splits.
type branch struct {
	at      int  // index of that block in its chain; -1 at the root
	depth   int  // blocks after it that most of the branch's traffic shares
	trained bool // requests are placed by it
	seen    int  // requests, up to depthRequests

	main, rival guess
	since       time.Time // when the rival came up

	traffic float64   // in units of the pool's traffic
	low     time.Time // since when it is too little to be a branch; zero while it is not
}

// place returns the index of the block that the request is placed by, or the branch's own
// if it is not trained or nothing follows, and whether the depth has moved.
func (b *branch) place(now time.Time, blocks []Block) (at int, moved bool) {
	rest := blocks[b.at+1:]
	if len(rest) == 0 {
		return b.at, false
	}
	if b.main.chain == nil {
		b.main.begin(rest)
	}
	shared := b.main.add(now, rest, b.depth)
	b.seen = min(b.seen+1, depthRequests)
	moved = b.compare(now, rest, shared)
	if !moved {
		moved = b.move()
	}
	if moved {
		shared = b.main.common(rest)
	}
	if !b.trained {
		return b.at, moved
	}
	return b.at + 1 + min(shared, b.depth, len(rest)-1), moved
}

// find returns the index that place would, and counts nothing.
func (b *branch) find(blocks []Block) int {
	rest := blocks[b.at+1:]
	if len(rest) == 0 || !b.trained {
		return b.at
	}
	return b.at + 1 + min(b.main.common(rest), b.depth, len(rest)-1)
}

// move follows the majority along the known chain.
func (b *branch) move() bool {
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
	return b.set(g.reached(0.5)) || first
}

// set sets the depth and reports whether it is another one.
func (b *branch) set(depth int) bool {
	changed := depth != b.depth
	b.depth = depth
	b.main.deep = b.main.from(depth)
	return changed
}

// compare tries a rival chain, which parts from the known one at the branch's depth or
// before. If most of the traffic shares more with the rival, that replaces the known one.
func (b *branch) compare(now time.Time, rest []Block, shared int) (moved bool) {
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
		if g.heard < firstTrial {
			return false
		}
	} else if b.trained && (g.heard < trialRequests || now.Sub(b.since) < settle) {
		return false
	} else if b.seen < minRequests {
		return false
	}
	if g.reached(moveShare) > max(b.depth, b.main.reached(0.5)) {
		b.main, b.rival = b.rival, b.main
		moved = b.set(b.main.reached(0.5)) || !b.trained
		b.trained = true
	}
	b.rival.chain = b.rival.chain[:0]
	return moved
}

// guess is one chain of blocks, and how much of it the requests since have.
type guess struct {
	chain   []uint64
	ends    []float64 // by number of blocks: the traffic that has that many of the chain and no more
	deep    float64   // the traffic that has as many as the branch is deep
	heard   int       // requests, up to trialRequests
	traffic fading
}

// begin makes the beginning of a request the chain.
func (g *guess) begin(rest []Block) {
	rest = rest[:min(len(rest), maxShared)]
	g.chain, g.ends = g.chain[:0], g.ends[:0]
	for i := range rest {
		g.chain = append(g.chain, rest[i].Hash)
		g.ends = append(g.ends, 0)
	}
	g.ends = append(g.ends, 0)
	g.deep, g.heard, g.traffic = 0, 0, fading{}
}

// common returns how many blocks a request has in common with the chain: a block stands
// for all before it.
func (g *guess) common(rest []Block) int {
	n := min(len(g.chain), len(rest))
	return sort.Search(n, func(i int) bool { return g.chain[i] != rest[i].Hash })
}

// add counts a request and returns what it has in common with the chain.
func (g *guess) add(now time.Time, rest []Block, depth int) int {
	shared := g.common(rest)
	g.heard = min(g.heard+1, trialRequests)
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

// from returns the traffic that has at least that many blocks of the chain.
func (g *guess) from(depth int) float64 {
	sum := 0.0
	for _, t := range g.ends[min(depth, len(g.ends)):] {
		sum += t
	}
	return sum
}

// reached returns the most blocks that more than that share of the traffic has.
func (g *guess) reached(share float64) int {
	sum := 0.0
	for depth := len(g.ends) - 1; depth > 0; depth-- {
		if sum += g.ends[depth]; sum > share*g.traffic.total {
			return depth
		}
	}
	return 0
}
