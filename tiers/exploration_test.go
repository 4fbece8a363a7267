package tiers

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Draws of an Exploration of share 1: the lowest bit selects the tier.
const (
	drawFirst = 2
	drawLast  = 3
)

// TestOnlyRequestsThatCanGetBothTiersAreExplored: every other request gets the tier of the rules.
func TestOnlyRequestsThatCanGetBothTiersAreExplored(t *testing.T) {
	first, last := Exploration{Share: 1, Rand: drawFirst}, Exploration{Share: 1, Rand: drawLast}
	k := classes(t, Config{})
	hello := func() *ClassifierInput { return &ClassifierInput{Now: start(), User: says("hello"), Session: 1} }
	but := func(name string) func(string) bool { return func(tier string) bool { return tier != name } }
	inChat := NewChats(10)
	inChat.remember(hello(), k.targets[k.byName["small"]].hash)
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"to the last tier":   {Query{Explore: last}, "large l exploration default selected small"},
		"to the same tier":   {Query{Explore: first}, "small s exploration default selected small"},
		"by an alias":        {Query{Model: "best", Explore: last}, "large l exploration default selected small"},
		"in a new chat":      {Query{Chats: NewChats(1), Explore: last}, "large l exploration default selected small"},
		"share 0":            {Query{Explore: Exploration{}}, "small s default"},
		"beyond the share":   {Query{Explore: Exploration{Share: 0.5, Rand: math.MaxUint64}}, "small s default"},
		"a named tier":       {Query{Model: "small", Explore: last}, "small s model"},
		"an alias of a tier": {Query{Model: "mini", Explore: last}, "small s alias"},
		"X-Model-Tier":       {Query{Header: "small", Explore: last}, "small s header"},
		"in a known chat":    {Query{Chats: inChat, Explore: last}, "small s default"},
		"last not allowed":   {Query{Allowed: but("large"), Explore: first}, "small s default"},
		"first not allowed":  {Query{Allowed: but("small"), Explore: last}, "medium m clamped default selected small"},
		"last too small":     {Query{Fits: but("large"), Explore: first}, "small s default"},
		"first too small":    {Query{Fits: but("small"), Explore: last}, "medium m context default selected small"},
		"last down":          {Query{Available: but("large"), Explore: first}, "small s default"},
		"last blocked": {Query{Explore: first, Blocked: func(tier string) string {
			return map[string]string{"large": "has only workers in backoff"}[tier]
		}}, "small s default"},
		"recorded":          {Query{Explore: Exploration{Tier: "large"}}, "large l exploration default selected small"},
		"recorded, removed": {Query{Explore: Exploration{Tier: "huge"}}, "small s default"},
		"recorded, a pool":  {Query{Explore: Exploration{Tier: "embed"}}, "small s default"},
	} {
		c.q.Input = hello()
		if got := outcome(k.Resolve(c.q)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestOneTierIsNotExplored: there is nothing to learn.
func TestOneTierIsNotExplored(t *testing.T) {
	k, err := New(Config{Targets: []Target{{Name: "only", Tier: true, Model: "m"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Explore: Exploration{Share: 1, Rand: drawLast}, Input: &ClassifierInput{}}
	if got := outcome(k.Resolve(q)); got != "only m default" {
		t.Error(got)
	}
}

// TestExploredRequestsAreARandomSample: their share is as configured, and their tier does not depend on the request.
func TestExploredRequestsAreARandomSample(t *testing.T) {
	const n, share = 200_000, 0.05
	k, source := classes(t, Config{}), rand.New(rand.NewPCG(1, 2))
	counts := map[[2]string]int{} // by the tier of the rules and the tier of the request
	for range n {
		selected, text := "small", "hello"
		if source.IntN(4) == 0 {
			selected, text = "large", "prove it"
		}
		v, err := k.Resolve(Query{Explore: Exploration{Share: share, Rand: source.Uint64()},
			Input: &ClassifierInput{User: says(text)}})
		if err != nil {
			t.Fatal(err)
		}
		if v.Rule == RuleExploration {
			counts[[2]string{selected, v.Target}]++
		} else if v.Target != selected {
			t.Fatalf("the rules select %s, not %s", v.Target, selected)
		}
	}
	for selected, of := range map[string]float64{"small": 0.75, "large": 0.25} {
		for _, tier := range []string{"small", "large"} {
			want := n * share * of * Propensity
			if got := float64(counts[[2]string{selected, tier}]); math.Abs(got-want) > 4*math.Sqrt(want) {
				t.Errorf("of the requests for %s, %v are explored at %s, want about %v", selected, got, tier, want)
			}
		}
	}
}

// TestExploredChatStaysAtItsTier: the next turn does not move to a lower tier, and the score is that of the rules.
func TestExploredChatStaysAtItsTier(t *testing.T) {
	k, chats := catalogOf(t, Rules{Preset: "graded"}), NewChats(10)
	var explored, plain PendingScore
	var moves []Move
	first := ClassifierInput{Now: start(), User: says("hello"), Turns: []uint64{1}}
	q := Query{Input: &first, Chats: chats, Recent: NewRecentScores(1), Pending: &explored, Moves: &moves,
		Explore: Exploration{Share: 1, Rand: drawLast}}
	if v, err := k.Resolve(q); err != nil || v.Target != "large" || v.Rule != RuleExploration {
		t.Fatal(v, err)
	}
	if want := []Move{{Tier: "small", Rule: "default", By: RuleExploration}}; !slices.Equal(moves, want) {
		t.Errorf("moves %v, want %v", moves, want)
	}
	next := ClassifierInput{Now: start(), User: says("and now?"), Turns: []uint64{1, 2, 3}}
	q.Input, q.Explore.Rand = &next, drawFirst
	if v, err := k.Resolve(q); err != nil || v.Target != "large" || v.Rule != "sticky" {
		t.Errorf("the next turn: %+v, %v", v, err)
	}
	again := first
	if _, err := k.Resolve(Query{Input: &again, Recent: NewRecentScores(1), Pending: &plain}); err != nil {
		t.Fatal(err)
	}
	q.Input, q.Chats = &first, nil
	if _, err := k.Resolve(q); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, explored, cmp.AllowUnexported(PendingScore{}, windowKey{})); diff != "" {
		t.Errorf("the score of an explored request (-plain +explored):\n%s", diff)
	}
}
