package intake

import (
	"math/bits"
	"sync"
)

// bodyPools pool the buffers of plain bodies of 4 to 64 KiB. Without them, these are most of the garbage of long chats.
// Pool i has buffers of leastPooled << i bytes.
type bodyPools [4]sync.Pool // of *[]byte

const (
	// leastPooled is the size in bytes of the smallest pooled buffers. Shorter bodies than half of it are cheap to
	// allocate.
	leastPooled = 8 << 10
	// mostPooled is the size of the largest ones, which is also the first buffer of a longer body. So the pools let no
	// client reserve more memory.
	mostPooled = leastPooled << (len(bodyPools{}) - 1)
)

// poolFor returns the pool of the smallest buffers with at least n bytes and their size; nil for a length without a
// pool.
func (p *bodyPools) poolFor(n int64) (pool *sync.Pool, size int64) {
	if n < leastPooled/2 || n > mostPooled {
		return nil, 0
	}
	i := bits.Len64(uint64(n-1) / leastPooled)
	return &p[i], leastPooled << i
}

// put returns a buffer of a pool to it.
func (p *bodyPools) put(b *[]byte) {
	pool, _ := p.poolFor(int64(cap(*b)))
	pool.Put(b)
}

// takeBuffer reserves and returns a pooled buffer for n bytes and one more, in which the end is detected. Release
// returns it to its pool. The result is nil for other lengths, for the longest short body (its buffer would not be
// short), and without memory: a buffer of the body's own length may still fit.
func (m *BodyMemory) takeBuffer(n int64) []byte {
	pool, size := m.budget.pools.poolFor(n + 1)
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

// KeepBody leaves the body's buffer to the garbage collector. Call it before the body is passed to code that may read
// it after DropBody or CloseBody.
func (m *BodyMemory) KeepBody() {
	if m.pooled != nil { // the stages of a hand-over call it at the same time: only a call before them writes
		m.pooled = nil
	}
}
