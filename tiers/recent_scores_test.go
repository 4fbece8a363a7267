package tiers

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// twoShares are the highest fifth of the prompts and the highest half.
func twoShares() []gradedTier { return []gradedTier{{tier: 2, value: 0.2}, {tier: 1, value: 0.5}} }

// tierBy returns the tier that the thresholds of a window give a score, and adds it. Without thresholds it is -1.
func tierBy(r *RecentScores, score float64) int {
	thresholds := r.appendThresholds(nil, windowKey{}, twoShares())
	r.Add(PendingScore{value: score, known: true})
	if len(thresholds) == 0 {
		return -1
	}
	return max(highestExceeded(score, thresholds), 0)
}

// TestSharesConverge for scores of one distribution, also of few values, and for scores that drift: each 1,000
// prompts give each tier its share. The bound is four standard errors of 1,000 prompts and of the window at their
// beginning, plus the lag: the thresholds are those of half a window before, 1,000 prompts. A drift by 1 in 10,000
// prompts is 0.1 in these, or 0.02 of the prompts at the median of a standard deviation of 2. The swing is up to 0.33,
// or 0.067.
func TestSharesConverge(t *testing.T) {
	for name, c := range map[string]struct {
		lag   float64
		score func(source *rand.Rand, i int) float64
	}{
		"normal":    {0, func(source *rand.Rand, _ int) float64 { return 8 + 2*source.NormFloat64() }},
		"long tail": {0, func(source *rand.Rand, _ int) float64 { return math.Exp(2 * source.NormFloat64()) }},
		"drifting": {0.02, func(source *rand.Rand, i int) float64 {
			return 8 + 2*source.NormFloat64() + float64(i)/10_000
		}},
		"swinging": {0.067, func(source *rand.Rand, i int) float64 {
			return 8 + 2*source.NormFloat64() + math.Sin(float64(i)/3000)
		}},
		"thousandth": {0, func(source *rand.Rand, _ int) float64 { return math.Round(1000*source.NormFloat64()) / 1000 }},
	} {
		recent, source := NewRecentScores(1), rand.New(rand.NewPCG(1, 2))
		for i := range minScores {
			if tier := tierBy(recent, c.score(source, i)); tier >= 0 {
				t.Fatalf("%s: prompt %d is at tier %d", name, i, tier)
			}
		}
		const block = 1000
		for sent := minScores; sent < 20*block; sent += block {
			counts := [3]float64{}
			for i := range block {
				tier := tierBy(recent, c.score(source, sent+i))
				if tier < 0 {
					t.Fatalf("%s: prompt %d has no tier", name, sent+i)
				}
				counts[tier] += 1.0 / block
			}
			for tier, want := range [3]float64{0.5, 0.3, 0.2} {
				bound := c.lag + 4*math.Sqrt(want*(1-want)*(1.0/block+1/float64(min(sent, maxScores))))
				if math.Abs(counts[tier]-want) > bound {
					t.Errorf("%s: of %d prompts after %d, tier %d got %.3f, want %.3f ± %.3f", name, block, sent, tier,
						counts[tier], want, bound)
				}
			}
		}
	}
}

// TestEqualScoresNeverExceedTheShare: they stay at the lower tier together.
func TestEqualScoresNeverExceedTheShare(t *testing.T) {
	recent, up := NewRecentScores(1), 0
	for i := range 5000 {
		if tierBy(recent, float64(i%2)) > 0 { // half of the scores are 1, more than a fifth and not more than a half
			up++
		}
	}
	if up != 2400 {
		t.Errorf("%d of 4800 prompts went up, want the half with the higher score", up)
	}
	if tier := tierBy(recent, 1); tier != 1 {
		t.Errorf("the higher of two scores is at tier %d, want the one with room for half of the prompts", tier)
	}
}

// TestWindowHasTheLastScores, sorted, and no more than its bound; its quantiles are those of the definition.
func TestWindowHasTheLastScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		values := rapid.IntRange(1, 5000).Draw(t, "values")
		var w scoreWindow
		var all []float64
		for range rapid.SampledFrom([]int{1, 200, maxScores, maxScores + 1, 2*maxScores + 7}).Draw(t, "scores") {
			score := float64(source.IntN(values))
			w.add(score)
			all = append(all, score)
		}
		want := slices.Clone(all[max(0, len(all)-maxScores):])
		slices.Sort(want)
		if !slices.Equal(w.sorted, want) || cap(w.ring) > maxScores || cap(w.sorted) > maxScores {
			t.Fatalf("the window has %d scores of %d, and room for %d", len(w.sorted), len(all), cap(w.sorted))
		}
		share := float64(rapid.IntRange(1, 100).Draw(t, "share")) / 100
		above, from := 0, 0
		for _, score := range want {
			if score > w.quantile(share) {
				above++
			}
			if score >= w.quantile(share) {
				from++
			}
		}
		if n := share * float64(len(want)); float64(above) > n+1e-6 || float64(from) < n-1e-6 || from == above && share < 1 {
			t.Errorf("of %d scores, %d are above the quantile of %v, and %d from it on", len(want), above, share, from)
		}
	})
}

// TestThresholdsMoveSlowly: one prompt moves a threshold to a neighbouring score at most.
func TestThresholdsMoveSlowly(t *testing.T) {
	source := rand.New(rand.NewPCG(3, 4))
	var w scoreWindow
	for range maxScores {
		w.add(source.NormFloat64())
	}
	for i := range 2000 {
		before, sorted := w.quantile(0.2), slices.Clone(w.sorted)
		w.add(100 * source.NormFloat64())
		at, _ := slices.BinarySearch(sorted, before)
		if after := w.quantile(0.2); after < sorted[at-1] || after > sorted[at+1] {
			t.Fatalf("prompt %d moved the threshold from %v to %v, past a neighbour", i, before, after)
		}
	}
}

// addTo adds a score of 1 to the window of a tenant, and returns the number of thresholds that it had before.
func addTo(r *RecentScores, tenant uint64) int {
	key := windowKey{tenant: tenant}
	n := len(r.appendThresholds(nil, key, twoShares()))
	r.Add(PendingScore{key: key, value: 1, known: true})
	return n
}

func TestWindowsAreBounded(t *testing.T) {
	recent := NewRecentScores(3)
	for range minScores {
		addTo(recent, 1)
		addTo(recent, 2)
	}
	for tenant := range uint64(10) { // 1 and 2 are used again, so that the others are dropped
		addTo(recent, 10+tenant)
		if recent.uses.Len() > 3 || addTo(recent, 1) == 0 || addTo(recent, 2) == 0 {
			t.Fatalf("after %d further tenants there are %d windows", tenant+1, recent.uses.Len())
		}
	}
	if addTo(recent, 10) != 0 {
		t.Error("a dropped window has thresholds")
	}
	recent.Add(PendingScore{})
	if recent.uses.Len() != 3 || len(recent.windows) != 3 {
		t.Errorf("there are %d windows, want 3", recent.uses.Len())
	}
}

// TestTheLeastRecentlyUsedWindowIsDropped at the bound of the gateway. Its memory serves the next one.
func TestTheLeastRecentlyUsedWindowIsDropped(t *testing.T) {
	recent := NewRecentScores(MaxScoreWindows)
	for tenant := range uint64(MaxScoreWindows) {
		for range minScores {
			addTo(recent, tenant)
		}
	}
	addTo(recent, 0)
	addTo(recent, MaxScoreWindows)
	if recent.uses.Len() != MaxScoreWindows || addTo(recent, 0) == 0 || addTo(recent, 2) == 0 {
		t.Errorf("%d windows are left, or one that was used", recent.uses.Len())
	}
	if addTo(recent, 1) != 0 {
		t.Error("the window of the least recently used tenant has thresholds")
	}
}

// TestScoresOfConcurrentRequestsAreAllAdded, also while windows are dropped and read.
func TestScoresOfConcurrentRequestsAreAllAdded(t *testing.T) {
	recent := NewRecentScores(4)
	var group sync.WaitGroup
	for i := range uint64(8) {
		group.Go(func() {
			for range 250 {
				addTo(recent, 0)
				addTo(recent, 1+i%2)
			}
		})
	}
	group.Wait()
	for tenant, want := range map[uint64]int{0: 2000, 1: 1000, 2: 1000} {
		w := recent.windows[windowKey{tenant: tenant}].Value.(*scoreWindow)
		if len(w.sorted) != want || len(w.ring) != want {
			t.Errorf("tenant %d has %d scores, want %d", tenant, len(w.sorted), want)
		}
	}
}
