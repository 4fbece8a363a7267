package tiers

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// twoShares are the highest fifth of the prompts and the highest half.
func twoShares() []gradedTier { return []gradedTier{{tier: 2, value: 0.2}, {tier: 1, value: 0.5}} }

// tierBy returns the tier that the thresholds of a window give a score, and adds it. Without thresholds it is -1.
func tierBy(r *RecentScores, score float64) int {
	thresholds := r.addScore(windowKey{}, twoShares(), score, nil)
	if len(thresholds) == 0 {
		return -1
	}
	return max(highestExceeded(score, thresholds), 0)
}

// TestSharesConverge for scores of one distribution, also of few values, and for scores that drift. The
// bound is four standard errors of a share by 2,000 scores. The thresholds lag half a window behind a
// drift, here by 0.1, or 2 points of the share.
func TestSharesConverge(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	for name, score := range map[string]func(i int) float64{
		"normal":     func(int) float64 { return 8 + 2*source.NormFloat64() },
		"long tail":  func(int) float64 { return math.Exp(2 * source.NormFloat64()) },
		"drifting":   func(i int) float64 { return 8 + 2*source.NormFloat64() + float64(i)/10_000 },
		"swinging":   func(i int) float64 { return 8 + 2*source.NormFloat64() + math.Sin(float64(i)/3000) },
		"thousandth": func(int) float64 { return math.Round(1000*source.NormFloat64()) / 1000 },
	} {
		recent, counts := NewRecentScores(1), [3]float64{}
		const n = 10_000
		for i := range minScores + n {
			tier := tierBy(recent, score(i))
			if started := tier >= 0; started != (i >= minScores) {
				t.Fatalf("%s: prompt %d is at tier %d", name, i, tier)
			}
			if tier >= 0 {
				counts[tier] += 1.0 / n
			}
		}
		for tier, want := range [3]float64{0.5, 0.3, 0.2} {
			if math.Abs(counts[tier]-want) > 0.04 {
				t.Errorf("%s: tier %d got %.3f of the prompts, want %.3f", name, tier, counts[tier], want)
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
		if !slices.Equal(w.sorted, want) || len(w.ring) > maxScores || cap(w.sorted) > 2*maxScores {
			t.Fatalf("the window has %d scores of %d", len(w.sorted), len(all))
		}
		share := float64(rapid.IntRange(1, 100).Draw(t, "share")) / 100
		above := 0
		for _, score := range want {
			if score > w.quantile(share) {
				above++
			}
		}
		if float64(above) > share*float64(len(want))+1e-6 {
			t.Errorf("%d of %d scores are above the quantile of %v", above, len(want), share)
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

func TestRoutesAreBounded(t *testing.T) {
	recent := NewRecentScores(3)
	add := func(tenant uint64) int {
		return len(recent.addScore(windowKey{tenant: tenant}, twoShares(), 1, nil))
	}
	for range minScores {
		add(1)
		add(2)
	}
	for tenant := range uint64(10) { // 1 and 2 are used again, so that the others are dropped
		add(10 + tenant)
		if recent.Len() > 3 || add(1) == 0 || add(2) == 0 {
			t.Fatalf("after %d further tenants there are %d routes", tenant+1, recent.Len())
		}
	}
	if add(10) != 0 {
		t.Error("a dropped route has thresholds")
	}
	readOnly := recent.ReadOnly()
	if got := readOnly.addScore(windowKey{tenant: 99}, twoShares(), 1, nil); got != nil || recent.Len() != 3 {
		t.Errorf("a view added a route: %v", got)
	}
	key := windowKey{tenant: 1}
	before := len(recent.windows[key].sorted)
	if got := readOnly.addScore(key, twoShares(), 1, nil); len(got) != 2 || len(recent.windows[key].sorted) != before {
		t.Error("a view added a score")
	}
	if (*RecentScores)(nil).ReadOnly() != nil {
		t.Error("a view of nothing is not nil")
	}
}
