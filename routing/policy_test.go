package routing

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNewKnowsEveryName(t *testing.T) {
	for _, name := range Names() {
		p, err := New(Config{Name: name})
		if err != nil || p.Name() != name {
			t.Errorf("New(%q) = %v, %v", name, p, err)
		}
	}
	if p, err := New(Config{}); err != nil || p.Name() != "least_load" {
		t.Errorf("the default policy is %v, %v", p, err)
	}
	if !slices.IsSorted(Names()) {
		t.Errorf("names are not sorted: %v", Names())
	}
}

func TestErrorOfAnUnknownPolicyNamesAllPolicies(t *testing.T) {
	known := "(known: " + strings.Join(Names(), ", ") + ")"
	for _, name := range []string{"round-robin", "x", "least_load\x00"} {
		if _, err := New(Config{Name: name}); err == nil || !strings.Contains(err.Error(), known) {
			t.Errorf("New(%q): %v, want %s", name, err, known)
		}
	}
}

func TestLeastLoadTakesTheFewestTokensForEachUnitOfWeight(t *testing.T) {
	for name, c := range map[string]struct {
		ws   []View
		want int
	}{
		"fewest tokens":       {[]View{{Weight: 1, PendingTokens: 5}, {Weight: 1, PendingTokens: 4}}, 1},
		"both accounts count": {[]View{{Weight: 1, PendingTokens: 5}, {Weight: 1, PendingTokens: 1, OutputTokens: 5}}, 0},
		"weight divides":      {[]View{{Weight: 1, OutputTokens: 10}, {Weight: 3, OutputTokens: 29}}, 1},
		"then requests":       {[]View{{Weight: 1, Inflight: 3}, {Weight: 1, Inflight: 2}}, 1},
		"by weight as well":   {[]View{{Weight: 1, Inflight: 3}, {Weight: 4, Inflight: 8}}, 1},
		"tokens before": {[]View{{Weight: 1, Inflight: 9, OutputTokens: 1}, {Weight: 1, Inflight: 1, OutputTokens: 2}},
			0},
		"the middle one": {[]View{{Weight: 1, OutputTokens: 3}, {Weight: 1, OutputTokens: 1},
			{Weight: 1, OutputTokens: 2}}, 1},
	} {
		for rand := range uint64(7) {
			if got, reason := (leastLoad{}).Pick(&Request{Rand: rand}, c.ws); got != c.want || reason != ReasonLeastLoad {
				t.Errorf("%s: picked %d (%s), want %d", name, got, reason, c.want)
			}
		}
	}
}

func TestTiesAreSharedByWeight(t *testing.T) {
	// The first is no tie: it has more on it.
	ws := []View{{Weight: 9, OutputTokens: 9}, {Weight: 1}, {Weight: 3}, {Weight: 2}}
	got := make([]int, len(ws))
	for rand := range uint64(600) {
		i, _ := leastLoad{}.Pick(&Request{Rand: rand}, ws)
		got[i]++
	}
	if want := []int{0, 100, 300, 200}; !slices.Equal(got, want) {
		t.Errorf("600 ties went %v, want %v", got, want)
	}
}

func TestRoundRobinGivesEachItsTurnWhateverItsWeight(t *testing.T) {
	p, ws := &roundRobin{last: -1}, []View{{Index: 0, Weight: 100}, {Index: 1, Weight: 1},
		{Index: 2, Weight: 7, OutputTokens: 1e6}}
	for turn := range 9 {
		if i, reason := p.Pick(&Request{}, ws); i != turn%3 || reason != ReasonRoundRobin {
			t.Errorf("turn %d went to %d (%s)", turn, i, reason)
		}
	}
}

// Each other member is picked at most once before a worker that stays eligible, however often they
// come and go.
func TestRoundRobinStarvesNoStayingWorker(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "members")
		stays := rapid.IntRange(0, n-1).Draw(rt, "stays")
		p, waited := &roundRobin{last: -1}, 0
		for range 100 {
			var ws []View
			for i := range n {
				if i == stays || rapid.Bool().Draw(rt, "eligible") {
					ws = append(ws, View{Index: i, Weight: 1})
				}
			}
			if i, _ := p.Pick(&Request{}, ws); ws[i].Index == stays {
				waited = 0
			} else if waited++; waited >= n {
				rt.Fatalf("worker %d of %d was passed over %d times in a row", stays, n, waited)
			}
		}
	})
}
