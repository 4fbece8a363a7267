package intake

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"tierway/openai"
)

// TestPooledBuffersFitTheirBodies: a body and the byte for its end fit into the buffer, which is at most twice as long.
func TestPooledBuffersFitTheirBodies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &bodyBudget{}
		b.configure(1<<30, 1)
		m := BodyMemory{budget: b}
		n := rapid.Int64Range(-1, 80<<10).Draw(t, "bytes")
		first := m.takeBuffer(n)
		size := int64(cap(first))
		switch {
		case m.Reserved != size:
			t.Errorf("%d bytes are reserved for a buffer of %d", m.Reserved, size)
		case first == nil:
			if n+1 >= leastPooled/2 && n+1 <= mostPooled && n+1 != shortBody {
				t.Errorf("a body of %d bytes has no buffer", n)
			}
		case len(first) != 0 || size <= n || size > 2*(n+1) || size > mostPooled:
			t.Errorf("a body of %d bytes has a buffer of %d, with %d used", n, size, len(first))
		}
		m.Release()
		if reserved, _ := b.sizes(); reserved != 0 {
			t.Errorf("%d bytes are still reserved", reserved)
		}
	})
}

// TestKeptBodiesAreNotReused, and the buffers of other bodies are.
func TestKeptBodiesAreNotReused(t *testing.T) {
	const n = 20 << 10
	b := &bodyBudget{}
	b.configure(1<<30, 1)
	read := func(text string, keep bool) []byte {
		m := BodyMemory{budget: b}
		first := m.takeBuffer(n)
		body, err := openai.DecodeInto(first, "", bytes.NewReader(bytes.Repeat([]byte(text), n)), n, n, &m)
		if err != nil || len(body) != n || cap(body) != cap(first) {
			t.Fatalf("%d bytes with a capacity of %d: %v", len(body), cap(body), err)
		}
		if keep {
			m.KeepBody()
		}
		m.Release()
		m.Release() // returns it once
		return body
	}
	reused := false
	kept := read("k", true)
	for range 100 { // the pool may be empty after a collection, and drops buffers under the race detector
		earlier := read("a", false)
		read("b", false)
		reused = reused || earlier[0] == 'b'
	}
	if !reused {
		t.Error("no buffer is used again")
	}
	if !bytes.Equal(kept, bytes.Repeat([]byte("k"), n)) {
		t.Error("the buffer of a kept body is used again")
	}
}
