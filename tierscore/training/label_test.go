package training

import (
	"fmt"
	"strings"
	"testing"

	"tierway/tierscore"
)

const goodLabel = `{"id":"a","ts":"2026-01-01T00:00:00Z","route":"","tenant":"acme","tier":"small","ok":true,"weight":2,` +
	`"source":"feedback"}`

// goodFeatures returns a line of features.
func goodFeatures(id string) string {
	var f tierscore.Features
	tierscore.NewExtractor("").Extract(&f, &tierscore.Input{Tenant: "acme", User: []byte("What is it?")})
	return fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00Z","baseline":3.5,"features":%s}`, id, f.AppendJSON(nil))
}

func tiersOfTest() Tiers { return Tiers{"small", "large"} }

func TestLabelsAreSummed(t *testing.T) {
	l := NewLabels(tiersOfTest())
	replay := strings.Replace(goodLabel, "feedback", "replay", 1)
	text := replay + "\n\n" + strings.Replace(replay, "true", "false", 1) + "\n" +
		strings.NewReplacer("small", "large", `"weight":2,`, "").Replace(replay) + "\n" +
		strings.Replace(goodLabel, "small", "medium", 1)
	if err := l.Read("labels", strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	var d Data
	if err := d.ReadFeatures("features", strings.NewReader(goodFeatures("a")), l); err != nil {
		t.Fatal(err)
	}
	d.Join(l)
	want := [2]tierLabels{{all: tally{4, 2}, random: tally{4, 2}}, {all: tally{1, 1}, random: tally{1, 1}}}
	if d.rows[0].tiers != want || l.Lines != 3 || l.OtherTier != 1 {
		t.Errorf("%+v, %d lines, %d of other tiers", d.rows[0].tiers, l.Lines, l.OtherTier)
	}
}

func TestErrorsOfLabelsNameTheLine(t *testing.T) {
	for _, c := range []struct{ want, old, replacement string }{
		{"id is missing", `"id":"a"`, `"id":""`},
		{"ts is missing", `"ts":"2026-01-01T00:00:00Z",`, ``},
		{"ts is no time", `"2026-01-01T00:00:00Z"`, `"now"`},
		{"ok is missing", `"ok":true,`, ``},
		{"weight is out of range", `"weight":2`, `"weight":0`},
		{"weight is out of range", `"weight":2`, `"weight":101`},
		{"source is unknown", `"feedback"`, `"guess"`},
		{"route is no hash", `"route":""`, `"route":"x"`},
		{"unknown field", `"weight"`, `"wieght"`},
		{"text follows", `"feedback"}`, `"feedback"} {}`},
	} {
		text := goodLabel + "\n" + strings.Replace(goodLabel, c.old, c.replacement, 1)
		err := NewLabels(tiersOfTest()).Read("labels.jsonl", strings.NewReader(text))
		if err == nil || !strings.HasPrefix(err.Error(), "labels.jsonl:2: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	twoRoutes := strings.Replace(goodLabel, `"route":""`, `"route":"00000001"`, 1) + "\n" +
		strings.Replace(goodLabel, `"route":""`, `"route":"00000002"`, 1)
	if err := NewLabels(tiersOfTest()).Read("l", strings.NewReader(twoRoutes)); err == nil ||
		!strings.Contains(err.Error(), "an earlier label") {
		t.Error(err)
	}
	twoForms := strings.Replace(goodLabel, `"route":""`, `"route":"0000000a"`, 1) + "\n" +
		strings.Replace(goodLabel, `"route":""`, `"route":"0000000A"`, 1)
	if err := NewLabels(tiersOfTest()).Read("l", strings.NewReader(twoForms)); err != nil {
		t.Errorf("two forms of a route: %v", err)
	}
}

func TestLinesAreLimited(t *testing.T) {
	longest := goodLabel + strings.Repeat(" ", maxLine-len(goodLabel))
	if err := NewLabels(tiersOfTest()).Read("l", strings.NewReader(longest+"\n"+longest)); err != nil {
		t.Error(err)
	}
	err := NewLabels(tiersOfTest()).Read("l", strings.NewReader(goodLabel+"\n"+longest+" \n"))
	if want := "l:2: the line has more than 1048576 bytes: leave it out"; err == nil || err.Error() != want {
		t.Error(err)
	}
}

// FuzzLines verifies that no line of labels or features makes the readers panic.
func FuzzLines(f *testing.F) {
	f.Add(goodLabel, goodFeatures("a"))
	f.Add(goodLabel+"\n"+goodLabel, goodFeatures("b"))
	f.Fuzz(func(t *testing.T, labels, features string) {
		l := NewLabels(tiersOfTest())
		if l.Read("l", strings.NewReader(labels)) != nil {
			return
		}
		var d Data
		if d.ReadFeatures("f", strings.NewReader(features), l) != nil {
			return
		}
		d.Join(l)
		for i := range d.rows {
			for _, s := range d.rows[i].tiers {
				if all, random := s.all, s.random; all.right > all.weight || random.right > random.weight ||
					random.weight > all.weight {
					t.Errorf("%+v", s)
				}
			}
			if columns := d.columns(i); len(columns) <= d.rows[i].words || columns[len(columns)-1] >= tierscore.Columns {
				t.Errorf("columns %v", columns)
			}
		}
	})
}

// TestIncompleteLinesAreCounted: a crash of a gateway leaves one, and the lines after it are read.
func TestIncompleteLinesAreCounted(t *testing.T) {
	labels, data := NewLabels(Tiers{"small", "large"}), &Data{}
	const whole = `{"id":"a","ts":"2026-01-31T12:00:00Z","tier":"small","ok":true,"source":"replay"}` + "\n"
	if err := labels.Read("labels", strings.NewReader(whole[:40]+"\n"+whole)); err != nil {
		t.Fatal(err)
	}
	if err := data.ReadFeatures("features", strings.NewReader(`{"id":"a","ts"`+"\n"), labels); err != nil {
		t.Fatal(err)
	}
	if labels.Lines != 1 || labels.Incomplete != 1 || data.Lines != 0 || data.Incomplete != 1 {
		t.Errorf("%+v, %+v", labels, data)
	}
}
