package routing

import (
	"slices"
	"testing"
	"time"
)

// clockwiseOf returns the workers w0 to w3 in the order of the ring from a request's home on.
func clockwiseOf(t *testing.T, c Config, r Request) (order [4]int) {
	t.Helper()
	ws := equals(0, 0, 0, 0)
	for i := range order {
		home, _ := mustCHWBL(t, c).Pick(&r, ws)
		order[i] = ws[home].Index
		ws = slices.Delete(ws, home, home+1)
	}
	return order
}

// TestRequestWaitsForTheWorkerWithItsCache lists the workers in the order of the ring from the home
// on: requests in flight and waiting, f if it is full, the cached tokens of the prompt, and the
// expected worker. The bound is ceil(1.25·a + 2·√a): 4 with 5 in flight, this request included, and
// 20 with 42. Every worker prefills 1,000 tokens per second.
func TestRequestWaitsForTheWorkerWithItsCache(t *testing.T) {
	fixed := Config{Depth: "fixed"}
	for name, c := range map[string]struct {
		inflight [4]int
		full     string // f is full, - is open
		overlap  [4]int64
		waited   time.Duration
		prompt   int64
		want     int
		reason   Reason
	}{
		"none is full": {[4]int{1, 1, 1, 1}, "----", [4]int64{0, 0, 9000, 0}, 0, 9000, 0, ReasonPrefixHome},
		"an open home": {[4]int{1, 1, 1, 1}, "-fff", [4]int64{}, 0, 9000, 0, ReasonPrefixHome},
		"an open home with less, a full one with more": {[4]int{1, 1, 1, 1}, "-f--", [4]int64{0, 9000, 0, 0}, 0, 9000, 0,
			ReasonPrefixHome},
		"an open home with less, an open one with more": {[4]int{1, 1, 1, 1}, "-f--", [4]int64{0, 0, 9000, 0}, 0, 9000, 2,
			ReasonPrefixOverflow},
		"an open home with as good as all": {[4]int{1, 1, 1, 1}, "-f--", [4]int64{8500, 0, 9000, 0}, 0, 9000, 0,
			ReasonPrefixHome},
		"a full home that has nothing": {[4]int{1, 0, 0, 0}, "f---", [4]int64{}, 0, 9000, 1,
			ReasonPrefixOverflow},
		"a full home that has it": {[4]int{1, 0, 0, 0}, "f---", [4]int64{5000}, 0, 9000, 0,
			ReasonPrefixHome},
		"a full home, waited for as long as it is worth": {[4]int{1, 0, 0, 0}, "f---", [4]int64{5000}, 35 * time.Second, 9000,
			0, ReasonPrefixHome},
		"a full home, waited for longer": {[4]int{1, 0, 0, 0}, "f---", [4]int64{5000}, 35*time.Second + 1,
			9000, 1, ReasonPrefixOverflow},
		"a full home, and another with as good as all": {[4]int{1, 0, 0, 0}, "f---", [4]int64{5000, 0, 4600, 0}, 0, 9000, 2,
			ReasonPrefixOverflow},
		"a full home, all full": {[4]int{2, 2, 2, 2}, "ffff", [4]int64{}, 0, 9000, 0,
			ReasonPrefixHome},
		"a full home that has it, the others over": {[4]int{1, 20, 20, 20}, "f---", [4]int64{5000}, 0, 9000, 0,
			ReasonPrefixHome},
		"over the bound, the next full": {[4]int{20, 20, 1, 1}, "-f--", [4]int64{}, 0, 1, 2,
			ReasonPrefixOverflow},
		"over the bound, the one within it full": {[4]int{20, 20, 1, 0}, "fff-", [4]int64{}, 0, 1, 3,
			ReasonPrefixOverflow},
		"too long for all, the home full": {[4]int{1, 1, 1, 1}, "f---", [4]int64{}, 0, 100_000, 1,
			ReasonPrefixSaturated},
		"too long for all, the home and next full": {[4]int{1, 1, 1, 1}, "ff--", [4]int64{}, 0, 100_000, 2,
			ReasonPrefixSaturated},
		"too long for all, the home full that has it": {[4]int{1, 1, 1, 1}, "f---", [4]int64{40_000}, 0, 100_000, 0,
			ReasonPrefixSaturated},
		"too long for all, all full": {[4]int{1, 1, 1, 1}, "ffff", [4]int64{}, 0, 100_000, 0,
			ReasonPrefixSaturated},
		"too long for all, but the home is idle": {[4]int{0, 1, 1, 1}, "-fff", [4]int64{}, 0, 100_000, 0,
			ReasonPrefixHome},
	} {
		r := Request{Prefix: 42, PromptTokens: c.prompt, Wait: true, Waited: c.waited}
		ws, order := equals(0, 0, 0, 0), clockwiseOf(t, fixed, r)
		for at, i := range order {
			ws[i].Inflight, ws[i].Full, ws[i].Overlap, ws[i].Rate = c.inflight[at], c.full[at] == 'f', c.overlap[at], 1000
		}
		i, reason := mustCHWBL(t, fixed).Pick(&r, ws)
		if at := slices.Index(order[:], i); at != c.want || reason != c.reason {
			t.Errorf("%s: it went to number %d (%s), want %d (%s)", name, at, reason, c.want, c.reason)
		}
	}
}

// TestWithoutFullWorkersTheRingDecides, and no bound is computed again.
func TestWithoutFullWorkersTheRingDecides(t *testing.T) {
	p, ws := mustCHWBL(t, Config{}), equals(1, 2, 3)
	ws[2].Overlap = 9000
	if got := p.besideFull(&Request{Wait: true}, ws, nil, 1, nil, 0); got != 1 { // without a bound and a ring
		t.Errorf("the ring chose 1, and it went to %d", got)
	}
}

// TestRequestWithoutKeyWaitsForNoWorker: it has no cache to wait for.
func TestRequestWithoutKeyWaitsForNoWorker(t *testing.T) {
	for name, c := range map[string]struct {
		ws   []View
		want int
	}{
		"the idle one is full": {[]View{{Weight: 1, Full: true}, {Weight: 1, OutputTokens: 9},
			{Weight: 1, OutputTokens: 8}}, 2},
		"all are full": {[]View{{Weight: 1, Full: true, OutputTokens: 9},
			{Weight: 1, Full: true, OutputTokens: 3}}, 1},
		"the open one is the busier": {[]View{{Weight: 1, Full: true, Inflight: 1},
			{Weight: 1, Inflight: 50, OutputTokens: 500}}, 1},
	} {
		pool := Pool{policy: mustCHWBL(t, Config{})}
		if i, reason := pool.pickLocked(&Request{Wait: true}, c.ws); i != c.want || reason != ReasonLeastLoad {
			t.Errorf("%s: it went to %d (%s), want %d", name, i, reason, c.want)
		}
	}
}

// TestFullWorkerKeepsItsKeys: a prompt's home does not depend on which workers are full.
func TestFullWorkerKeepsItsKeys(t *testing.T) {
	p, ws := mustCHWBL(t, Config{Depth: "fixed"}), equals(1, 1, 1, 1, 1, 1)
	for key := range uint64(500) {
		r := Request{Prefix: Mix(key + 1), PromptTokens: 5000, Wait: true}
		for i := range ws {
			ws[i].Full, ws[i].Overlap, ws[i].Rate = false, 0, 1000
		}
		home, _ := p.Pick(&r, ws)
		ws[home].Overlap = 5000
		for i := range ws {
			ws[i].Full = Mix(key)>>i&1 == 1
		}
		if i, reason := p.Pick(&r, ws); i != home || reason != ReasonPrefixHome {
			t.Fatalf("key %d lives on %d, and with others full on %d (%s)", key, home, i, reason)
		}
	}
}
