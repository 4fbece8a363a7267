package tiers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func keywordRules(groups ...Keyword) Rules {
	return Rules{Preset: "none", Keywords: groups}
}

func codeGroup(match ...string) Keyword { return Keyword{Tier: "large", Name: "code", Match: match} }

func catalogOf(t testing.TB, r Rules) *Catalog {
	t.Helper()
	c := Config{Rules: r}
	for _, name := range three() {
		c.Targets = append(c.Targets, Target{Name: name, Tier: true, Model: name + "-model"})
	}
	k, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestRecordResolvesLikeItsText(t *testing.T) {
	k := catalogOf(t,
		keywordRules(codeGroup("panic"), Keyword{Tier: "medium", Name: "sums", Match: []string{"integral"},
			In: []string{"user", "system"}}))
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"hello", "panic", "integral", "panic integral", strings.Repeat("long ", 500)})
		user, system := word.Draw(t, "user"), word.Draw(t, "system")
		f := ClassifierInput{Now: time.Unix(1000, 0), PromptTokens: rapid.Int64Range(0, 40_000).Draw(t, "prompt"),
			MaxTokens: rapid.Int64Range(0, 5000).Draw(t, "max"),
			Tools:     rapid.Bool().Draw(t, "tools"), LimitRequired: rapid.Bool().Draw(t, "required"),
			User: says(user), System: says(system), Count: func() (int64, bool) { return 4001, true }}
		var e Evidence
		q := Query{Model: rapid.SampledFrom([]string{"auto", "", "medium", "large-model"}).Draw(t, "model"),
			Header: rapid.SampledFrom([]string{"", "large", "other"}).Draw(t, "header"), Input: &f, Evidence: &e}
		want, wantErr := k.Resolve(q)
		left := ClassifierInput{Now: f.Now, PromptTokens: f.PromptTokens, MaxTokens: f.MaxTokens, Tools: f.Tools,
			LimitRequired: f.LimitRequired}
		q.Input, q.Evidence = &left, nil
		got, missing, err := k.ResolveRecorded(q, &e, nil)
		if got != want || missing != MissingNothing || (err == nil) != (wantErr == nil) {
			t.Fatalf("of the record %+v: %+v, missing %q, %v; the text went to %+v, %v", e, got, missing, err, want, wantErr)
		}
	})
}

// keywordsUnless returns that keywords are missing, unless the target is known.
func keywordsUnless(known bool) Missing {
	if known {
		return MissingNothing
	}
	return MissingKeywords
}

func TestUnknownGroupsOfARecordAreReported(t *testing.T) {
	made := catalogOf(t, keywordRules(codeGroup("panic")))
	for name, c := range map[string]struct {
		rules  Rules
		was    Evidence
		tokens int64
		groups []string
		target string
		known  bool
	}{
		"the same group": {keywordRules(codeGroup("panic")),
			Evidence{Classified: true, Groups: []string{"code"}}, 10, nil, "large", true},
		"its weight plays no part": {keywordRules(Keyword{Tier: "large", Name: "code", Weight: 3,
			Match: []string{"panic"}}), Evidence{Classified: true}, 10, nil, "small", true},
		"another tier of the same group": {keywordRules(Keyword{Tier: "medium", Name: "code", Match: []string{"panic"}}),
			Evidence{Classified: true, Groups: []string{"code"}}, 10, nil, "medium", true},
		"other expressions": {keywordRules(codeGroup("panic", "goto")),
			Evidence{Classified: true, Groups: []string{"code"}}, 10, []string{"code"}, "small", false},
		"another place": {keywordRules(Keyword{Tier: "large", Name: "code", In: []string{"system"},
			Match: []string{"panic"}}), Evidence{Classified: true}, 10, []string{"code"}, "small", false},
		"a new group": {keywordRules(codeGroup("panic"),
			Keyword{Tier: "medium", Name: "law", Match: []string{"court"}}), Evidence{Classified: true}, 10, []string{"law"},
			"small", false},
		"a new group that changes nothing": {keywordRules(codeGroup("panic"),
			Keyword{Tier: "medium", Name: "law", Match: []string{"court"}}),
			Evidence{Classified: true, Groups: []string{"code"}}, 10, []string{"law"}, "large", true},
		"a long prompt, whatever the group": {keywordRules(codeGroup("panic", "goto")), Evidence{Classified: true}, 90_000,
			[]string{"code"}, "large", true},
		"no group left": {keywordRules(), Evidence{Classified: true, Groups: []string{"code"}}, 10, nil,
			"small", true},
		"never classified":                    {keywordRules(codeGroup("panic")), Evidence{}, 10, nil, "small", false},
		"never classified, and nothing to be": {keywordRules(), Evidence{}, 10, nil, "small", true},
	} {
		k := catalogOf(t, c.rules)
		groups := k.Classifier().NewGroups(made.Classifier())
		v, missing, err := k.ResolveRecorded(Query{Input: &ClassifierInput{PromptTokens: c.tokens}}, &c.was, groups)
		if err != nil || v.Target != c.target || missing != keywordsUnless(c.known) || !slices.Equal(groups, c.groups) {
			t.Errorf("%s: to %q, missing %q, groups %q, error %v; want %q, %v, %q", name, v.Target, missing, groups, err,
				c.target, c.known, c.groups)
		}
	}
}

func TestRecordedChatStaysAtItsTier(t *testing.T) {
	k, chats := catalogOf(t, keywordRules(codeGroup("panic"))), NewChats(MaxChats)
	for i, c := range []struct {
		was   Evidence
		want  string
		known bool
	}{
		{Evidence{Classified: true}, "small", true},
		{Evidence{}, "small", false}, // asking what it might have matched is remembered by no chat
		{Evidence{Classified: true}, "small", true},
		{Evidence{Classified: true, Groups: []string{"code"}}, "large", true},
		{Evidence{Classified: true}, "large", true},
		{Evidence{}, "large", true}, // regardless of the matched groups
	} {
		f := &ClassifierInput{Now: time.Unix(int64(1000+i), 0), Session: 7}
		v, missing, err := k.ResolveRecorded(Query{Input: f, Chats: chats}, &c.was, nil)
		if err != nil || v.Target != c.want || missing != keywordsUnless(c.known) {
			t.Errorf("turn %d: to %q, missing %q, %v; want %s, %v", i, v.Target, missing, err, c.want, c.known)
		}
	}
}

func TestRecordedCountReplacesTheEstimate(t *testing.T) {
	k := catalogOf(t, keywordRules())
	f := &ClassifierInput{Now: time.Unix(9999, 0), PromptTokens: 4100}
	asked := false
	f.Count = func() (int64, bool) { asked = true; return 1, true }
	if v, _, err := k.ResolveRecorded(Query{Input: f}, &Evidence{Classified: true, Counted: 3900}, nil); err != nil ||
		v.Target != "small" || asked {
		t.Errorf("a recorded count: to %q, asked again %v, %v", v.Target, asked, err)
	}
	if _, _, err := k.ResolveRecorded(Query{Input: f}, &Evidence{Classified: true}, nil); err != nil || !asked {
		t.Errorf("without a recorded count: asked %v, %v", asked, err)
	}
}
