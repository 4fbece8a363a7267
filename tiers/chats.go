package tiers

import (
	"sync"
	"time"
)

const (
	// MaxChats is how many entries Chats ever holds: at one request a second
	// each and 30 minutes to remember them, far more than one gateway serves.
	MaxChats = 100_000
	// turnsBack is how many earlier message ends a chat is looked for at. An
	// agent adds a handful of messages a request; 32 of them are ample.
	turnsBack = 32
)

// Chats remembers the tier of each chat, by hashes alone. It holds a bounded
// number of entries, of about 60 bytes each, and forgets those used least
// recently. It is safe for concurrent use. Two requests of one chat at the same
// time may both be decided by what the chat was before.
type Chats struct {
	limit int

	mu      sync.Mutex // guards all below
	places  map[uint64]int32
	entries []chat
	seam    chat // no chat: between the newest and the oldest in the ring of all by last use
}

// chat is one entry.
type chat struct {
	key          uint64
	used         int64  // Unix nanoseconds
	tier         uint32 // hash of its name, which a reload cannot change the meaning of
	newer, older int32  // its neighbours in the ring; seam for the seam
}

// seam is the seam's place in the ring.
const seam = -1

// NewChats returns Chats without entries that holds at most limit of them;
// MaxChats when limit is 0 or beyond that.
func NewChats(limit int) *Chats {
	if limit <= 0 || limit > MaxChats {
		limit = MaxChats
	}
	return &Chats{limit: limit, places: map[uint64]int32{}, seam: chat{newer: seam, older: seam}}
}

// Len returns the number of entries, at most the limit.
func (c *Chats) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.places)
}

// recall returns the tier of the chat that a request belongs to, if it was used
// within idle: the one of its session, else the deepest that it continues. The
// request's own end does not count: who asks the same twice continues nothing.
// Touch counts the request as a use.
func (c *Chats) recall(f *Features, idle time.Duration, touch bool) (tier uint32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Session != 0 {
		return c.lookLocked(sessionKey(f.Session), f.Now, idle, touch)
	}
	for i := len(f.Turns) - 2; i >= 0 && i >= len(f.Turns)-1-turnsBack; i-- {
		if tier, ok = c.lookLocked(f.Turns[i], f.Now, idle, touch); ok {
			return tier, true
		}
	}
	return 0, false
}

// remember keeps the tier for the request's session, else for its chat as far
// as the request goes.
func (c *Chats) remember(f *Features, tier uint32) {
	key := sessionKey(f.Session)
	if f.Session == 0 {
		if len(f.Turns) == 0 {
			return
		}
		key = f.Turns[len(f.Turns)-1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i, known := c.places[key]
	switch {
	case known:
		c.unlinkLocked(i)
	case len(c.entries) < c.limit:
		i = int32(len(c.entries))
		c.entries = append(c.entries, chat{})
	default:
		i = c.seam.newer
		c.unlinkLocked(i)
		delete(c.places, c.entries[i].key)
	}
	c.places[key] = i
	c.entries[i] = chat{key: key, used: f.Now.UnixNano(), tier: tier}
	c.linkLocked(i)
}

// sessionKey keeps sessions apart from chains.
func sessionKey(session uint64) uint64 { return session ^ 0x9e3779b97f4a7c15 } // the golden ratio's bits, which no hash favours

func (c *Chats) lookLocked(key uint64, now time.Time, idle time.Duration, touch bool) (tier uint32, ok bool) {
	i, known := c.places[key]
	if !known || now.UnixNano()-c.entries[i].used > int64(idle) {
		return 0, false
	}
	if touch {
		c.unlinkLocked(i)
		// Clocks of concurrent requests may be a little out of order.
		c.entries[i].used = max(c.entries[i].used, now.UnixNano())
		c.linkLocked(i)
	}
	return c.entries[i].tier, true
}

// atLocked returns an entry or the seam.
func (c *Chats) atLocked(i int32) *chat {
	if i == seam {
		return &c.seam
	}
	return &c.entries[i]
}

// unlinkLocked takes an entry out of the ring.
func (c *Chats) unlinkLocked(i int32) {
	e := &c.entries[i]
	c.atLocked(e.newer).older, c.atLocked(e.older).newer = e.older, e.newer
}

// linkLocked makes an entry the newest.
func (c *Chats) linkLocked(i int32) {
	e := &c.entries[i]
	e.newer, e.older = seam, c.seam.older
	c.atLocked(e.older).newer, c.seam.older = i, i
}
