package tiers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// classes returns a catalog of three tiers with keywords.
func classes(t testing.TB, c Config) *Catalog {
	t.Helper()
	c.Targets = []Target{
		{Name: "small", Tier: true, Model: "s"}, {Name: "medium", Tier: true, Model: "m"},
		{Name: "large", Tier: true, Model: "l"},
		{Name: "embed", Models: []string{"bge"}},
	}
	c.Aliases = toOne(map[string]string{"mini": "small", "vectors": "embed", "best": "classify"})
	w := words()
	c.Rules.Preset, c.Rules.Keywords, c.Rules.KeywordScore = w.Preset, w.Keywords, w.KeywordScore
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// outcome formats the result of Resolve as target, model, rule and note, or as the error.
func outcome(v Resolution, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(strings.Join([]string{v.Target, v.Model, v.Rule, v.Note}, " "))
}

func TestEachRuleIsNamed(t *testing.T) {
	prove := &ClassifierInput{Now: start(), User: says("prove it"), Session: 1}
	hello := &ClassifierInput{Now: start(), User: says("hello"), Session: 1}
	chat := func(tier string) *Chats {
		chats, k := NewChats(10), classes(t, Config{})
		chats.remember(hello, k.targets[k.byName[tier]].hash)
		return chats
	}
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"default":          {Query{Input: hello}, "small s default"},
		"without features": {Query{Model: "auto"}, "small s default"},
		"prompt_tokens":    {Query{Input: &ClassifierInput{PromptTokens: 9000}}, "medium m prompt_tokens"},
		"max_tokens":       {Query{Model: "best", Input: &ClassifierInput{MaxTokens: 3000}}, "large l max_tokens"},
		"max_tokens, a bound": {Query{Model: "best", Input: &ClassifierInput{MaxTokens: 9000}},
			"small s default max_tokens not counted: so high a value is a ceiling"},
		"keyword":             {Query{Model: "auto", Input: prove}, "large l keyword:reasoning"},
		"model":               {Query{Model: "small", Input: prove}, "small s model"},
		"alias":               {Query{Model: "mini", Input: prove}, "small s alias"},
		"header":              {Query{Header: "Medium", Input: prove}, "medium m header"},
		"unknown header":      {Query{Header: "huge", Input: prove}, "large l keyword:reasoning " + NoteUnknownHeader},
		"sticky":              {Query{Input: hello, Chats: chat("medium")}, "medium m sticky default selected small"},
		"sticky, rises":       {Query{Input: prove, Chats: chat("medium")}, "large l keyword:reasoning"},
		"sticky, the same":    {Query{Input: hello, Chats: chat("small")}, "small s default"},
		"sticky, not by name": {Query{Model: "small", Input: hello, Chats: chat("large")}, "small s model"},
		"sticky, not header":  {Query{Header: "small", Input: hello, Chats: chat("large")}, "small s header"},
		"sticky, clamped": {Query{Input: hello, Chats: chat("large"), Allowed: only("small", "medium")},
			"medium m clamped default selected small; sticky selected large"},
		"clamped": {Query{Input: prove, Allowed: only("small")},
			"small s clamped keyword:reasoning selected large"},
		"clamped up":     {Query{Input: hello, Allowed: only("large")}, "large l clamped default selected small"},
		"clamped header": {Query{Header: "large", Allowed: only("medium")}, "medium m clamped header selected large"},
		"context": {Query{Input: hello, Fits: only("medium", "large")},
			"medium m context default selected small"},
		"context, next fits": {Query{Model: "mini", Fits: only("large")}, "large l context alias selected small"},
		"context, next may": {Query{Model: "small", Fits: only("medium", "large"), Allowed: only("small", "large")},
			"large l context model selected small"},
		"context, by header": {Query{Model: "s", Header: "small", Fits: only("medium")},
			"medium m context header selected small"},
		"context, never down": {Query{Model: "large", Fits: only("medium", "small")},
			`prompt too long for the context of "large"`},
		"context, none allowed": {Query{Input: hello, Fits: only("large"), Allowed: only("small", "medium")},
			`prompt too long for the context of "small"`},
		"context, no name": {Query{Model: "small", Fits: only("large"), AllowedModel: only("small")},
			`prompt too long for the context of "small"`},
		"context, auto": {Query{Model: "auto", Fits: only("large"), AllowedModel: only("auto")},
			"large l context default selected small"},
		"context, pinned": {Query{Model: "s", Fits: only("large")}, `prompt too long for the context of "small"`},
		"context, a pool": {Query{Model: "vectors", Fits: only("large")}, `prompt too long for the context of "embed"`},
		"clamped, context": {Query{Input: prove, Allowed: only("small", "medium"), Fits: only("large")},
			`prompt too long for the context of "medium"`},
		"unavailable": {Query{Input: hello, Available: only("large")},
			"large l unavailable default selected small"},
		"unavailable, down": {Query{Model: "large", Available: only("small", "medium")},
			"medium m unavailable model selected large"},
		"unavailable, fits": {Query{Model: "small", Available: only("medium", "large"), Fits: only("small", "large")},
			"large l unavailable model selected small"},
		"unavailable, none up": {Query{Model: "mini", Available: only()}, "small s alias"},
		"unavailable, nowhere": {Query{Model: "mini", Allowed: only("small"), Available: only("large")}, "small s alias"},
		"unavailable, pinned":  {Query{Model: "s", Available: only("large")}, "small s model"},
		"unavailable, a pool":  {Query{Model: "vectors", Available: only("large")}, "embed bge alias"},
		"context, unavailable": {Query{Model: "small", Fits: only("medium", "large"), Available: only("small", "large")},
			"large l unavailable model selected small; context to medium"},
		"clamped, unavailable": {Query{Input: prove, Allowed: only("small", "medium"), Available: only("small")},
			"small s unavailable keyword:reasoning selected large; clamped to medium"},
	} {
		if got := outcome(classes(t, Config{}).Resolve(c.q)); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
}

func TestRequestOfAnUnavailableTierMovesAsConfigured(t *testing.T) {
	for way, want := range map[string]string{"": "large", "up": "large", "down": "small", "refuse": "medium"} {
		k := classes(t, Config{Rules: Rules{Unavailable: way}})
		if v, err := k.Resolve(Query{Model: "medium", Available: only("small", "large")}); err != nil || v.Target != want {
			t.Errorf("%q: %+v, %v, want %s", way, v, err, want)
		}
	}
	k := classes(t, Config{Rules: Rules{Unavailable: "down"}})
	if v, err := k.Resolve(Query{Model: "small", Available: only("large")}); err != nil || v.Target != "large" {
		t.Errorf("no tier below: %+v, %v", v, err)
	}
}

// TestPromptTooLongForAllTiersMovesToTheLargest of those that it may use.
func TestPromptTooLongForAllTiersMovesToTheLargest(t *testing.T) {
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"named": {Query{Model: "medium", Fits: only()}, "large l context model selected medium"},
		"allowed": {Query{Model: "small", Fits: only(), Allowed: only("small", "medium")},
			"medium m context model selected small"},
		"pinned":  {Query{Model: "s", Fits: only()}, "small s model"},
		"highest": {Query{Model: "large", Fits: only()}, "large l model"},
	} {
		v, err := classes(t, Config{}).Resolve(c.q)
		if got := outcome(v, nil); !errors.Is(err, ErrTooLong) || got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

// TestChatIsRememberedAtItsTierBeforeAnUnavailableMove: not at the tier where it went while its
// own had no worker up.
func TestChatIsRememberedAtItsTierBeforeAnUnavailableMove(t *testing.T) {
	k, chats := classes(t, Config{}), NewChats(10)
	f := func() *ClassifierInput { return &ClassifierInput{Now: time.Unix(1, 0), Session: 1} }
	if v, err := k.Resolve(Query{Model: "auto", Input: f(), Chats: chats, Available: only("large")}); err != nil ||
		v.Target != "large" {
		t.Fatalf("%+v, %v", v, err)
	}
	if v, err := k.Resolve(Query{Model: "auto", Input: f(), Chats: chats}); err != nil || v.Target == "large" {
		t.Errorf("it stays where it was moved: %+v, %v", v, err)
	}
}

func TestOnlyRequestsThatLeaveTheChoiceAreClassified(t *testing.T) {
	for name, c := range map[string]struct {
		q    Query
		want bool
	}{
		"auto": {Query{Model: "auto"}, true}, "no name": {Query{}, true},
		"an alias of classify": {Query{Model: "best"}, true}, "an unknown header": {Query{Header: "x"}, true},
		"a header": {Query{Model: "auto", Header: "small"}, false}, "a tier": {Query{Model: "small"}, false},
		"a model":  {Query{Model: "s"}, false},
		"an alias": {Query{Model: "mini"}, false}, "a pool": {Query{Model: "bge"}, false},
		"no way": {Query{Model: "auto", AllowedModel: only("mini")}, false},
	} {
		read := false
		c.q.Input = &ClassifierInput{Now: start(), Session: 5, User: func() []byte { read = true; return nil }}
		chats := NewChats(1)
		var explained ClassifierReport
		c.q.Chats, c.q.Report = chats.ReadOnly(), &explained
		_, _ = classes(t, Config{}).Resolve(c.q)
		if read != c.want || (explained.Rule != "") != c.want {
			t.Errorf("%s: read %v, explained %v, want %v", name, read, explained, c.want)
		}
		if c.q.Chats.Len() != 0 {
			t.Errorf("%s: explaining changed the chats", name)
		}
		c.q.Chats, c.q.Report = chats, nil
		if _, _ = classes(t, Config{}).Resolve(c.q); (c.q.Chats.Len() == 1) != c.want {
			t.Errorf("%s: %d chats", name, c.q.Chats.Len())
		}
	}
}

func TestExplanationNamesTheChatsTier(t *testing.T) {
	k, chats := classes(t, Config{}), NewChats(1)
	f := &ClassifierInput{Now: start(), Session: 1, User: says("prove")}
	if _, err := k.Resolve(Query{Input: f, Chats: chats}); err != nil {
		t.Fatal(err)
	}
	f.User = says("hello")
	var explained ClassifierReport
	v, err := k.Resolve(Query{Input: f, Chats: chats.ReadOnly(), Report: &explained})
	if err != nil || v.Rule != "sticky" || explained.Tier != "small" || explained.Rule != "default" {
		t.Fatalf("%+v, %v, %+v", v, err, explained)
	}
	if last := explained.Signals[len(explained.Signals)-1]; last.Rule != "sticky" || last.Tier != "large" {
		t.Errorf("%+v", last)
	}
}

func TestChatStaysAtItsLastTier(t *testing.T) {
	off := false
	for name, c := range map[string]struct {
		sticky Sticky
		first  Query
		after  time.Duration
		want   string
	}{
		"within":    {Sticky{}, Query{}, 30 * time.Minute, "large sticky"},
		"after":     {Sticky{}, Query{}, 30*time.Minute + 1, "small default"},
		"shorter":   {Sticky{Idle: time.Minute}, Query{}, time.Minute + 1, "small default"},
		"off":       {Sticky{Enabled: &off}, Query{}, 0, "small default"},
		"clamped":   {Sticky{}, Query{Allowed: only("small", "medium")}, 0, "medium sticky"},
		"moved":     {Sticky{}, Query{Available: only("medium")}, 0, "large sticky"},
		"not taken": {Sticky{}, Query{Fits: only()}, 0, "small default"},
	} {
		k, chats := classes(t, Config{Rules: Rules{Sticky: c.sticky}}), NewChats(10)
		c.first.Chats, c.first.Input = chats, &ClassifierInput{Now: start(), Turns: []uint64{1}, User: says("prove")}
		_, _ = k.Resolve(c.first)
		v, err := k.Resolve(Query{Chats: chats, Input: &ClassifierInput{Now: start().Add(c.after), Turns: []uint64{1, 2, 3},
			User: says("thanks")}})
		if got := v.Target + " " + v.Rule; err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
}

func TestReloadKeepsAChatAtItsTierByName(t *testing.T) {
	chats, f := NewChats(10), &ClassifierInput{Now: start(), Session: 1, User: says("prove")}
	if _, err := classes(t, Config{}).Resolve(Query{Input: f, Chats: chats}); err != nil {
		t.Fatal(err)
	}
	f.User = says("thanks")
	for want, names := range map[string][]string{"large sticky": {"tiny", "large", "huge"},
		"tiny default": {"tiny", "huge"}} {
		var c Config
		for _, name := range names {
			c.Targets = append(c.Targets, Target{Name: name, Tier: true})
		}
		k, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := k.Resolve(Query{Input: f, Chats: chats.ReadOnly()}); err != nil || v.Target+" "+v.Rule != want {
			t.Errorf("%v: %+v, %v, want %s", names, v, err, want)
		}
	}
}

// drawUse returns a query with everything that can move a request.
func drawUse(rt *rapid.T) Query {
	some := func(label string) func(string) bool {
		if !rapid.Bool().Draw(rt, label) {
			return nil
		}
		return only(rapid.SliceOf(rapid.SampledFrom([]string{"small", "medium", "large", "embed"})).Draw(rt,
			label+" names")...)
	}
	q := Query{
		Model: rapid.SampledFrom([]string{"", "auto", "best", "small", "large", "s", "m", "mini", "bge", "vectors"}).Draw(rt,
			"model"),
		Header: rapid.SampledFrom([]string{"", "", "small", "large", "x"}).Draw(rt, "header"),
		Input: &ClassifierInput{Now: start(), Session: 1, PromptTokens: rapid.Int64Range(0, 30000).Draw(rt, "prompt"),
			MaxTokens: rapid.Int64Range(0, 3000).Draw(rt, "max"),
			User:      says(rapid.SampledFrom([]string{"", "prove", "compare", "email"}).Draw(rt, "text"))},
		Allowed: some("allowed"), Fits: some("fits"), Available: some("available"),
	}
	if rapid.Bool().Draw(rt, "by name") {
		q.AllowedModel = only(q.Model, rapid.SampledFrom([]string{"small", "large", "m"}).Draw(rt, "another name"))
	}
	return q
}

func TestMovesNeverReachAForbiddenTarget(t *testing.T) {
	unavailable := rapid.SampledFrom([]string{"up", "down", "refuse"})
	rapid.Check(t, func(rt *rapid.T) {
		k := classes(t, Config{Rules: Rules{Unavailable: unavailable.Draw(rt, "unavailable")}})
		q := drawUse(rt)
		v, err := k.Resolve(q)
		if errors.Is(err, ErrUnknownModel) {
			return
		}
		if !permits(q.Allowed, v.Target) {
			rt.Errorf("%+v was returned", v)
		}
		if err != nil {
			if permits(q.Fits, v.Target) {
				rt.Errorf("refused a prompt that fits %s: %v", v.Target, err)
			}
			return
		}
		at := k.byName[v.Target]
		if !permits(q.Fits, v.Target) || v.Model != k.targets[at].workerModel() {
			rt.Errorf("does not fit, or uses another tier's model: %+v", v)
		}
		if v.Pinned && (v.Model != q.Model || v.Rule != "model") {
			rt.Errorf("a pinned request moved: %+v", v)
		}
		if moved := v.Rule == "clamped" || v.Rule == "context" || v.Rule == "unavailable"; moved &&
			!strings.Contains(v.Note, " selected ") {
			rt.Errorf("the note lacks the overridden tier: %+v", v)
		}
		free := q.Model == "" || q.Model == "auto" || q.Model == "best"
		named := q.AllowedModel == nil || slices.ContainsFunc(k.targets[at].leads, q.AllowedModel)
		if !free && !named {
			rt.Errorf("a move led past the names of a tenant: %+v", v)
		}
	})
}

// TestChatInUseNeverMovesToALowerTier follows one chat while all tiers are available.
func TestChatInUseNeverMovesToALowerTier(t *testing.T) {
	k := classes(t, Config{})
	rapid.Check(t, func(rt *rapid.T) {
		chats, now, was := NewChats(100), start(), -1
		turns := []uint64{}
		for turn := range rapid.IntRange(2, 12).Draw(rt, "turns") {
			pause := time.Duration(rapid.Int64Range(0, int64(40*time.Minute)).Draw(rt, "pause"))
			now = now.Add(pause)
			turns = append(turns, uint64(2*turn+1), uint64(2*turn+2))
			f := ClassifierInput{Now: now, Turns: turns, PromptTokens: rapid.Int64Range(0, 20000).Draw(rt, "prompt")}
			v, err := k.Resolve(Query{Input: &f, Chats: chats})
			if err != nil {
				rt.Fatal(err)
			}
			class, at := k.classifier.Classify(&f).Tier, k.byName[v.Target]
			want := class
			if pause <= idle {
				want = max(class, was)
			}
			if at != want {
				rt.Fatalf("went to %d after %d and %v, class %d", at, was, pause, class)
			}
			was = at
		}
	})
}

func TestMistakesInRulesAndNamesAreReportedTogether(t *testing.T) {
	_, err := New(Config{
		Targets: []Target{{Name: "small", Tier: true}, {Name: "small", Tier: true}},
		Rules:   Rules{Default: "big", PromptTokens: map[string]int64{"big": 1}},
	})
	want := []string{"tiers[1].name: duplicate", "classifier.default: unknown tier",
		"classifier.prompt_tokens.big: unknown tier"}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != len(want) {
		t.Fatalf("got %v", err)
	}
	for i, err := range joined.Unwrap() {
		if !strings.HasPrefix(fmt.Sprint(err), want[i]) {
			t.Errorf("%v, want %s", err, want[i])
		}
	}
}

func TestClassifiesAgreesWithResolve(t *testing.T) {
	k := house(t)
	for _, c := range []struct {
		q    Query
		want bool
	}{
		{Query{Model: "auto"}, true}, {Query{}, true}, {Query{Model: "auto", Header: "nonsense"}, true},
		{Query{Model: "auto", Header: "small"}, false}, {Query{Model: "small"}, false}, {Query{Model: "unknown"}, false},
	} {
		if got := k.Classifies(c.q); got != c.want {
			t.Errorf("%+v: %t, want %t", c.q, got, c.want)
		}
	}
	if got := k.Default(); got != "medium" {
		t.Errorf("the default is %q", got)
	}
}

// TestEachMoveIsRecorded: each tier that a rule requested and another rule overrode, in order.
func TestEachMoveIsRecorded(t *testing.T) {
	k := classes(t, Config{})
	prove := &ClassifierInput{Now: start(), User: says("prove it")}
	var moves []Move
	v, err := k.Resolve(Query{Model: "best", Input: prove, Moves: &moves,
		Allowed:   func(target string) bool { return target != "large" },
		Available: func(target string) bool { return target != "medium" }})
	if err != nil {
		t.Fatal(err)
	}
	want := []Move{{Tier: "large", Rule: "keyword:reasoning", By: "clamped"},
		{Tier: "medium", Rule: "clamped", By: "unavailable"}}
	if v.Target != "small" || !slices.Equal(moves, want) {
		t.Errorf("it went to %s by %s, moved so: %+v, want %+v", v.Target, v.Rule, moves, want)
	}
}
