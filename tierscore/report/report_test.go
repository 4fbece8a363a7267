package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/tenants"
	"tierway/tierscore"
	"tierway/tierscore/curve"
	"tierway/tierscore/training"
)

// lines returns features and labels of n requests. The small tier fails for every second one.
func lines(n int) (features, labels string) {
	var f, l strings.Builder
	e := tierscore.NewExtractor("")
	for i := range n {
		var one tierscore.Features
		e.Extract(&one, &tierscore.Input{User: fmt.Appendf(nil, "question %d %s", i, strings.Repeat("x", i%2*40)), Turns: 1})
		fmt.Fprintf(&f, `{"id":"r%d","ts":"2026-01-01T00:00:00Z","baseline":%d,"features":%s}`+"\n", i, i%2, one.AppendJSON(nil))
		for _, tier := range []string{"cheap", "dear"} {
			fmt.Fprintf(&l, `{"id":"r%d","ts":"2026-01-01T00:00:00Z","tier":%q,"ok":%v,"source":"replay"}`+"\n", i, tier,
				tier == "dear" || i%2 == 0)
		}
	}
	return f.String(), l.String()
}

func read(features, labels string) (*Report, error) {
	file := func(name, text string) []File { return []File{{name, strings.NewReader(text)}} }
	return Read(Input{Features: file("f", features), Labels: file("l", labels),
		Tiers: training.Tiers{Small: "cheap", Large: "dear"}}, rand.New(rand.NewPCG(1, 0)).IntN)
}

func TestReportIsReadFromFeaturesAndLabels(t *testing.T) {
	features, labels := lines(100)
	r, err := read(features, labels)
	if err != nil {
		t.Fatal(err)
	}
	if half := r.Curves[0].Points[5].Quality.Value; half != 1 || r.Evaluated != 100 || r.SmallTier != "cheap" ||
		r.LargeTier != "dear" || r.Money != nil {
		t.Errorf("%+v", r)
	}
	for want, c := range map[string][2]string{
		"f:1: the line is no JSON object":  {"[]", labels},
		"l:201: the line is no JSON":       {features, labels + "3"},
		"0 requests have labels of the sm": {features, ""},
		"200 labels are of other tiers":    {features, strings.NewReplacer("cheap", "a", "dear", "b").Replace(labels)},
	} {
		if _, err := read(c[0], c[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestMoneyRisesFromTheSmallToTheLargeTier(t *testing.T) {
	m := NewMoney(1000, 500, tenants.Price{Input: 1}, tenants.Price{Input: 2, Output: 4})
	for i, p := range m.Points {
		// 1 and 4 units for a million tokens of prompts and half a million of answers
		if want := tenants.Unit + 3*tenants.Unit*tenants.Money(i)/10; p.Money != want || p.Share != float64(i)/10 {
			t.Errorf("%+v, want %s", p, want)
		}
	}
	if m := NewMoney(1000, 500, tenants.Price{}, tenants.Price{}); m != nil {
		t.Errorf("free tiers cost %+v", m)
	}
}

// drawn is a report with all four curves, of which one leaves the range of the others.
func drawn() *Report {
	r := &Report{SmallTier: "small", LargeTier: `large & "dear"`, TierReport: training.TierReport{Evaluated: 240, InSample: true,
		From: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)}}
	for i, name := range []string{training.CurveDefault, training.CurveLength, training.CurveRandom, training.CurveModel} {
		c := training.QualityCurve{Name: name, APGR: &curve.Interval{Value: 0.5 + float64(i)/50}}
		if name == training.CurveRandom {
			c.APGR = nil
		}
		for step := range steps + 1 {
			x := float64(step) / steps
			quality := 0.6 + 0.2*x + float64(i)*0.1*x*(1-x)
			c.Points = append(c.Points, training.QualityPoint{Share: x,
				Quality: curve.Interval{Value: quality, Low: quality - 0.04, High: quality + 0.03}})
		}
		r.Curves = append(r.Curves, c)
	}
	return r
}

func TestPictureEqualsItsGoldenFile(t *testing.T) {
	got, file := drawn().SVG(), filepath.Join("testdata", "curves.svg")
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (UPDATE_GOLDEN=1 writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s has changed (UPDATE_GOLDEN=1 accepts it):\n%s", file, diff)
	}
}

// TestPictureIsValid: it is well-formed XML, refers to nothing outside, and all curves are inside the plot.
func TestPictureIsValid(t *testing.T) {
	wide := drawn()
	for i := range wide.Curves[3].Points {
		wide.Curves[3].Points[i].Quality.Value = float64(i) / 8 // an estimate may exceed 1
	}
	flat := drawn()
	for _, c := range flat.Curves {
		for i := range c.Points {
			c.Points[i].Quality = curve.Interval{Value: 1, Low: 1, High: 1}
		}
	}
	for name, r := range map[string]*Report{"usual": drawn(), "wide": wide, "flat": flat} {
		text := r.SVG()
		for _, unwanted := range []string{"NaN", "Inf", "href"} {
			if bytes.Contains(text, []byte(unwanted)) {
				t.Errorf("%s: %s", name, text)
			}
		}
		curves := 0
		for d := xml.NewDecoder(bytes.NewReader(text)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			element, ok := token.(xml.StartElement)
			if !ok || element.Name.Local != "polyline" {
				continue
			}
			curves++
			for _, a := range element.Attr {
				for point := range strings.FieldsSeq(a.Value) {
					var x, y float64
					if n, _ := fmt.Sscanf(point, "%f,%f", &x, &y); n == 2 && (x < left || x > right || y < top || y > below) {
						t.Errorf("%s: the point %s is outside", name, point)
					}
				}
			}
		}
		if curves != 4 {
			t.Errorf("%s: %d curves", name, curves)
		}
	}
}
