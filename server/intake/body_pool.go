package intake

import (
	"math/bits"
	"sync"
)

// bodyPools pool the buffers of plain bodies of usual lengths, which are most of the garbage of long chats otherwise.
// The pool i has buffers of leastPooled << i bytes.
type bodyPools [4]sync.Pool // of *[]byte

const (
	// leastPooled is the size in bytes of the smallest pooled buffers. Shorter bodies than half of it are cheap to
	// allocate.
	leastPooled = 8 << 10
	// mostPooled is the size of the largest ones. A body of any announced length has a first buffer of that size, so the
	// pools let no client reserve more memory.
	mostPooled = leastPooled << (len(bodyPools{}) - 1)
)

// of returns the pool of the smallest buffers with at least n bytes, and the size of its buffers; nil if none is pooled
// for a body of n bytes.
func (p *bodyPools) of(n int64) (pool *sync.Pool, size int64) {
	if n < leastPooled/2 || n > mostPooled {
		return nil, 0
	}
	i := bits.Len64(uint64(n-1) / leastPooled)
	return &p[i], leastPooled << i
}

// put returns a buffer of a pool to it.
func (p *bodyPools) put(b *[]byte) {
	pool, _ := p.of(int64(cap(*b)))
	pool.Put(b)
}

// buffer returns a buffer for a body of n bytes and its end, which Release returns to its pool. It reserves the buffer.
// It returns nil if such bodies have no pool: the longest short body would need too long a buffer. It also returns nil
// if the memory is spent; then a buffer of the body's own length may still fit.
func (m *BodyMemory) buffer(n int64) []byte {
	pool, size := m.budget.pools.of(n + 1)
	if pool == nil || n+1 == shortBody || m.Reserve(size) != nil {
		return nil
	}
	b, _ := pool.Get().(*[]byte)
	if b == nil {
		made := make([]byte, 0, size)
		b = &made
	}
	m.pooled = b
	return *b
}

// KeepBody leaves the buffer of the body to the garbage collector. Whatever may read the body after the request, or
// after its DropBody, must call it first.
func (m *BodyMemory) KeepBody() {
	if m.pooled != nil { // both stages of a hand-over may call it
		m.pooled = nil
	}
}
