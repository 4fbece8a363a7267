package training

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		"another key":          strings.Replace(goodFeatures("c"), `"key":"`, `"key":"00000000","key":"`, 1),
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
		if want == "another key" {
			_, rest, _ := strings.Cut(line, `"key":"00000000","key":"`)
			line = strings.Replace(goodFeatures("c"), rest[:8], "00000000", 1)
		}
		var d Data
		err := d.ReadFeatures("features.jsonl", strings.NewReader(goodFeatures("a")+"\n"+line), l)
		if err == nil || !strings.HasPrefix(err.Error(), "features.jsonl:2: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// joinedTiers returns the labels of the requests of feature lines, without a comparison of their text.
func joinedTiers(t *testing.T, labels, features string) ([][2]tierLabels, *Labels, *Data) {
	t.Helper()
	l := NewLabels(tiersOfTest())
	if err := l.Read("l", strings.NewReader(labels)); err != nil {
		t.Fatal(err)
	}
	var d Data
	if err := d.ReadFeatures("f", strings.NewReader(features), l); err != nil {
		t.Fatal(err)
	}
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
// are ignored, and feedback about explored requests is random.
func TestLabelsAreJoinedWithTheAnswer(t *testing.T) {
	untiered := strings.Replace(goodLabel, `"tier":"small",`, ``, 1) // feedback of weight 2 of the tenant acme
	replayed := strings.Replace(goodLabel, "feedback", "replay", 1)
	for name, c := range map[string]struct {
		label, more    string
		want           [2]tierLabels
		foreign, other int
	}{
		"the tier of the answer": {untiered, `"tier":"large","tenant":"acme",`,
			[2]tierLabels{1: {all: tally{2, 2}}}, 0, 0},
		"a tier of its own": {goodLabel, `"tier":"large",`, [2]tierLabels{{all: tally{2, 2}}}, 0, 0},
		"another tier":      {untiered, `"tier":"medium",`, [2]tierLabels{}, 0, 1},
		"another tenant":    {untiered, `"tier":"large","tenant":"other",`, [2]tierLabels{}, 1, 0},
		"an unknown tenant": {untiered, `"tier":"large",`, [2]tierLabels{1: {all: tally{2, 2}}}, 0, 0},
		"explored": {untiered, `"tier":"large","explored":0.5,`,
			[2]tierLabels{1: {all: tally{4, 4}, random: tally{4, 4}}}, 0, 0},
		"explored, and a label of another tier": {goodLabel, `"tier":"large","explored":0.5,`,
			[2]tierLabels{{all: tally{2, 2}}}, 0, 0},
		"explored with a small propensity": {untiered, `"tier":"large","explored":0.001,`,
			[2]tierLabels{1: {all: tally{MaxWeight, MaxWeight}, random: tally{MaxWeight, MaxWeight}}}, 0, 0},
		"explored and repeated": {replayed, `"tier":"small","explored":0.5,`,
			[2]tierLabels{{all: tally{2, 2}, random: tally{2, 2}}}, 0, 0},
	} {
		got, l, _ := joinedTiers(t, c.label, recordedFeatures("a", c.more))
		if diff := cmp.Diff([][2]tierLabels{c.want}, got, cmp.AllowUnexported(tierLabels{}, tally{})); diff != "" ||
			l.OtherTenant != c.foreign || l.OtherTier != c.other {
			t.Errorf("%s: %d of other tenants, %d of other tiers (-want +got):\n%s", name, l.OtherTenant, l.OtherTier, diff)
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

// TestRepeatedIDsHaveNoLabels: clients may choose ids, so a label may belong to another request with its id.
func TestRepeatedIDsHaveNoLabels(t *testing.T) {
	labels := goodLabel + "\n" + strings.Replace(goodLabel, `"a"`, `"b"`, 1)
	all, _, d := joinedTiers(t, labels, goodFeatures("a")+"\n"+goodFeatures("b")+"\n"+
		recordedFeatures("a", `"tenant":"other",`)+"\n"+goodFeatures("a"))
	if len(all) != 2 || all[0] != [2]tierLabels{} || all[1] == [2]tierLabels{} || d.Requests() != 1 || d.Ambiguous != 2 ||
		d.Lines != 4 {
		t.Errorf("%+v, %d requests, %d ambiguous lines of %d", all, d.Requests(), d.Ambiguous, d.Lines)
	}
}
