package engines

import (
	"maps"
	"sync"
	"time"
)

// Stats is what an engine has done up to one moment.
type Stats struct {
	Requests      map[string]int64 // by path; ids are written {id}, unknown paths "other"
	Open          int              // requests being served now, of every path
	Running       int              // requests that hold a slot now
	Waiting       int              // requests that wait for a slot now
	MaxConcurrent int              // the most slots ever held at once
	Cancelled     int64            // requests whose client left before the end
	CancelledAt   time.Time        // when the engine last noticed one
	Written       Tokens           // tokens that requests were told that have ended
}

// Tokens counts what a client was told: prompt tokens, those of them that came from
// the prefix cache, and output tokens. Of a stream that was cut the output tokens
// are those written until then.
type Tokens struct{ Prompt, Cached, Output int64 }

// counters is what an engine counts.
type counters struct {
	mu sync.Mutex // guards the rest
	Stats
}

// change changes the counters under their lock.
func (c *counters) change(to func(c *counters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to(c)
}

// Stats returns the counts of this moment.
func (e *Engine) Stats() Stats {
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	s := e.counts.Stats
	s.Requests = maps.Clone(s.Requests)
	s.Running, s.Waiting, s.MaxConcurrent = e.slots.state()
	return s
}
