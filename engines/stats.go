package engines

import (
	"maps"
	"sync"
	"time"
)

// Stats is the state of an engine at one moment.
type Stats struct {
	Requests      map[string]int64 // by path; ids are written {id}, unknown paths "other"
	Open          int              // requests in progress, of every path
	Running       int              // requests that hold a slot
	Waiting       int              // requests that wait for a slot, or for blocks of other engines
	MaxConcurrent int              // maximum of slots ever held at once
	Cancelled     int64            // requests whose client left before the end
	CancelledAt   time.Time        // last time that the engine detected one
	Written       Tokens           // tokens reported to requests that have ended
	Prefills      int64            // prompts that were read
	Prefill, Late time.Duration    // planned time of these prefills, and the time by which they ended late
	Tokenized     int64            // prompts that were tokenized: those of token ids are not

	BlocksPinned  int   // blocks that are kept for other engines
	BlocksLeaked  int64 // such blocks whose lease ended before an engine read them
	ObjectsUsed   int64 // objects of nixl with which prompts were read from other engines
	ObjectsReused int64 // objects that had been used before
	Recomputed    int64 // prompts with an object that were computed nevertheless: it was incomplete, unknown or expired
	KeysReused    int64 // rooms and request ids that named two requests at once
	WrongAnswers  int64 // answers that were replaced by WrongAnswer
}

// Tokens counts reported tokens: prompt tokens, the part from the prefix cache, and output tokens.
// Of a cut stream only the written output tokens count.
type Tokens struct{ Prompt, Cached, Output int64 }

// counters are an engine's counters.
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

// Stats returns the current state.
func (e *Engine) Stats() Stats {
	if e.c.Handover != "" {
		e.c.Peers.expire()
	}
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	s := e.counts.Stats
	s.Requests = maps.Clone(s.Requests)
	s.Running, s.Waiting, s.MaxConcurrent = e.slots.state()
	s.Waiting += int(e.loading.Load())
	return s
}
