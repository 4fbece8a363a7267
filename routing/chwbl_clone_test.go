package routing

import (
	"reflect"
	"testing"
	"time"
)

// cloneChecker picks with a clone of a policy before each pick of the policy itself, and compares both
// with a twin that is never cloned.
type cloneChecker struct {
	t              *testing.T
	p, twin        *chwbl
	asked, changed int // requests, and those at which the depth changed
	moved          int // keys that were others before the request
}

func (b *cloneChecker) Name() string { return b.p.Name() }

func (b *cloneChecker) Pick(r *Request, ws []View) (int, Reason) {
	b.asked++
	dry := *r
	i, reason := b.p.clone(&dry).Pick(&dry, ws)
	known, before := b.p.keys.Find(r.Blocks), b.p.Depth().Changes
	next := b.p.keys.Clone(r.Blocks).Key(r.Now, r.Blocks, len(ws))
	j, why := b.p.Pick(r, ws)
	changed := b.p.Depth().Changes > before
	if known != next && !changed {
		b.t.Fatalf("request %d: its key is %x, and was %x, and nothing changed", b.asked, next, known)
	}
	if k, alone := b.twin.Pick(r, ws); i != j || reason != why || i != k || reason != alone {
		b.t.Fatalf("request %d went to %d (%s), by its clone to %d (%s), and by its twin to %d (%s)", b.asked, j, why, i,
			reason, k, alone)
	}
	if b.asked%100 == 0 && !reflect.DeepEqual(b.p.keys, b.twin.keys) {
		b.t.Fatalf("after request %d the cloned policy has learned something else", b.asked)
	}
	if known != next {
		b.moved++
	}
	if changed {
		b.changed++
	}
	return j, why
}

// TestCloneOfTheKeysFindsTheLearnedKey, also at the very request at which a key moves, while tenants
// are split and joined and their system prompts change.
func TestCloneOfTheKeysFindsTheLearnedKey(t *testing.T) {
	b := &cloneChecker{t: t, p: mustCHWBL(t, Config{}), twin: mustCHWBL(t, Config{})}
	w := newPolicySim(b, 8)
	w.converse([]int{4, 40, 12}, []float64{0.36, 0.68, 1})
	splits := b.p.Depth().Splits
	for phase := range 3 {
		for i := range 3000 {
			w.now = w.now.Add(w.rng.exp(200 * time.Millisecond))
			system := chainOf(nil, uint64(100+phase), 20+10*phase)
			w.ask(chainOf(system, uint64(1000+w.rng.below(300)), 1+i%5), 3, w.rng.exp(4*time.Second))
		}
	}
	t.Logf("of %d requests %d changed the depth, of which %d had another key than the one before: %d splits, then %+v",
		b.asked, b.changed, b.moved, splits, b.p.Depth())
	if splits == 0 || b.changed < 10 || b.moved == 0 || b.p.Depth().Splits >= splits {
		t.Errorf("the traffic moves no keys")
	}
}
