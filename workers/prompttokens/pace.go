package prompttokens

import (
	"sync"
	"time"
)

const (
	// paceMemory is the number of recent answers by which Lookup decides whether to wait.
	paceMemory = 32
	// paceLeast is the number of answers before which it always waits.
	paceLeast = 8
	// paceShare is the share of the recent answers, as 1 of so many, that must have come in time.
	paceShare = 4
)

// pace is how long recent answers took. The zero value knows none.
type pace struct {
	mu     sync.Mutex
	recent [paceMemory]time.Duration
	count  int
}

func (p *pace) record(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent[p.count%paceMemory] = took
	p.count++
}

// worthwhile reports whether enough recent answers came within a time.
func (p *pace) worthwhile(within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(p.count, paceMemory)
	if n < paceLeast {
		return true
	}
	inTime := 0
	for _, took := range p.recent[:n] {
		if took <= within {
			inTime++
		}
	}
	return inTime*paceShare >= n
}

// patience returns how long a look-up waits. Without a configured time, it is long while the wait costs nothing, and 0
// while answers come too late for it: they are kept for the next turn all the same.
func (s *Source) patience() time.Duration {
	limit := s.c.LookupTimeout
	if limit > 0 {
		return limit
	}
	limit = DefaultLookupTimeout
	if s.c.Busy != nil && s.c.Busy() {
		limit = BusyLookupTimeout
	}
	if !s.pace.worthwhile(limit) {
		return 0
	}
	return limit
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
