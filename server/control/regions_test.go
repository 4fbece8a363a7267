package control

import (
	"slices"
	"testing"
	"time"

	"tierway/config"
	"tierway/workers"
)

// regionsOf returns the regions of a pool with one worker in each.
func regionsOf(f *config.File, names ...string) *regions {
	var p config.Pool
	for _, name := range names {
		p.Workers = append(p.Workers, workers.Spec{Config: workers.Config{Region: name}})
	}
	return newRegions(f, p)
}

// hashesOf returns the hashes of region names.
func hashesOf(names ...string) (all []uint64) {
	for _, name := range names {
		all = append(all, NameHash(name))
	}
	return all
}

func TestOrderOfRegions(t *testing.T) {
	f := &config.File{Region: "west", Regions: config.Regions{Order: map[string][]string{"west": {"eu", "gone"},
		"asia": {"east"}}}}
	rs := regionsOf(f, "east", "west", "eu", "", "south")
	for region, want := range map[string][]string{
		"west":    {"west", "eu", "east", "south"},
		"east":    {"east", "west", "eu", "south"},
		"asia":    {"east", "west", "eu", "south"}, // without workers
		"unknown": {"west", "eu", "east", "south"}, // as the gateway's
		"":        {"west", "eu", "east", "south"},
	} {
		if got := rs.order(region); !slices.Equal(got, hashesOf(want...)) {
			t.Errorf("for %q the order is not %v", region, want)
		}
	}
	if rs := regionsOf(f, "", ""); rs != nil || rs.order("west") != nil {
		t.Error("workers without a region have an order")
	}
	if got := regionsOf(&config.File{}, "east", "west").order("unknown"); got != nil {
		t.Error("a request without a region has an order")
	}
}

// TestRegionsFollowMeasuredLatency, with a margin, so that jitter does not move prompts. A region without a
// measurement stays in its place.
func TestRegionsFollowMeasuredLatency(t *testing.T) {
	rs := regionsOf(&config.File{Region: "own"}, "a", "b", "c")
	for _, step := range []struct {
		a, b, c time.Duration
		want    []string
	}{
		{0, 0, 0, []string{"a", "b", "c"}},
		{90, 60, 30, []string{"c", "b", "a"}},
		{90, 60, 70, []string{"c", "b", "a"}}, // b is not clearly nearer than c
		{90, 60, 80, []string{"b", "c", "a"}},
		{90, 0, 80, []string{"b", "c", "a"}},
		{9, 60, 80, []string{"a", "b", "c"}},
		{1, 60, 80, []string{"a", "b", "c"}},
		{1, 60, 0, []string{"a", "b", "c"}},
	} {
		rs.measure(func(region string) time.Duration {
			return map[string]time.Duration{"a": step.a, "b": step.b, "c": step.c}[region] * time.Millisecond
		})
		if got := rs.order("own"); !slices.Equal(got, hashesOf(step.want...)) {
			t.Errorf("at %d, %d and %d ms the order is %v, not %v", step.a, step.b, step.c, rs.byLatency, step.want)
		}
	}
	rs = regionsOf(&config.File{Region: "own"}, "a", "b")
	rs.measure(func(region string) time.Duration { return map[string]time.Duration{"a": 2e6, "b": 5e5}[region] })
	if rs.byLatency[0] != "a" {
		t.Error("a difference of 1.5 ms changes the order")
	}
}
