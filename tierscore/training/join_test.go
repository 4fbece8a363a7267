package training

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tierway/tierscore"
)

func TestFeaturesAreJoinedByID(t *testing.T) {
	l := NewLabels(tiersOfTest())
	if err := l.Read("l", strings.NewReader(goodLabel)); err != nil {
		t.Fatal(err)
	}
	var d Data
	if err := d.ReadFeatures("f", strings.NewReader(goodFeatures("a")+"\n"+goodFeatures("b")), l); err != nil {
		t.Fatal(err)
	}
	d.Join(l)
	if d.Requests() != 1 || d.Lines != 2 || d.rows[0].baseline != 3.5 {
		t.Errorf("%+v", d)
	}
}

func TestErrorsOfFeaturesNameTheLine(t *testing.T) {
	good := goodFeatures("b")
	for want, line := range map[string]string{
		"id is missing":        strings.Replace(good, `"id":"b"`, `"id":""`, 1),
		"ts is missing":        strings.Replace(good, `"ts":"2026-01-01T00:00:00Z",`, ``, 1),
		"features are missing": `{"id":"b","ts":"2026-01-01T00:00:00Z","baseline":3.5}`,
		"baseline is missing":  strings.Replace(good, `"baseline":3.5,`, ``, 1),
		"baseline is out of":   strings.Replace(goodFeatures("c"), `3.5`, `1e10`, 1),
		"no version 1":         strings.Replace(good, `"v":1`, `"v":2`, 1),
		"explored is out of":   strings.Replace(good, `"baseline"`, `"explored":0,"baseline"`, 1),
		"not that of a label":  goodFeatures("d"),
	} {
		l := NewLabels(tiersOfTest())
		for _, id := range []string{"a", "b", "c", "d"} {
			label := strings.Replace(goodLabel, `"a"`, `"`+id+`"`, 1)
			if id == "d" {
				label = strings.Replace(label, `"route":""`, `"route":"00000001"`, 1)
			}
			if err := l.Read("l", strings.NewReader(label)); err != nil {
				t.Fatal(err)
			}
		}
		var d Data
		err := d.ReadFeatures("features.jsonl", strings.NewReader(goodFeatures("a")+"\n"+line), l)
		if err == nil || !strings.HasPrefix(err.Error(), "features.jsonl:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// joinedTiers returns the labels of the labelled requests of feature lines, in the order of the lines.
func joinedTiers(t *testing.T, labels, features string, evaluate bool) ([][2]tierLabels, *Labels, *Data) {
	t.Helper()
	l := NewLabels(tiersOfTest())
	l.EvaluateFeedback = evaluate
	if err := l.Read("l", strings.NewReader(labels)); err != nil {
		t.Fatal(err)
	}
	var d Data
	if err := d.ReadFeatures("f", strings.NewReader(features), l); err != nil {
		t.Fatal(err)
	}
	d.Join(l)
	var all [][2]tierLabels
	for i := range d.rows {
		all = append(all, d.rows[i].tiers)
	}
	return all, l, &d
}

// recordedFeatures returns a line of features as a gateway writes it.
func recordedFeatures(id, more string) string {
	return strings.Replace(goodFeatures(id), `"baseline"`, more+`"rule":"default","model":0.5,"baseline"`, 1)
}

// TestLabelsAreJoinedWithTheAnswer: a label without a tier is one of the tier that answered, labels of another tenant
// are ignored, and with EvaluateFeedback feedback about explored requests is random.
func TestLabelsAreJoinedWithTheAnswer(t *testing.T) {
	untiered := strings.Replace(goodLabel, `"tier":"small",`, ``, 1) // feedback of acme, whose weight of 2 counts as 1
	replayed := strings.Replace(goodLabel, "feedback", "replay", 1)
	for name, c := range map[string]struct {
		label, more    string
		want           [2]tierLabels
		foreign, other int
	}{
		"the tier of the answer": {untiered, `"tier":"large","tenant":"acme",`,
			[2]tierLabels{1: {all: tally{1, 1}}}, 0, 0},
		"a tier of its own": {goodLabel, `"tier":"large",`, [2]tierLabels{{all: tally{1, 1}}}, 0, 0},
		"another tier":      {untiered, `"tier":"medium",`, [2]tierLabels{}, 0, 1},
		"another tenant":    {untiered, `"tier":"large","tenant":"other",`, [2]tierLabels{}, 1, 0},
		"an unknown tenant": {untiered, `"tier":"large",`, [2]tierLabels{1: {all: tally{1, 1}}}, 0, 0},
		"explored":          {untiered, `"tier":"large","explored":0.5,`, [2]tierLabels{1: {all: tally{1, 1}}}, 0, 0},
		"explored, evaluated": {untiered, `"tier":"large","explored":0.5,`,
			[2]tierLabels{1: {all: tally{2, 2}, random: tally{2, 2}}}, 0, 0},
		"explored, and a label of another tier, evaluated": {goodLabel, `"tier":"large","explored":0.5,`,
			[2]tierLabels{{all: tally{1, 1}}}, 0, 0},
		"explored with a small propensity, evaluated": {untiered, `"tier":"large","explored":0.001,`,
			[2]tierLabels{1: {all: tally{MaxWeight, MaxWeight}, random: tally{MaxWeight, MaxWeight}}}, 0, 0},
		"explored and repeated": {replayed, `"tier":"small","explored":0.5,`,
			[2]tierLabels{{all: tally{2, 2}, random: tally{2, 2}}}, 0, 0},
	} {
		all, l, _ := joinedTiers(t, c.label, recordedFeatures("a", c.more), strings.HasSuffix(name, ", evaluated"))
		var got [2]tierLabels
		for _, got = range all {
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(tierLabels{}, tally{})); diff != "" ||
			l.OtherTenant != c.foreign || l.OtherTier != c.other {
			t.Errorf("%s: %d foreign, %d of other tiers (-want +got):\n%s", name, l.OtherTenant, l.OtherTier, diff)
		}
	}
	l := NewLabels(tiersOfTest())
	if err := l.Read("l", strings.NewReader(untiered)); err != nil {
		t.Fatal(err)
	}
	if err := new(Data).ReadFeatures("f", strings.NewReader(goodFeatures("a")), l); err == nil ||
		!strings.Contains(err.Error(), "f:1: tier is missing, and a label of the id has none") {
		t.Error(err)
	}
}

// TestRepeatedIDsHaveNoLabels: clients choose ids, so a label may belong to another request of its tenant. A tenant
// cannot void the labels of another one.
func TestRepeatedIDsHaveNoLabels(t *testing.T) {
	label := func(tenant, ok string) string {
		return strings.NewReplacer("acme", tenant, "true", ok, "feedback", "replay", `"weight":2,`, "").Replace(goodLabel)
	}
	features := func(tenants ...string) (all []string) {
		for _, tenant := range tenants {
			all = append(all, recordedFeatures("a", `"tier":"small","tenant":"`+tenant+`",`))
		}
		return all
	}
	acme, other, anyTenant := label("acme", "true"), label("other", "false"), label("", "true")
	right := [2]tierLabels{{all: tally{1, 1}, random: tally{1, 1}}}
	wrong := [2]tierLabels{{all: tally{1, 0}, random: tally{1, 0}}}
	for name, c := range map[string]struct {
		labels, features          []string
		want                      [][2]tierLabels
		lines, ambiguous, foreign int // of features, and of labels
	}{
		"once":  {[]string{acme}, features("acme"), [][2]tierLabels{right}, 0, 0, 0},
		"twice": {[]string{acme}, features("acme", "acme"), nil, 2, 0, 0},
		"two tenants": {[]string{acme, other}, features("other", "acme"),
			[][2]tierLabels{wrong, right}, 0, 0, 0},
		"twice of another tenant": {[]string{acme, other}, features("other", "acme", "other"),
			[][2]tierLabels{right}, 2, 0, 0},
		"a label without a tenant":              {[]string{anyTenant}, features("acme"), [][2]tierLabels{right}, 0, 0, 0},
		"a label without a tenant, two tenants": {[]string{anyTenant}, features("acme", "other"), nil, 0, 1, 0},
		"features without a tenant":             {[]string{acme}, features(""), [][2]tierLabels{right}, 0, 0, 0},
		"features with and without a tenant":    {[]string{acme}, features("acme", ""), nil, 2, 0, 0},
		"a label of a third tenant": {[]string{label("third", "true"), acme}, features("acme", "other"),
			[][2]tierLabels{right}, 0, 0, 1},
	} {
		got, l, d := joinedTiers(t, strings.Join(c.labels, "\n"), strings.Join(c.features, "\n"), false)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(tierLabels{}, tally{})); diff != "" ||
			d.Ambiguous != c.lines || l.OtherTenant != c.foreign || l.Ambiguous != c.ambiguous || d.Lines != len(c.features) ||
			l.Lines != len(c.labels)-c.foreign-c.ambiguous {
			t.Errorf("%s: %+v, %+v (-want +got):\n%s", name, l, d, diff)
		}
	}
}

// TestALabelOfAnotherTenantIsNoError, whatever its route is and although it has no tier.
func TestALabelOfAnotherTenantIsNoError(t *testing.T) {
	foreign := strings.NewReplacer("acme", "other", `"route":""`, `"route":"00000001"`,
		`"tier":"small",`, "").Replace(goodLabel)
	got, l, _ := joinedTiers(t, foreign+"\n"+goodLabel, recordedFeatures("a", `"tenant":"acme",`), false)
	if len(got) != 1 || l.OtherTenant != 1 {
		t.Errorf("%+v, %+v", got, l)
	}
}

// TestClientsCannotOutweighOthers: of a tenant, an id and a tier the last feedback counts, and with an escalation it
// weighs at most 1. A replay keeps its weight.
func TestClientsCannotOutweighOthers(t *testing.T) {
	line := func(source, day, tier, ok string, weight float64) string {
		if tier != "" {
			tier = fmt.Sprintf(`"tier":%q,`, tier)
		}
		return fmt.Sprintf(`{"id":"a","ts":"2026-01-0%sT00:00:00Z","tenant":"acme",%s"ok":%s,"weight":%v,"source":%q}`+"\n",
			day, tier, ok, weight, source)
	}
	wrongs := strings.Repeat(line("feedback", "1", "small", "false", 100), 50)
	later := line("feedback", "2", "small", "true", 0.5)
	for name, c := range map[string]struct {
		labels, more string
		want         tierLabels // of the small tier
	}{
		"many":                 {wrongs, "", tierLabels{all: tally{1, 0}}},
		"the last":             {wrongs + later, "", tierLabels{all: tally{0.5, 0.5}}},
		"the last, read first": {later + wrongs, "", tierLabels{all: tally{0.5, 0.5}}},
		"the last of its tier": {wrongs + line("feedback", "2", "", "true", 1), "", tierLabels{all: tally{1, 1}}},
		"with an escalation": {wrongs + line("escalation", "1", "small", "true", 7), "",
			tierLabels{all: tally{1, 0.5}}},
		"with less escalation": {wrongs + line("escalation", "1", "small", "true", 0.25), "",
			tierLabels{all: tally{1, 0.2}}},
		"less than 1": {later + line("escalation", "1", "small", "false", 0.25), "", tierLabels{all: tally{0.75, 0.5}}},
		"with a replay": {wrongs + line("replay", "1", "small", "true", 100), "",
			tierLabels{all: tally{101, 100}, random: tally{100, 100}}},
		"of an explored answer": {wrongs, `"explored":0.5,`, tierLabels{all: tally{2, 0}, random: tally{2, 0}}},
	} {
		got, l, d := joinedTiers(t, c.labels, recordedFeatures("a", c.more+`"tenant":"acme","tier":"small",`),
			true)
		if len(got) != 1 || got[0] != [2]tierLabels{c.want} || l.Lines != strings.Count(c.labels, "{") {
			t.Errorf("%s: %+v, %d requests, %d lines", name, got, d.Requests(), l.Lines)
		}
	}
}

// TestOnlyFeaturesOfTheNewestKeyAreUsed, in whatever order the files are read.
func TestOnlyFeaturesOfTheNewestKeyAreUsed(t *testing.T) {
	of := func(id, key, day string) string {
		var f tierscore.Features
		tierscore.NewExtractor(key).Extract(&f, &tierscore.Input{User: []byte("What is it?")})
		return fmt.Sprintf(`{"id":%q,"ts":"2026-01-%sT00:00:00Z","baseline":3.5,"features":%s}`+"\n", id, day, f.AppendJSON(nil))
	}
	old := of("a", "0123456789abcdef", "01") + of("x", "0123456789abcdef", "02")
	rotated := of("b", "fedcba9876543210", "03") + of("y", "fedcba9876543210", "04") + of("z", "fedcba9876543210", "05")
	labels := goodLabel + "\n" + strings.Replace(goodLabel, `"a"`, `"b"`, 1)
	for _, features := range []string{old + rotated, rotated + old} {
		got, _, d := joinedTiers(t, labels, features, false)
		if len(got) != 1 || d.Lines != 5 || d.OtherKeys != 2 || d.rows[0].time.Day() != 3 {
			t.Errorf("%+v, %d of other keys of %d lines", got, d.OtherKeys, d.Lines)
		}
	}
}
