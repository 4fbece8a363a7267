package tiers

import (
	"container/list"
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

// Chats remembers the tier of each chat, by hashes alone. It holds a bounded number of
// entries and forgets those used least recently. It is safe for concurrent use. Two
// requests of one chat at the same time may both be decided by what the chat was before.
type Chats struct {
	*chatTable
	readOnly bool
}

// chatTable holds the entries.
type chatTable struct {
	limit int

	mu     sync.Mutex // guards all below
	places map[uint64]*list.Element
	uses   list.List // of *chat, the newest first
}

// chat is one entry.
type chat struct {
	key  uint64
	used int64  // Unix nanoseconds
	tier uint32 // hash of its name, which a reload cannot change the meaning of
}

// NewChats returns Chats without entries that holds at most limit of them.
func NewChats(limit int) *Chats {
	return &Chats{chatTable: &chatTable{limit: limit, places: map[uint64]*list.Element{}}}
}

// ReadOnly returns a view of the chats by which no entry is added, moved or kept longer.
func (c *Chats) ReadOnly() *Chats {
	if c == nil {
		return nil
	}
	return &Chats{chatTable: c.chatTable, readOnly: true}
}

// Len returns the number of entries, at most the limit.
func (c *chatTable) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uses.Len()
}

// recall returns the tier of the chat that a request belongs to, if it was used
// within idle: the one of its session, else the deepest that it continues. The
// request's own end does not count: who asks the same twice continues nothing.
// Touch counts the request as a use, unless the chats are read only.
func (c *Chats) recall(f *Features, idle time.Duration, touch bool) (tier uint32, ok bool) {
	touch = touch && !c.readOnly
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
	if c.readOnly {
		return
	}
	key := sessionKey(f.Session)
	if f.Session == 0 {
		if len(f.Turns) == 0 {
			return
		}
		key = f.Turns[len(f.Turns)-1]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.places[key]
	switch {
	case at == nil && c.uses.Len() < c.limit:
		at = c.uses.PushFront(&chat{})
	case at == nil:
		at = c.uses.Back()
		delete(c.places, at.Value.(*chat).key)
	}
	*at.Value.(*chat) = chat{key: key, used: f.Now.UnixNano(), tier: tier}
	c.places[key] = at
	c.uses.MoveToFront(at)
}

// sessionKey keeps sessions apart from chains.
func sessionKey(session uint64) uint64 { return session ^ 0x9e3779b97f4a7c15 } // the golden ratio's bits, which no hash favours

func (c *chatTable) lookLocked(key uint64, now time.Time, idle time.Duration, touch bool) (tier uint32, ok bool) {
	at := c.places[key]
	if at == nil {
		return 0, false
	}
	e := at.Value.(*chat)
	if now.UnixNano()-e.used > int64(idle) {
		return 0, false
	}
	if touch {
		e.used = max(e.used, now.UnixNano()) // clocks of concurrent requests may be a little out of order
		c.uses.MoveToFront(at)
	}
	return e.tier, true
}
