package intake

import (
	"bytes"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
	"tierway/openai"
)

// TestTenantWithoutReservationsFindsFreeMemory also checks that a second Release releases nothing.
func TestTenantWithoutReservationsFindsFreeMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 1 << 20
		var b bodyBudget
		b.configure(limit, 1)
		var all []*BodyMemory
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if i := rapid.IntRange(-1, len(all)-1).Draw(t, "which"); i >= 0 && rapid.Bool().Draw(t, "end") {
				all[i].Release()
				all[i].Release()
				continue
			}
			m := &BodyMemory{budget: &b, tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant")}
			all = append(all, m)
			_ = m.Reserve(rapid.OneOf(rapid.Int64Range(1, shortBody), rapid.Int64Range(1, limit)).Draw(t, "bytes"))
			if m.Reserved > 2 && rapid.Bool().Draw(t, "return a part") {
				m.Return(m.Reserved / 2)
			}
		}
		reserved, _ := b.sizes()
		var sum int64
		for _, m := range all {
			sum += m.Reserved
		}
		short := b.short.Load()
		if reserved != sum || short < 0 || short > limit/shortDivisor || reserved-short >= limit {
			t.Fatalf("%d bytes are reserved, %d of short bodies, %d by requests", reserved, short, sum)
		}
		free := limit - reserved + short
		if !b.reserve("d", free/2) {
			t.Fatalf("a tenant without reservations gets nothing of %d free bytes", free)
		}
		b.release("d", free/2)
		for _, m := range all {
			m.Release()
		}
		if reserved, _ := b.sizes(); reserved != 0 || len(b.by) != 0 {
			t.Fatalf("%d bytes of %d tenants are left", reserved, len(b.by))
		}
	})
}

// TestLongestBodyFitsBesideAnotherTenantsBacklog uses a budget of eight times the longest body. It reads
// the body with and without a Content-Length.
func TestLongestBodyFitsBesideAnotherTenantsBacklog(t *testing.T) {
	const longest = 1 << 20
	var b bodyBudget
	b.configure(8*longest, longest)
	backlog := BodyMemory{budget: &b, tenant: "a"}
	for backlog.Reserve(longest/64) == nil {
	}
	for _, hint := range []int64{longest, -1} {
		m := BodyMemory{budget: &b, tenant: "b"}
		if body, err := openai.Decode("", bytes.NewReader(make([]byte, longest)), hint, longest, &m); err != nil ||
			len(body) != longest {
			t.Errorf("announced as %d: %d bytes, %v, beside %d", hint, len(body), err, backlog.Reserved)
		}
		m.Release()
	}
	backlog.Release()
}

// TestReleasedLongBuffersAreCollected: the memory of the process stays near that of the reserved buffers, however
// much live data lets the heap grow.
func TestReleasedLongBuffersAreCollected(t *testing.T) {
	var b bodyBudget
	b.configure(8*garbageMax, 1)
	use := func(size, n int64) {
		for range n {
			m := BodyMemory{budget: &b, tenant: "a"}
			if err := m.Reserve(size); err != nil {
				t.Fatal(err)
			}
			m.Release()
		}
	}
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	before := forced()
	use(longBuffer-1, 2000)
	use(garbageMax/8, 8)
	if b.garbage != garbageMax {
		t.Errorf("%d bytes of garbage, and not those of the long buffers", b.garbage)
	}
	use(longBuffer, 1)
	if b.garbage != 0 {
		t.Errorf("%d bytes of garbage after the bound", b.garbage)
	}
	for forced() == before { // the collection runs beside the requests
		runtime.Gosched()
	}
}
