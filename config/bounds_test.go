package config

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"tierway/routing"
	"tierway/tenants"
)

// TestProblemsAreBounded verifies that the problems of a file take memory in proportion to the file, however many
// names it has and however long they are. The file may be the draft of a viewer.
func TestProblemsAreBounded(t *testing.T) {
	long := strings.Repeat("n", 60)
	var manyTiers strings.Builder
	manyTiers.WriteString("tiers:\n")
	for i := range 1500 {
		fmt.Fprintf(&manyTiers, "  - {name: %s%d, model: m%d, workers: [{name: w%d, url: \"http://10.9.9.9:%d\"}]}\n",
			long, i, i, i, i+1)
	}
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return b.String()
	}
	huge := strings.Repeat("M", 200_000)
	oneTier := "tiers: [{name: t, model: m, workers: [{name: w, url: \"http://10.9.9.9:1\"}]}]\n"
	for name, text := range map[string]string{
		"aliases of unknown targets": manyTiers.String() + "models:\n" + repeat(1500, "  a#: z#\n"),
		"rights to unknown tiers": manyTiers.String() + "auth:\n  keys:\n    - {name: t, sha256: \"" +
			strings.Repeat("a1", 32) + "\", tiers: [" + repeat(1500, "zz#, ") + "]}\n",
		"rules to unknown tiers": manyTiers.String() + "classifier:\n  keywords:\n" +
			repeat(1000, "    - {tier: z#, name: k#, weight: 1, match: [foo#]}\n"),
		"an unknown default":     manyTiers.String() + "classifier: {default: zz}\n",
		"a long text in aliases": oneTier + "hosts:\n  - &m " + huge + "\n" + repeat(3000, "  - *m\n"),
		"a long target of many":  oneTier + "models:\n  a: &m " + huge + "\n" + repeat(3000, "  b#: *m\n"),
		"a long name among the known": "tiers: [{name: " + huge + ", model: m, workers: [{name: w, " +
			"url: \"http://10.9.9.9:1\"}]}]\nmodels:\n" + repeat(1500, "  b#: zz#\n"),
	} {
		_, err := Parse("x", []byte(text), nil)
		if err == nil {
			t.Errorf("%s: no problem", name)
		} else if n := len(err.Error()); n > 256<<10 {
			t.Errorf("%s: problems have %d bytes, the file %d", name, n, len(text))
		}
	}
}

// TestWarningsBeyondTheBoundAreNoError verifies that a file with only warnings is valid, however many they are, and
// that an error after them is among the reported problems.
func TestWarningsBeyondTheBoundAreNoError(t *testing.T) {
	var b strings.Builder
	b.WriteString("auth: { required: false }\ntiers:\n")
	for i := range 1200 { // each second one has the server of the one before
		fmt.Fprintf(&b, "  - {name: t%d, model: m%d, workers: [{name: w%d, url: \"http://10.9.9.9:%d\"}]}\n", i, i, i, 1+i/2)
	}
	f, err := Parse("x", []byte(b.String()), nil)
	if err != nil {
		t.Fatalf("only warnings: %d bytes, the last %.200s", len(err.Error()), err.Error()[len(err.Error())-200:])
	}
	if got := f.Warnings(); len(got) != maxProblems+1 || !strings.HasSuffix(got[maxProblems].Message, " more problems") {
		t.Errorf("%d warnings, the last %v", len(got), got[len(got)-1])
	}
	_, err = Parse("x", []byte(b.String()+"decisions: {keep: -1}\n"), nil)
	if problems, _ := errors.AsType[Problems](err); len(problems) != maxProblems+1 ||
		!strings.Contains(err.Error(), "decisions.keep") {
		t.Errorf("an error after the warnings: %d problems, %.500v", len(problems), err)
	}
}

// TestEqualWarningsOfEntriesAreOne: it lists the further places, the first ones by name. Other keys have their own.
func TestEqualWarningsOfEntriesAreOne(t *testing.T) {
	var b strings.Builder
	b.WriteString("auth: { required: false }\ndecisions: { max_size: 1MiB, max_files: 3 }\ntiers:\n")
	for i := range 8 {
		fmt.Fprintf(&b, "  - {name: t%d, model: m%[1]d, workers: [{name: w%[1]d, url: \"http://h%[1]d:1\", "+
			"api_key_env: KEY}]}\n", i)
	}
	b.WriteString("pools: [ { name: p, model: p, serves: [chat], " +
		"workers: [{name: v, url: \"http://v:1\", api_key_env: KEY}] } ]\n")
	got := problemsOf(t, b.String(), map[string]string{"KEY": "short"})
	if len(got) != 3 || !strings.Contains(got[2], "4:81: warning: tiers[0].workers[0].api_key_env: the key in the "+
		"environment variable KEY has 5 characters; also at tiers[1].workers[0].api_key_env, ") ||
		!strings.Contains(got[2], "tiers[5].workers[0].api_key_env and 3 more places (check ") {
		t.Errorf("the warnings are %q", got)
	}
}

// TestReadingADraftEndsWithItsContext verifies that no further value is read after the end of the context.
func TestReadingADraftEndsWithItsContext(t *testing.T) {
	text := []byte("hosts: [" + strings.Repeat("a, ", 5000) + "]\n")
	d, asked := newDecoder("x", nil), 0
	d.ended = func() error {
		if asked++; asked > 100 {
			return context.Canceled
		}
		return nil
	}
	if got, err := d.load(text); got != nil || !errors.Is(err, context.Canceled) || asked > 110 {
		t.Errorf("%v, %.200v, after %d questions", got, err, asked)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	f := Default()
	if got, err := f.Draft(gone, text); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a draft without a client: %v, %.200v", got, err)
	}
	if got, err := ParseUntil(gone, "x", text, nil); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("a text without a client: %v, %.200v", got, err)
	}
}

// TestRuleCoversCompareEachCondition verifies that a rule with one more condition does not cover one without it.
func TestRuleCoversCompareEachCondition(t *testing.T) {
	conditions := reflect.TypeFor[PolicyRule]()
	for i := range conditions.NumField() {
		field := conditions.Field(i)
		if field.Type == reflect.TypeFor[routing.Config]() {
			continue
		}
		var rule, other PolicyRule
		switch v := reflect.ValueOf(&rule).Elem().Field(i); v.Interface().(type) {
		case string:
			v.SetString("x")
		case *bool:
			v.Set(reflect.ValueOf(new(true)))
		case TokenRange:
			v.Set(reflect.ValueOf(TokenRange{Above: 1}))
		default:
			t.Fatalf("%s: the test has no value of its type", field.Name)
		}
		if rule.covers(&other) || !other.covers(&rule) || !rule.covers(&rule) {
			t.Errorf("%s: a rule with it covers one without it, or is not covered", field.Name)
		}
	}
}

// TestLongNamesAreComparedInProportion verifies that a right and an alias of any length are compared: the cost of a
// comparison grows with the product of their lengths, so beyond a bound they count as different.
func TestLongNamesAreComparedInProportion(t *testing.T) {
	long := strings.Repeat("a*", 100_000)
	names := RightNames{Models: []string{long, "gpt-4*"}}
	for _, c := range []struct {
		right string
		want  int
	}{{long + "b", 1}, {"gpt-4o", 0}, {"gpt-5", 1}, {"*", 0}, {"gp?-4o-*", 0}, {"g", 1}, {"", 1}} {
		if got := names.Unknown(tenants.Rights{Models: []string{c.right}}); len(got) != c.want {
			t.Errorf("a right of %d bytes: %d unknown, want %d", len(c.right), len(got), c.want)
		}
	}
}
