package engines

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Bounds of what Peers remembers: read objects, and the blocks of the shared store.
const (
	maxRead   = 1 << 16
	maxShared = 1 << 20
)

// Peers connects the engines of one process that transfer computed prompts to each other. The zero
// value is ready for use. It is safe for concurrent use.
type Peers struct {
	mu        sync.Mutex
	store     *prefixCache // of the hand-over shared
	engines   map[string]*Engine
	number    uint64               // of the next engine id
	blocks    uint64               // in objects so far
	transfers map[string]*transfer // by engine and request, by request id, or by room
	pinned    map[*transfer]bool
	read      map[string]bool // keys of objects that were read or dropped by their reader
	order     []string        // of read
	expired   []string        // see Expired
}

// side is a stage's part in a transfer.
type side int

const (
	prefillSide side = iota
	decodeSide
)

// transfer is a prompt that one engine computes for another. Peers.mu guards it.
type transfer struct {
	key     string
	client  string  // X-Request-Id of the prefill request
	by      *Engine // has the blocks; nil before and after
	prompt  uint64
	tokens  int
	first   uint64    // id of the first block
	expires time.Time // zero: never
	taken   bool      // a reader has it
	clash   bool      // two requests of one side used its key at once
	present [2]int    // requests of each side

	computed chan struct{} // closed when the blocks are there
	done     chan struct{} // closed when they were read
}

// add registers an engine and gives it its id.
func (p *Peers) add(e *Engine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil {
		p.store = newPrefixCache(maxShared, blockTokens)
		p.engines, p.transfers = make(map[string]*Engine), make(map[string]*transfer)
		p.pinned, p.read = make(map[*transfer]bool), make(map[string]bool)
	}
	p.number++
	e.process = fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(e.c.Seed), p.number)
	p.engines[e.process] = e
}

// restart replaces the id of an engine and forgets the blocks that it keeps for others.
func (p *Peers) restart(e *Engine) {
	p.mu.Lock()
	for t := range p.pinned {
		if t.by == e {
			p.unpinLocked(t)
		}
	}
	delete(p.engines, e.process)
	p.mu.Unlock()
	p.add(e)
}

// join adds a request to one side of a transfer that both sides name by a key. It reports whether the side
// has another request with the key. The caller must call leave.
func (p *Peers) join(key string, s side) (joined *transfer, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
	t := p.transfers[key]
	if t == nil {
		t = &transfer{key: key, client: key, computed: make(chan struct{}), done: make(chan struct{})}
		p.transfers[key] = t
	}
	again = t.present[s] > 0 || s == prefillSide && t.by != nil
	t.clash = t.clash || again
	t.present[s]++
	return t, again
}

// leave removes a request. Blocks without an expiry are dropped with their prefill request.
func (p *Peers) leave(t *transfer, s side) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.present[s]--
	if s == prefillSide && t.present[s] == 0 && t.by != nil && !t.taken && t.expires.IsZero() {
		p.unpinLocked(t)
	}
	p.forgetLocked(t)
}

// pin records that an engine keeps a computed prompt, for the lease or, if it is 0, until it is read.
func (p *Peers) pin(t *transfer, e *Engine, prompt uint64, tokens int, lease time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.by != nil || t.taken {
		return // a clash: the blocks of the first count
	}
	t.by, t.prompt, t.tokens = e, prompt, tokens
	if lease > 0 {
		t.expires = time.Now().Add(lease)
	}
	p.transfers[t.key], p.pinned[t] = t, true
	e.changePinned(t.blocks(), tokens)
	close(t.computed)
}

func (t *transfer) blocks() int { return (t.tokens + blockTokens - 1) / blockTokens }

// take reserves an object for its reader, which must call free. If the prompt has not been computed yet, the
// reader must wait for the channel; if it is nil, a clash has given the blocks to another reader.
func (p *Peers) take(t *transfer) (taken bool, computed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.takeLocked(t):
		return true, nil
	case t.taken:
		return false, nil
	}
	return false, t.computed
}

// takeLocked reserves an object that has blocks and no reader. The blocks no longer expire.
func (p *Peers) takeLocked(t *transfer) bool {
	p.expireLocked()
	if t.by == nil || t.taken {
		return false
	}
	t.taken, t.expires = true, time.Time{}
	return true
}

// free ends the reading of an object. It reports whether the blocks were there to the end, and whether they
// were those of the prompt.
func (p *Peers) free(t *transfer, prompt uint64) (there, right bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there = t.by != nil; there {
		p.unpinLocked(t)
		close(t.done)
	}
	p.spendLocked(t)
	return there, t.prompt == prompt && !t.clash
}

// spendLocked records that an object must not be read again. Another request with its key begins a new transfer.
func (p *Peers) spendLocked(t *transfer) {
	if len(p.order) == maxRead {
		delete(p.read, p.order[0])
		p.order = p.order[1:]
	}
	p.read[t.key] = true
	p.order = append(p.order, t.key)
	delete(p.transfers, t.key)
}

// unpinLocked releases the blocks of an object. Its next reader waits for another prefill.
func (p *Peers) unpinLocked(t *transfer) {
	t.by.changePinned(-t.blocks(), -t.tokens)
	t.by, t.computed = nil, make(chan struct{})
	delete(p.pinned, t)
	p.forgetLocked(t)
}

// forgetLocked removes an object that has neither blocks nor requests.
func (p *Peers) forgetLocked(t *transfer) {
	if t.by == nil && t.present == [2]int{} && p.transfers[t.key] == t {
		delete(p.transfers, t.key)
	}
}

// expire ends the leases that are over.
func (p *Peers) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
}

func (p *Peers) expireLocked() {
	now := time.Now()
	for t := range p.pinned {
		if !t.expires.IsZero() && !now.Before(t.expires) {
			t.by.counts.change(func(c *counters) { c.BlocksLeaked += int64(t.blocks()) })
			p.unpinLocked(t)
			if p.expired = append(p.expired, t.client); len(p.expired) > maxRead {
				p.expired = p.expired[1:]
			}
		}
	}
}

// Expired returns the X-Request-Id of each prompt whose lease ended before an engine had read it, at most the last
// 65,536 of them.
func (p *Peers) Expired() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expireLocked()
	return slices.Clone(p.expired)
}

// changePinned changes the count of the blocks that the engine keeps for others.
func (e *Engine) changePinned(blocks, tokens int) {
	e.counts.change(func(c *counters) { c.BlocksPinned += blocks })
	e.inUse.Add(int64(tokens))
}
