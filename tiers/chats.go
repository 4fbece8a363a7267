package tiers

import (
	"container/list"
	"sync"
	"time"
)

const (
	// MaxChats bounds the entries of Chats. With one request per second and chat, and 30
	// minutes of memory, it is far more than one gateway serves.
	MaxChats = 100_000
	// turnsBack is how many earlier message ends are looked up to find a chat. An agent adds a
	// few messages per request; 32 are ample.
	turnsBack = 32
)

// Chats remembers the tier of each chat by hashes alone. It holds a bounded number of entries
// and evicts the least recently used ones. It is safe for concurrent use. Two concurrent
// requests of one chat may both be decided by the chat's earlier tier.
type Chats struct {
	*chatTable
	readOnly bool
}

type chatTable struct {
	limit int

	mu     sync.Mutex // guards all below
	byChat map[uint64]*list.Element
	uses   list.List // of *chat, the most recently used first
}

// chat is one entry.
type chat struct {
	key  uint64
	used int64  // Unix nanoseconds
	tier uint32 // hash of the tier's name, which survives a reload
}

// NewChats returns an empty Chats that holds at most limit entries.
func NewChats(limit int) *Chats {
	return &Chats{chatTable: &chatTable{limit: limit, byChat: map[uint64]*list.Element{}}}
}

// ReadOnly returns a view that adds no entry, moves none and does not extend their lives.
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

// recall returns the tier of the request's chat if it was used within idle. The chat is found
// by its session, or else by the deepest earlier message end. The request's own end does not
// count: a repeated request continues nothing. With touch, the lookup counts as a use, unless
// the chats are read only.
func (c *Chats) recall(f *ClassifierInput, idle time.Duration, touch bool) (tier uint32, ok bool) {
	touch = touch && !c.readOnly
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Session != 0 {
		return c.findLocked(sessionKey(f.Session), f.Now, idle, touch)
	}
	for i := len(f.Turns) - 2; i >= 0 && i >= len(f.Turns)-1-turnsBack; i-- {
		if tier, ok = c.findLocked(f.Turns[i], f.Now, idle, touch); ok {
			return tier, true
		}
	}
	return 0, false
}

// remember stores the tier for the request's session, or else for its last message end.
func (c *Chats) remember(f *ClassifierInput, tier uint32) {
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
	at := c.byChat[key]
	switch {
	case at == nil && c.uses.Len() < c.limit:
		at = c.uses.PushFront(&chat{})
	case at == nil:
		at = c.uses.Back()
		delete(c.byChat, at.Value.(*chat).key)
	}
	*at.Value.(*chat) = chat{key: key, used: f.Now.UnixNano(), tier: tier}
	c.byChat[key] = at
	c.uses.MoveToFront(at)
}

// sessionKey separates the keys of sessions from those of chains by the bits of the golden ratio,
// which no hash favours.
func sessionKey(session uint64) uint64 { return session ^ 0x9e3779b97f4a7c15 }

func (c *chatTable) findLocked(key uint64, now time.Time, idle time.Duration, touch bool) (tier uint32, ok bool) {
	at := c.byChat[key]
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
