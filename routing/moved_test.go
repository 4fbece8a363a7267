package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// membersOf returns workers w0, w1 and so on of those weights.
func membersOf(weights ...int) []Member {
	ms := make([]Member, len(weights))
	for i, w := range weights {
		ms[i] = Member{ID: fmt.Sprint("w", i), Weight: w}
	}
	return ms
}

func TestAsManyPromptsMoveAsWeightDoes(t *testing.T) {
	home := Config{Name: "chwbl"}
	inGroup := func(ms []Member, group int) []Member {
		for i := range ms {
			ms[i].Group = group
		}
		return ms
	}
	ones := func(n int) []int { return slices.Repeat([]int{1}, n) }
	cases := map[string]struct {
		before, after []Member
		c             Config
		want          float64
		exact         bool
	}{
		"nothing":                  {membersOf(1, 2, 3), membersOf(1, 2, 3), home, 0, true},
		"another order":            {membersOf(1, 2, 3), append(membersOf(1, 2, 3)[2:], membersOf(1, 2)...), home, 0, true},
		"nobody, before and after": {nil, membersOf(0, 0), home, 0, true},
		"the first":                {nil, membersOf(1), home, 1, true},
		"all gone":                 {membersOf(1, 1), nil, home, 1, true},
		"all others":               {membersOf(1), []Member{{ID: "x", Weight: 1}}, home, 1, true},
		"one more beside 1":        {membersOf(1), membersOf(1, 1), home, 1. / 2, false},
		"one more beside 4":        {membersOf(ones(4)...), membersOf(ones(5)...), home, 1. / 5, false},
		"one more beside 15":       {membersOf(ones(15)...), membersOf(ones(16)...), home, 1. / 16, false},
		"one less of 5":            {membersOf(ones(5)...), membersOf(ones(4)...), home, 1. / 5, false},
		"one of weight 3 less":     {membersOf(1, 1, 1, 3), membersOf(1, 1, 1), home, 3. / 6, false},
		"one drained":              {membersOf(1, 1, 2), membersOf(1, 1, 0), home, 2. / 4, false},
		"twice the weight":         {membersOf(1, 1), membersOf(1, 2), home, 2./3 - 1./2, false},
		"half the weight":          {membersOf(4, 4), membersOf(4, 2), home, 1./2 - 1./3, false},
		// Half of the keys meet a new point first, and 1 - Σ share² of these are another's.
		"all weights doubled":          {membersOf(1, 2, 3), membersOf(2, 4, 6), home, (1 - 14./36) / 2, false},
		"a spare comes":                {membersOf(1, 1), append(membersOf(1, 1), Member{ID: "s", Weight: 5, Group: 1}), home, 0, true},
		"the spare group takes over":   {membersOf(1), append(inGroup(membersOf(1), 1), Member{ID: "s", Weight: 1}), home, 1, true},
		"another number of points":     {membersOf(ones(4)...), membersOf(ones(5)...), Config{Name: "chwbl", VirtualNodes: 1000}, 1. / 5, false},
		"a policy that knows no homes": {membersOf(1), membersOf(1, 1, 1), Config{Name: "least_load"}, 0, true},
		"the default policy":           {membersOf(1), membersOf(1, 1, 1), Config{}, 0, true},
	}
	for name, c := range cases {
		got := MovedShare(c.before, c.after, c.c)
		// 150 points a unit of weight leave a standard deviation of 8 % of a share,
		// and 4,096 keys one of 0.8 points.
		if off := math.Abs(got - c.want); c.exact && off > 0 || off > 0.06 {
			t.Errorf("%s: %.3f moved, want %.3f", name, got, c.want)
		}
	}
}

func TestAMoveAndItsReturnAreEqual(t *testing.T) {
	weights := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 8)
	c := Config{Name: "chwbl", VirtualNodes: 20}
	rapid.Check(t, func(t *rapid.T) {
		a, b := membersOf(weights.Draw(t, "a")...), membersOf(weights.Draw(t, "b")...)
		there, back := MovedShare(a, b, c), MovedShare(b, a, c)
		if there != back || there < 0 || there > 1 || MovedShare(a, a, c) != 0 {
			t.Fatalf("%v there, %v back", there, back)
		}
	})
}
