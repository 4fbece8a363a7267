package tiers

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRequestLeavesATierThatLostItsWorkers, with each move in its record, and returns to it if the
// other tier loses its workers too.
func TestRequestLeavesATierThatLostItsWorkers(t *testing.T) {
	k := classes(t, Config{})
	var moves []Move
	q := Query{Model: "auto", Moves: &moves}
	v, err := k.Resolve(q)
	if err != nil || v.Target != "small" {
		t.Fatal(v, err)
	}
	for _, c := range []struct {
		up   []string
		want string
	}{
		{[]string{"medium", "large"}, "medium m unavailable default selected small"},
		{[]string{"large"}, "large l unavailable default selected small; unavailable selected medium"},
		{[]string{"small", "medium"},
			"small s unavailable default selected small; unavailable selected medium; unavailable selected large"},
	} {
		q.Available = only(c.up...)
		to, ok := k.MoveUnavailable(v, q)
		if got := outcome(to, nil); !ok || got != c.want {
			t.Fatalf("with %v up: %t, %s\nwant %s", c.up, ok, got, c.want)
		}
		v = to
	}
	want := []Move{{Tier: "small", Rule: "default", By: "unavailable"},
		{Tier: "medium", Rule: "unavailable", By: "unavailable"}, {Tier: "large", Rule: "unavailable", By: "unavailable"}}
	if !slices.Equal(moves, want) {
		t.Errorf("the moves are %+v", moves)
	}
}

// TestRequestStaysInATierWithoutWorkers if it may not leave it, or if no other tier can take it.
func TestRequestStaysInATierWithoutWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		rules Rules
		q     Query // at the resolution; then no tier but Available has a worker up
	}{
		"its tier is up":  {q: Query{Model: "small", Available: only("small", "medium")}},
		"refuse":          {rules: Rules{Unavailable: "refuse"}, q: Query{Model: "small", Available: only("medium")}},
		"a worker's name": {q: Query{Model: "s", Available: only("medium")}},
		"a pool":          {q: Query{Model: "vectors", Available: only("medium")}},
		"none is up":      {q: Query{Model: "small", Available: only()}},
		"permission":      {q: Query{Model: "small", Allowed: only("small"), Available: only("medium")}},
		"a model's name": {q: Query{Model: "small", Available: only("medium"),
			AllowedModel: func(name string) bool { return name == "small" }}},
		"context": {q: Query{Model: "small", Fits: only("small"), Available: only("medium")}},
	} {
		k := classes(t, Config{Rules: c.rules})
		available := c.q.Available
		c.q.Available = nil
		v, err := k.Resolve(c.q)
		if err != nil {
			t.Fatal(name, err)
		}
		c.q.Available = available
		if to, ok := k.MoveUnavailable(v, c.q); ok || to != v {
			t.Errorf("%s: it moves to %+v", name, to)
		}
	}
	k := listed(t)
	v, err := k.Resolve(Query{Model: "best"})
	if err != nil || v.list == nil || k.MovesIfUnavailable(&v) {
		t.Errorf("%+v, %v: a list does not replace the rule", v, err)
	}
}

// TestAliasOfAnAdapterKeepsItWhereItReturns: the model is that of the alias again.
func TestAliasOfAnAdapterKeepsItWhereItReturns(t *testing.T) {
	k, err := New(Config{Targets: []Target{
		{Name: "small", Tier: true, Model: "s", Models: []string{"s-lora"}}, {Name: "large", Tier: true, Model: "l"},
	}, Aliases: toOne(map[string]string{"mine": "s-lora"})})
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Model: "mine", Available: only("large")}
	v, err := k.Resolve(q)
	if err != nil || v.Model != "l" {
		t.Fatal(v, err)
	}
	q.Available = only("small")
	if v, ok := k.MoveUnavailable(v, q); !ok || v.Target != "small" || v.Model != "s-lora" {
		t.Errorf("%t, %+v", ok, v)
	}
}

// TestMovedRequestGetsTheTierOfANewRequest whatever is up, allowed and fits.
func TestMovedRequestGetsTheTierOfANewRequest(t *testing.T) {
	names := []string{"small", "medium", "large"}
	rapid.Check(t, func(rt *rapid.T) {
		some := func(label string) func(string) bool {
			return only(rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID).Draw(rt, label)...)
		}
		k := classes(t, Config{Rules: Rules{Unavailable: rapid.SampledFrom([]string{"up", "down"}).Draw(rt, "unavailable")}})
		q := Query{Model: rapid.SampledFrom([]string{"auto", "small", "medium", "large", "mini"}).Draw(rt, "model"),
			Header:  rapid.SampledFrom([]string{"", "small", "large"}).Draw(rt, "header"),
			Allowed: some("allowed"), Fits: some("fits"), Available: some("first")}
		v, err := k.Resolve(q)
		if err != nil {
			return
		}
		for range 3 {
			q.Available = some("later")
			to, ok := k.MoveUnavailable(v, q)
			fresh, err := k.Resolve(q)
			if err != nil && !errors.Is(err, ErrTooLong) {
				rt.Fatal(err)
			}
			switch {
			case ok && err != nil:
				rt.Fatalf("it moves to %+v, a new request gets %v", to, err)
			case err != nil: // the prompt fits no tier with a worker, and the request waits where it is
			case ok && (to.Target != fresh.Target || to.Model != fresh.Model || !to.Tier || to.Rule != "unavailable"):
				rt.Fatalf("it moves to %+v, a new request goes to %+v", to, fresh)
			case !ok && !q.Available(v.Target) && q.Available(fresh.Target) && fresh.Target != v.Target:
				rt.Fatalf("it stays at %+v, a new request goes to %+v", v, fresh)
			}
			v = to
		}
	})
}

// TestPromptThatIsTooLongLeavesATierWithoutWorkers for a lower tier with a larger context.
func TestPromptThatIsTooLongLeavesATierWithoutWorkers(t *testing.T) {
	k := classes(t, Config{})
	q := Query{Model: "large", Fits: only("small"), Available: only("small", "medium")}
	if got := outcome(k.Resolve(q)); got != "small s unavailable model selected large" {
		t.Errorf("without a worker in its tier: %s", got)
	}
	q.Available = only("small", "large")
	if v, err := k.Resolve(q); !errors.Is(err, ErrTooLong) || v.Target != "large" {
		t.Errorf("with a worker in its tier: %+v, %v", v, err)
	}
}
