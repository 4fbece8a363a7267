package routing

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

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

func TestMovedShareIsTheMovedWeight(t *testing.T) {
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
		"nothing": {membersOf(1, 2, 3), membersOf(1, 2, 3), home, 0, true},
		"another order": {membersOf(1, 2, 3), append(membersOf(1, 2, 3)[2:], membersOf(1, 2)...), home, 0,
			true},
		"no member, before and after": {nil, membersOf(0, 0), home, 0, true},
		"the first":                   {nil, membersOf(1), home, 1, true},
		"all gone":                    {membersOf(1, 1), nil, home, 1, true},
		"all others":                  {membersOf(1), []Member{{ID: "x", Weight: 1}}, home, 1, true},
		"one more beside 1":           {membersOf(1), membersOf(1, 1), home, 1. / 2, false},
		"one more beside 4":           {membersOf(ones(4)...), membersOf(ones(5)...), home, 1. / 5, false},
		"one more beside 15":          {membersOf(ones(15)...), membersOf(ones(16)...), home, 1. / 16, false},
		"one less of 5":               {membersOf(ones(5)...), membersOf(ones(4)...), home, 1. / 5, false},
		"one of weight 3 less":        {membersOf(1, 1, 1, 3), membersOf(1, 1, 1), home, 3. / 6, false},
		"one drained":                 {membersOf(1, 1, 2), membersOf(1, 1, 0), home, 2. / 4, false},
		"twice the weight":            {membersOf(1, 1), membersOf(1, 2), home, 2./3 - 1./2, false},
		"half the weight":             {membersOf(4, 4), membersOf(4, 2), home, 1./2 - 1./3, false},
		// Half of the keys meet a new point first, and 1 - Σ share² of these are another's.
		"all weights doubled": {membersOf(1, 2, 3), membersOf(2, 4, 6), home, (1 - 14./36) / 2, false},
		"a spare comes": {membersOf(1, 1), append(membersOf(1, 1), Member{ID: "s", Weight: 5, Group: 1}), home,
			0, true},
		"the spare group takes over": {membersOf(1), append(inGroup(membersOf(1), 1), Member{ID: "s", Weight: 1}), home, 1,
			true},
		"another number of points": {membersOf(ones(4)...), membersOf(ones(5)...),
			Config{Name: "chwbl", VirtualNodes: 1000}, 1. / 5, false},
		"a policy that knows no homes": {membersOf(1), membersOf(1, 1, 1), Config{Name: "least_load"}, 0, true},
		"the default policy":           {membersOf(1), membersOf(1, 1, 1), Config{}, 0, true},
	}
	for name, c := range cases {
		got := MovedShare(c.before, c.c, c.after, c.c)
		// 150 points a unit of weight leave a standard deviation of 8 % of a share,
		// and 4,096 keys one of 0.8 points.
		if off := math.Abs(got - c.want); c.exact && off > 0 || off > 0.06 {
			t.Errorf("%s: %.3f moved, want %.3f", name, got, c.want)
		}
	}
}

func TestMovedShareOfAPolicyChange(t *testing.T) {
	home, few, even := Config{Name: "chwbl"}, Config{Name: "chwbl", VirtualNodes: 20}, membersOf(1, 1, 1, 1)
	cases := map[string]struct {
		was, is  Config
		members  []Member
		from, to float64
	}{
		"affinity begins":                 {Config{Name: "least_load"}, home, even, 1, 1},
		"affinity ends":                   {home, Config{}, even, 1, 1},
		"affinity ends with one worker":   {home, Config{Name: "random"}, membersOf(1), 1, 1},
		"one without for another":         {Config{}, Config{Name: "round_robin"}, even, 0, 0},
		"what places no prompt":           {home, Config{Name: "chwbl", NoKey: "model_hash", Epsilon: new(0.5)}, even, 0, 0},
		"the default number, written out": {home, Config{Name: "chwbl", VirtualNodes: defaultVirtualNodes}, even, 0, 0},
		// The points of the smaller ring are among the larger one's: of seven in eight
		// keys the next point is another one, and of these three in four another worker's.
		"fewer points":           {home, few, even, 0.5, 0.75},
		"fewer points, one home": {home, few, membersOf(1), 0, 0},
		// 1 - Σ share² of unrelated homes are others.
		"another depth":           {home, Config{Name: "chwbl", Depth: "fixed"}, even, 0.70, 0.80},
		"the same depth":          {home, Config{Name: "chwbl", Depth: "adaptive"}, even, 0, 0},
		"another bound":           {home, Config{Name: "chwbl", MaxPrefixLength: 100}, even, 0.70, 0.80},
		"another depth, one home": {home, Config{Name: "chwbl", Depth: "fixed"}, membersOf(1), 0, 0},
	}
	for name, c := range cases {
		if got := MovedShare(c.members, c.was, c.members, c.is); got < c.from || got > c.to {
			t.Errorf("%s: %.3f moved, want %.3f to %.3f", name, got, c.from, c.to)
		}
	}
}

func TestMovedShareIsSymmetric(t *testing.T) {
	weights := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 8)
	policies := rapid.SampledFrom([]Config{{Name: "chwbl", VirtualNodes: 20}, {Name: "chwbl", VirtualNodes: 30},
		{Name: "least_load"}})
	rapid.Check(t, func(t *rapid.T) {
		a, b := membersOf(weights.Draw(t, "a")...), membersOf(weights.Draw(t, "b")...)
		was, is := policies.Draw(t, "was"), policies.Draw(t, "is")
		there, back := MovedShare(a, was, b, is), MovedShare(b, is, a, was)
		if there != back || there < 0 || there > 1 || MovedShare(a, was, a, was) != 0 {
			t.Fatalf("%v there, %v back", there, back)
		}
	})
}

// TestHomesAreThoseOfTheRing, for any members and number of points.
func TestHomesAreThoseOfTheRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := membersOf(rapid.SliceOfN(rapid.IntRange(0, 9), 0, 40).Draw(t, "weights")...)
		if len(members) > 0 && rapid.Bool().Draw(t, "heavy") {
			members[0].Weight = maxWeight
		}
		units := rapid.IntRange(1, 300).Draw(t, "units")
		h := newHomes(members, units, 0)
		var ws []View
		for i, m := range h.members {
			ws = append(ws, View{ID: m.ID, Index: i, Weight: m.Weight})
		}
		g, got := newRing(units), h.find()
		if !g.update(time.Time{}, ws) {
			if got != [movedKeys]string{} {
				t.Fatal("there are homes without members")
			}
			return
		}
		for key, home := range got {
			if s, _ := g.next(g.first(Mix(uint64(key) + 1))); s.id != home {
				t.Fatalf("the home of key %d is %q, on the ring %q", key, home, s.id)
			}
		}
	})
}
