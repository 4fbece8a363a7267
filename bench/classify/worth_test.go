package main

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tierway/config"
	_ "tierway/fixedseed"
	"tierway/tiers"
)

func TestRoutingIsWorthWhatItGainsOverTheSameShareAtRandom(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		all                         []routed
		from                        int
		up, over, within, recovered float64
	}{
		// Half of the prompts with all of the gap; a random half has half of it.
		"perfect":         {[]routed{{2, 1, ""}, {1, 1, ""}, {0, 0, ""}, {0, 0, ""}}, 1, 0.5, 0.25, nan, 1},
		"the last tier":   {[]routed{{2, 1, ""}, {1, 1, ""}, {0, 0, ""}, {0, 0, ""}}, 2, 0.25, 0.125, nan, 0.5},
		"inverse":         {[]routed{{0, 1, ""}, {0, 1, ""}, {1, 0, ""}, {2, 0, ""}}, 1, 0.5, -0.25, nan, 0},
		"all":             {[]routed{{1, 3, ""}, {2, -1, ""}}, 1, 1, 0, nan, 1},
		"none":            {[]routed{{0, 3, ""}, {0, -1, ""}}, 1, 0, 0, nan, 0},
		"no gap":          {[]routed{{1, 1, ""}, {0, -1, ""}}, 1, 0.5, 0.5, nan, nan},
		"by topic only":   {[]routed{{1, 2, "a"}, {1, 4, "a"}, {0, 0, "b"}, {0, 0, "b"}}, 1, 0.5, 0.75, 0, 1},
		"inside a topic":  {[]routed{{1, 4, "a"}, {0, 0, "a"}, {1, 0, "b"}, {1, 0, "b"}}, 1, 0.75, 0.25, 0.5, 1},
		"against a topic": {[]routed{{0, 4, "a"}, {1, 0, "a"}, {1, 2, "b"}, {1, 2, "b"}}, 1, 0.75, -0.5, -0.5, 0.5},
	} {
		v := newSums(c.all, c.from).value(nil)
		if !near(v.up, c.up) || !near(v.over.Value, c.over) || !near(v.within.Value, c.within) ||
			!near(v.recovered, c.recovered) {
			t.Errorf("%s: %+v, want %v, %v, %v, %v", name, v, c.up, c.over, c.within, c.recovered)
		}
	}
}

func TestARoutedPromptThatCountsTwiceIsTwoPrompts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var once, copied []routed
		times := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 12).Draw(rt, "times")
		for _, n := range times {
			one := routed{rapid.IntRange(0, 2).Draw(rt, "tier"), float64(rapid.IntRange(-2, 4).Draw(rt, "gain")),
				rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "category")}
			once = append(once, one)
			for range n {
				copied = append(copied, one)
			}
		}
		if len(copied) == 0 {
			return
		}
		got, want := newSums(once, 1).value(times), newSums(copied, 1).value(nil)
		if !near(got.up, want.up) || !near(got.over.Value, want.over.Value) || !near(got.within.Value, want.within.Value) ||
			!near(got.recovered, want.recovered) {
			rt.Errorf("%+v with counts, %+v with copies", got, want)
		}
	})
}

func TestTheSameSeedDrawsTheSameIntervalOfRouting(t *testing.T) {
	var all []routed
	for i := range 60 {
		all = append(all, routed{i % 3, float64(i * 7 % 5), []string{"a", "b"}[i%2]})
	}
	first, again, other := valueOf(all, 1, 200, 1), valueOf(all, 1, 200, 1), valueOf(all, 1, 200, 2)
	if first != again || first.over == other.over {
		t.Errorf("%+v, then %+v; with another seed %+v", first, again, other)
	}
	if v := first.over; v.Low >= v.Value || v.Value >= v.High {
		t.Errorf("the interval is not around its value: %+v", v)
	}
}

// TestPromptsAreRoutedAsTheGatewayIsShipped has prompts for each tier and chats, before the shares start.
func TestPromptsAreRoutedAsTheGatewayIsShipped(t *testing.T) {
	g, err := newGateway("")
	if err != nil {
		t.Fatal(err)
	}
	g.recent = tiers.NewRecentScores(1)
	const code = "Write a function that sorts a list."
	for want, prompts := range [][]promptRow{
		{{text: "hi"}, {text: "Which one?\nA. this\nB. that"}, {text: "Thanks!", before: "hi"}, {text: "\"quoted\"\n\té"}},
		{{text: "Solve for x: 3x - 7 = 11"}, {text: strings.Repeat("plain words ", 1600)},
			{text: "Thanks!", before: "Solve for x: 3x - 7 = 11"}},
		{{text: code}, {text: strings.Repeat("plain words ", 6000)}, {text: "Thanks!", before: code}},
	} {
		for _, p := range prompts {
			if got, err := g.tier(p); err != nil || got != want {
				t.Errorf("%.40q after %.40q goes to tier %d, want %d: %v", p.text, p.before, got, want, err)
			}
		}
	}
}

// TestTheExampleConfigurationStatesTheDefaults, so that figures measured without a
// classifier section are those of config.yaml.
func TestTheExampleConfigurationStatesTheDefaults(t *testing.T) {
	text, err := os.ReadFile("../../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := config.Parse("config.yaml", text, func(string) (string, bool) {
		return strings.Repeat("0123456789abcdef", 4), true
	})
	if err != nil {
		t.Fatal(err)
	}
	want := tiers.DefaultRules(tierNames())
	got := f.Classifier
	got.Keywords = nil // an example of one's own
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-defaults +config.yaml:\n%s", diff)
	}
}
