package training

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// TestRequestsOfEachRouteAreDivided: copies of a request are on one side, and each side of a route has requests.
func TestRequestsOfEachRouteAreDivided(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := &Data{}
		at := epoch
		contents := map[uint32]map[uint64]int{}
		for range rapid.IntRange(1, 200).Draw(rt, "n") {
			at = at.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 100, 1 << 30}).Draw(rt, "seconds")) * time.Second)
			route := rapid.Uint32Range(0, 3).Draw(rt, "route")
			content := uint64(route)<<32 | rapid.Uint64Range(0, 30).Draw(rt, "content")
			d.rows = append(d.rows, row{time: at, route: route, content: content})
			if contents[route] == nil {
				contents[route] = map[uint64]int{}
			}
			contents[route][content]++
		}
		train, test := d.split()
		if len(train)+len(test) != len(d.rows) {
			rt.Fatalf("%d and %d of %d rows", len(train), len(test), len(d.rows))
		}
		side, n := map[uint64]int{}, map[uint32][2]int{}
		for k, rows := range [][]int{train, test} {
			for _, i := range rows {
				r := &d.rows[i]
				if before, ok := side[r.content]; ok && before != k {
					rt.Errorf("copies of a request of route %d are on both sides", r.route)
				}
				side[r.content] = k
				both := n[r.route]
				both[k]++
				n[r.route] = both
			}
		}
		for route, both := range n {
			if len(contents[route]) > 1 && min(both[0], both[1]) == 0 {
				rt.Errorf("route %d has %d requests in the training and %d held-out ones", route, both[0], both[1])
			}
		}
	})
}

// TestAQuarterIsHeldOut at all distributions of times.
func TestAQuarterIsHeldOut(t *testing.T) {
	farthest := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, timeOf := range map[string]func(i int) time.Time{
		"rising":         func(i int) time.Time { return epoch.Add(time.Duration(i) * time.Second) },
		"equal":          func(int) time.Time { return epoch },
		"newest outlier": func(i int) time.Time { return map[bool]time.Time{false: epoch, true: farthest}[i == 199] },
		"oldest outlier": func(i int) time.Time { return map[bool]time.Time{true: time.Time{}, false: epoch}[i == 0] },
		"span of 9,999 years": func(i int) time.Time {
			return map[bool]time.Time{true: {}, false: farthest.Add(time.Duration(i) * time.Hour)}[i == 0]
		},
		"a quarter": func(i int) time.Time { return epoch.Add(time.Duration(i/150) * time.Hour) },
	} {
		d := &Data{}
		for i := range 200 {
			d.rows = append(d.rows, row{time: timeOf(i), content: uint64(i) * 0x9e3779b97f4a7c15})
		}
		train, test := d.split()
		if len(test) != 50 || len(train) != 150 {
			t.Errorf("%s: %d rows are held out", name, len(test))
		}
		for _, i := range test {
			if (name == "rising" || name == "a quarter" || name == "span of 9,999 years") && i < 150 {
				t.Errorf("%s: row %d is held out", name, i)
			}
		}
	}
}

// TestGainsOfSingleLabelsHaveTheMeanOfPairs: the estimate is unbiased if the tier is selected at random.
func TestGainsOfSingleLabelsHaveTheMeanOfPairs(t *testing.T) {
	pairs := meanGain(traffic{n: 4000, pairs: true, hard: "x "}.data(t))
	single := meanGain(traffic{n: 4000, hard: "x "}.data(t))
	if math.Abs(pairs-single) > 0.05 || math.Abs(pairs-0.5) > 0.03 {
		t.Errorf("%v with pairs, %v with single labels", pairs, single)
	}
}

func meanGain(d *Data) (sum float64) {
	for _, g := range d.gains(d.all()) {
		sum += g / float64(d.Requests())
	}
	return sum
}

// labelsOf returns a random label.
func labelsOf(right bool) (l tierLabels) {
	l.add(1, right, true)
	return l
}

// TestGainsOfAMixture: 200 pairs have the gain 0.6, and 800 single labels 0.1.
func TestGainsOfAMixture(t *testing.T) {
	d := &Data{}
	for i := range 200 {
		d.rows = append(d.rows, row{tiers: [2]tierLabels{labelsOf(i%10 < 3), labelsOf(i%10 < 9)}})
	}
	for i := range 800 {
		r := row{route: 1}
		if i%2 == 0 {
			r.tiers[0] = labelsOf(i/2%10 < 5)
		} else {
			r.tiers[1] = labelsOf(i/2%10 < 6)
		}
		d.rows = append(d.rows, r)
	}
	gains := d.gains(d.all())
	for i, r := range d.rows[:200] {
		if want := r.tiers[1].all.right - r.tiers[0].all.right; gains[i] != want {
			t.Fatalf("pair %d has the gain %v, want %v", i, gains[i], want)
		}
	}
	if mean := meanGain(d); math.Abs(mean-0.2) > 1e-9 {
		t.Errorf("the mean is %v, want 0.2", mean)
	}
	d.rows = d.rows[:200]
	d.rows = append(d.rows, row{tiers: [2]tierLabels{1: labelsOf(true)}}, row{tiers: [2]tierLabels{1: labelsOf(false)}})
	if gains = d.gains(d.all()); math.Abs(gains[200]-0.7) > 1e-9 || math.Abs(gains[201]+0.3) > 1e-9 {
		t.Errorf("without single labels of the small tier the gains are %v", gains[200:])
	}
}

// TestOnlyRandomLabelsAreEvaluated: labels of users change neither the held-out requests nor their gains.
func TestOnlyRandomLabelsAreEvaluated(t *testing.T) {
	d := traffic{n: 600, pairs: true, hard: "zebra "}.data(t)
	for i := range d.rows {
		d.rows[i].tiers[0].add(MaxWeight, i%2 == 0, false)
		if i%3 == 0 {
			d.rows[i].tiers[1] = tierLabels{}
			d.rows[i].tiers[1].add(1, false, false)
		}
	}
	all := d.all()
	want := make([]float64, len(all))
	for i := range d.rows {
		if labels := d.rows[i].tiers; labels[1].random.weight > 0 {
			want[i] = labels[1].random.right - labels[0].random.right
		}
	}
	for i, gain := range d.gains(all) {
		if i%3 != 0 && gain != want[i] {
			t.Fatalf("request %d has the gain %v, want %v", i, gain, want[i])
		}
	}
	_, r, err := d.Train(pick())
	if err != nil || r.HeldOut < 140 || r.HeldOut > 160 || !r.Measured {
		t.Errorf("%v: %+v", err, r)
	}
}

func TestSidesOfTheEvaluationNeedDifferentRequests(t *testing.T) {
	for want, different := range map[string]int{
		"0 labels of the small and 0 of the large tier are held out, 20": 1,
		"5 different requests are held out, 20 are needed: label more d": 20,
	} {
		d := &Data{}
		for i := range 200 {
			small, large := i%2 == 0, true
			addExample(t, d, string(rune('a'+i%different)), Example{Time: epoch, Small: &small, Large: &large})
		}
		if m, r, err := d.Train(pick()); err != nil || m.Enabled || !strings.HasPrefix(r.Reason, want) {
			t.Errorf("%v: %+v", err, r)
		}
	}
}
