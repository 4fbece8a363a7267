package proxy

import (
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"tierway/openai"
)

const (
	// bodyMemoryPart is the part of the memory limit that request bodies may hold: the
	// rest is for answers, connections, garbage and what the gateway has learned.
	bodyMemoryPart = 4
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

// errBodyMemory is why a body is not read.
var errBodyMemory = errors.New("other bodies hold the memory of max_buffered_bytes")

// configure sets the bound; 0 is the default's. Bodies that are held stay.
func (b *bodyBudget) configure(limit, longest int64) {
	if limit == 0 {
		limit = bodyMemoryUnlimited
		if memory := debug.SetMemoryLimit(-1); memory < math.MaxInt64 {
			limit = memory / bodyMemoryPart
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

// bodyMemory is what one request holds of the budget. The request's goroutine owns it.
type bodyMemory struct {
	budget *bodyBudget
	tenant string
	held   int64
}

// Reserve is part of openai.Memory.
func (m *bodyMemory) Reserve(n int64) error {
	if !m.budget.reserve(m.tenant, n) {
		return errBodyMemory
	}
	m.held += n
	return nil
}

// Return is part of openai.Memory.
func (m *bodyMemory) Return(n int64) {
	m.held -= n
	m.budget.release(m.tenant, n)
}

// release gives back what is held. It may be called again.
func (m *bodyMemory) release() {
	if m.held > 0 {
		m.Return(m.held)
	}
}

// dropBody forgets the body of a request that is not sent again, so that a long answer
// does not hold it.
func (i incoming) dropBody() {
	x := i.x
	x.parsed.req.Body = nil
	x.in.memory.release()
}

// bodyMemory is memory for bodies of a tenant. Its owner releases it.
func (px *Proxy) bodyMemory(tenant string) bodyMemory {
	return bodyMemory{budget: &px.bodies, tenant: tenant}
}

// noAnswerMemory is the failure of an answer that finds no memory after so many bytes.
// The worker is not at fault, and its work is paid for.
func (a *attempt) noAnswerMemory(bytes int) *failure {
	a.x.s.metrics.BodiesRefused.Inc()
	a.x.settlement.estimate(a.x.resolution.unreported(&a.x.parsed, bytes))
	cause := excluded("%w", errBodyMemory)
	return &failure{left: true, blame: cause, err: &openai.Error{Code: openai.CodeOverloaded, RetryAfter: time.Second, Cause: cause,
		Message: "The bodies that the gateway holds leave no memory for the worker's answer (max_buffered_bytes). Ask for less at once, or try again later."}}
}

// noBodyMemory is the answer to a request whose body finds no memory.
func (px *Proxy) noBodyMemory() error {
	px.metrics.BodiesRefused.Inc()
	// Clients that were refused together must not return together.
	wait := time.Second + time.Duration(px.rand()%uint64(2*time.Second))
	return &openai.Error{Code: openai.CodeOverloaded, RetryAfter: wait, Cause: errBodyMemory,
		Message: "The request bodies that the gateway holds leave no memory for this one (max_buffered_bytes). Send fewer or shorter requests at a time, and try again in " + shortDuration(wait) + "."}
}
