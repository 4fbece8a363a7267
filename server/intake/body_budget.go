package intake

import (
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

const (
	// bodyMemoryDivisor gives request bodies a quarter of the memory limit. The rest is for
	// answers, connections, garbage and learned state.
	bodyMemoryDivisor = 4
	// bodyMemoryUnlimited is the budget without a memory limit.
	bodyMemoryUnlimited = 1 << 30
)

// bodyBudget bounds the memory of all buffered request bodies, and of long answers and events. A
// reservation succeeds if the tenant's total is afterwards at most the free memory. Thus one tenant
// alone can use half of the budget, and a second one a quarter. A tenant without reservations can
// reserve half of the free memory.
//
// Short bodies of all tenants share a small further budget, without the lock that all requests would share.
type bodyBudget struct {
	short      atomic.Int64 // reserved bytes of short bodies
	shortLimit atomic.Int64
	pools      bodyPools

	mu       sync.Mutex
	limit    int64
	reserved int64            // without short
	by       map[string]int64 // tenant → reserved bytes; no entry is 0
	garbage  int64            // released bytes of long buffers since the last collection that they caused
}

const (
	// shortBody is the largest reservation in bytes from the budget of short bodies, with the byte in which the end of a
	// body is detected. Most chats are shorter.
	shortBody = 16<<10 + 1
	// shortDivisor is the ratio of the budget to that of short bodies: 4,096 requests at once if it is 1 GiB.
	shortDivisor = 16
	// longBuffer is the size in bytes from which a released buffer counts as garbage. The collector runs often
	// enough for shorter ones.
	longBuffer = 1 << 20
	// garbageMax is the largest sum of released long buffers in bytes before a collection. The heap may grow to
	// five times its live data, so without one, 1 GiB of live buffers leaves 4 GiB of released ones. A collection
	// takes some ten milliseconds of a core.
	garbageMax = 256 << 20
)

// ErrBodyMemory means that a tenant has used its share of max_buffered_bytes.
var ErrBodyMemory = errors.New("other bodies use the memory of max_buffered_bytes")

// configure sets the limit; 0 selects the default. Reservations stay.
func (b *bodyBudget) configure(limit, longest int64) {
	if limit == 0 {
		limit = bodyMemoryUnlimited
		if memory := debug.SetMemoryLimit(-1); memory < math.MaxInt64 {
			limit = memory / bodyMemoryDivisor
		}
		limit = max(limit, 4*longest) // the smallest value that config accepts
	}
	b.mu.Lock()
	b.limit = limit
	b.mu.Unlock()
	b.shortLimit.Store(limit / shortDivisor)
}

// reserveShort reserves bytes of the budget of short bodies.
func (b *bodyBudget) reserveShort(n int64) bool {
	if n > shortBody {
		return false
	}
	if b.short.Add(n) <= b.shortLimit.Load() {
		return true
	}
	b.short.Add(-n)
	return false
}

func (b *bodyBudget) reserve(tenant string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[tenant]+n > b.limit-b.reserved-n {
		return false
	}
	if b.by == nil {
		b.by = map[string]int64{}
	}
	b.reserved += n
	b.by[tenant] += n
	return true
}

func (b *bodyBudget) release(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved -= n
	if b.by[tenant] -= n; b.by[tenant] == 0 {
		delete(b.by, tenant)
	}
	if n < longBuffer {
		return
	}
	if b.garbage += n; b.garbage > garbageMax {
		b.garbage = 0
		go runtime.GC()
	}
}

func (b *bodyBudget) sizes() (reserved, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reserved + b.short.Load(), b.limit
}

// BodyMemory is the part of the budget that one request has reserved. The goroutine of the request owns
// it.
type BodyMemory struct {
	budget   *bodyBudget
	tenant   string
	Reserved int64
	short    int64   // the part of Reserved from the budget of short bodies
	pooled   *[]byte // buffer of the body that Release returns to its pool; nil if there is none
}

// Reserve implements openai.Memory.
func (m *BodyMemory) Reserve(n int64) error {
	switch {
	case m.budget.reserveShort(n):
		m.short += n
	case !m.budget.reserve(m.tenant, n):
		return ErrBodyMemory
	}
	m.Reserved += n
	return nil
}

// Return implements openai.Memory.
func (m *BodyMemory) Return(n int64) {
	m.Reserved -= n
	short := min(n, m.short)
	m.short -= short
	m.budget.short.Add(-short)
	if n > short {
		m.budget.release(m.tenant, n-short)
	}
}

// Release releases the whole reservation and returns the pooled buffer, which must not be used afterwards. It may
// be called again.
func (m *BodyMemory) Release() {
	if m.Reserved > 0 {
		m.Return(m.Reserved)
	}
	if m.pooled != nil {
		m.budget.pools.put(m.pooled)
		m.pooled = nil
	}
}
