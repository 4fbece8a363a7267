package intake

import (
	"errors"
	"math"
	"runtime/debug"
	"sync"
)

const (
	// bodyMemoryDivisor: request bodies may hold a quarter of the memory limit. The rest is for
	// answers, connections, garbage and learned state.
	bodyMemoryDivisor = 4
	// bodyMemoryUnlimited is the budget where no memory limit is known.
	bodyMemoryUnlimited = 1 << 30
)

// bodyBudget bounds the memory of all request bodies that are read, wait or may still
// be sent, and of long answers and events that are read. A tenant may reserve only if it
// then holds at most as much as stays free: one tenant alone half of the budget, the next
// at least a quarter. A tenant that holds nothing may reserve half of what is free.
type bodyBudget struct {
	mu    sync.Mutex
	limit int64
	held  int64
	by    map[string]int64 // tenant → bytes, without tenants that hold nothing
}

// ErrBodyMemory means that the tenant's share of max_buffered_bytes is used up.
var ErrBodyMemory = errors.New("other bodies hold the memory of max_buffered_bytes")

// configure sets the bound; 0 is the default's. Bodies that are held stay.
func (b *bodyBudget) configure(limit, longest int64) {
	if limit == 0 {
		limit = bodyMemoryUnlimited
		if memory := debug.SetMemoryLimit(-1); memory < math.MaxInt64 {
			limit = memory / bodyMemoryDivisor
		}
		limit = max(limit, 4*longest) // the least that config accepts
	}
	b.mu.Lock()
	b.limit = limit
	b.mu.Unlock()
}

// reserve takes n bytes for a tenant, or nothing.
func (b *bodyBudget) reserve(tenant string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by[tenant]+n > b.limit-b.held-n {
		return false
	}
	if b.by == nil {
		b.by = map[string]int64{}
	}
	b.held += n
	b.by[tenant] += n
	return true
}

// release gives back n bytes of a tenant.
func (b *bodyBudget) release(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.by[tenant] -= n; b.by[tenant] == 0 {
		delete(b.by, tenant)
	}
}

// sizes returns the bytes that are held, and the bound.
func (b *bodyBudget) sizes() (held, limit int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held, b.limit
}

// BodyMemory is what one request holds of the budget. The request's goroutine owns it.
type BodyMemory struct {
	budget *bodyBudget
	tenant string
	Held   int64
}

// Reserve is part of openai.Memory.
func (m *BodyMemory) Reserve(n int64) error {
	if !m.budget.reserve(m.tenant, n) {
		return ErrBodyMemory
	}
	m.Held += n
	return nil
}

// Return is part of openai.Memory.
func (m *BodyMemory) Return(n int64) {
	m.Held -= n
	m.budget.release(m.tenant, n)
}

// Release gives back what is held. It may be called again.
func (m *BodyMemory) Release() {
	if m.Held > 0 {
		m.Return(m.Held)
	}
}
