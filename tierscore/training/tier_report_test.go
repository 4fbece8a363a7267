package training

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tierway/tierscore"
)

// TestCurvesEndAtTheTwoTiers: without requests at the large tier each order has the quality of the small one, and with
// all requests that of the large one. Between them the order counts.
func TestCurvesEndAtTheTwoTiers(t *testing.T) {
	for name, tr := range map[string]traffic{
		"pairs":         {n: 1000, pairs: true, hard: "zebra "},
		"single labels": {n: 4000, hard: "zebra "},
	} {
		m, _, err := traffic{n: 300, pairs: true, hard: "zebra "}.data(t).Train(pick())
		if err != nil {
			t.Fatal(err)
		}
		r, err := tr.data(t).TierReport(m, pick())
		if err != nil {
			t.Fatal(err)
		}
		if r.Evaluated != tr.n-300 || r.InSample || r.From != epoch.Add(300*time.Minute) || len(r.Curves) != 4 {
			t.Errorf("%s: %+v", name, r)
		}
		at := map[string]QualityCurve{}
		for i, c := range r.Curves {
			at[c.Name] = c
			if small := c.Points[0].Quality.Value; math.Abs(small-0.5) > 0.05 {
				t.Errorf("%s: the quality of the small tier is %v", name, small)
			}
			if large := c.Points[reportSteps].Quality.Value; math.Abs(large-1) > 0.05 {
				t.Errorf("%s: the quality of the large tier is %v", name, large)
			}
			for step, p := range c.Points {
				first := r.Curves[0].Points[step]
				if ends := step == 0 || step == reportSteps; ends && math.Abs(p.Quality.Value-first.Quality.Value) > 1e-9 {
					t.Errorf("%s: %s has the quality %v at %v", name, c.Name, p.Quality.Value, p.Share)
				}
				if q := p.Quality; p.Share != float64(step)/reportSteps || !(q.Low-1e-9 <= q.Value && q.Value <= q.High+1e-9) ||
					(p.Threshold != nil) != (i == 0 && step < reportSteps) {
					t.Errorf("%s: %s has the point %+v", name, c.Name, p)
				}
			}
		}
		half := at[CurveModel].Points[5].Quality.Value
		if random := at[CurveRandom]; math.Abs(half-1) > 0.06 || math.Abs(random.Points[5].Quality.Value-0.75) > 0.05 ||
			random.APGR.Value != 0.5 || math.Abs(at[CurveModel].APGR.Value-0.75) > 0.03 || at[CurveLength].APGR.Low < 0.5 {
			t.Errorf("%s: %v of the model, %+v", name, half, random)
		}
	}
}

// TestThresholdsHaveTheirShare: so many requests have a higher default score.
func TestThresholdsHaveTheirShare(t *testing.T) {
	d := traffic{n: 700, pairs: true, hard: "zebra "}.data(t)
	for i := range d.rows {
		d.rows[i].baseline = float64(i * 37 % 700)
	}
	r, err := d.TierReport(nil, pick())
	if err != nil {
		t.Fatal(err)
	}
	for step, p := range r.Curves[0].Points[:reportSteps] {
		if above := float64(700-1) - *p.Threshold; above != float64(step*700/reportSteps) {
			t.Errorf("%v requests are above the threshold of %v", above, p.Share)
		}
	}
}

// TestTheModelIsInSampleUnlessRequestsAreNewer than its training.
func TestTheModelIsInSampleUnlessRequestsAreNewer(t *testing.T) {
	d := traffic{n: 300, pairs: true, hard: "zebra "}.data(t)
	m, _, err := d.Train(pick())
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{300: true, 319: true, 320: false} {
		r, err := traffic{n: n, pairs: true, hard: "zebra "}.data(t).TierReport(m, pick())
		if err != nil || r.InSample != want || want && r.Evaluated != n || !want && r.Evaluated != 20 {
			t.Errorf("%d requests: %v, %+v", n, err, r)
		}
	}
	d.key++
	if _, err := d.TierReport(m, pick()); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Error(err)
	}
	d.key--
	m.Report = []byte("{}")
	if _, err := d.TierReport(m, pick()); err == nil || !strings.Contains(err.Error(), "no time of its training") {
		t.Error(err)
	}
}

func TestACurveWithoutAGapHasNoArea(t *testing.T) {
	d := traffic{n: 100, pairs: true}.data(t)
	for i := range d.rows {
		d.rows[i].tiers[1] = d.rows[i].tiers[0]
	}
	r, err := d.TierReport(nil, pick())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Curves {
		if c.APGR != nil || c.Points[0].Quality.Value != c.Points[reportSteps].Quality.Value {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
}

// TestACurveWithAnUnclearGapHasNoArea: with a gap of one answer in 300, many samples have none, and an area has no
// bounds.
func TestACurveWithAnUnclearGapHasNoArea(t *testing.T) {
	d := traffic{n: 300, pairs: true}.data(t)
	for more, want := range map[int]bool{1: false, 60: true} { // right answers of the large tier
		for i := range d.rows {
			d.rows[i].baseline = float64(i * 37 % 300)
			for tier := range d.rows[i].tiers {
				right := float64((i + tier) % 2)
				if tier == 1 && i < 2*more {
					right = 1
				}
				d.rows[i].tiers[tier] = tierLabels{all: tally{1, right}, random: tally{1, right}}
			}
		}
		r, err := d.TierReport(nil, pick())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Curves {
			if (c.APGR != nil) != want {
				t.Errorf("%s has the area %+v with %d more right answers", c.Name, c.APGR, more)
			}
			if gap := c.Points[reportSteps].Quality.Value - c.Points[0].Quality.Value; math.Abs(gap-float64(more)/300) > 1e-9 {
				t.Errorf("%s has the gap %v", c.Name, gap)
			}
		}
	}
}

func TestTiersOfLinesAreCounted(t *testing.T) {
	features, labels := strings.Builder{}, strings.Builder{}
	for i := range 40 {
		id := fmt.Sprint("r", i)
		more := map[bool]string{true: `"tier":"small","tenant":"acme",`, false: `"tier":"large","explored":0.1,"rule":"score",`}[i%4 > 0]
		if i < 20 {
			for _, tier := range []string{"small", "large"} {
				fmt.Fprintf(&labels, `{"id":%q,"ts":"2026-01-01T00:00:00Z","tier":%q,"ok":true,"source":"replay"}`+"\n", id, tier)
			}
			more += `"model":1.5,`
		}
		if i == 39 {
			more = ""
		}
		features.WriteString(strings.Replace(goodFeatures(id), `"baseline"`, more+`"baseline"`, 1) + "\n")
	}
	l, d := NewLabels(tiersOfTest()), &Data{}
	if err := l.Read("l", strings.NewReader(labels.String())); err != nil {
		t.Fatal(err)
	}
	if err := d.ReadFeatures("f", strings.NewReader(features.String()), l); err != nil {
		t.Fatal(err)
	}
	d.Join(l)
	r, err := d.TierReport(nil, pick())
	if err != nil {
		t.Fatal(err)
	}
	if r.Lines != 40 || r.Requests != 20 || r.Paired != 20 || len(r.Tiers) != 2 ||
		r.Tiers[0] != (TierRequests{"small", 29, 29.0 / 39}) || r.Tiers[1] != (TierRequests{"large", 10, 10.0 / 39}) {
		t.Errorf("%+v", r)
	}
	line := strings.Replace(goodFeatures("x"), `"baseline"`, `"explored":0,"baseline"`, 1)
	err = d.ReadFeatures("f", strings.NewReader(line), l)
	if err == nil || !strings.Contains(err.Error(), "f:1: explored is out") {
		t.Error(err)
	}
}

func TestAReportNeedsRandomLabelsOfBothTiers(t *testing.T) {
	for _, d := range []*Data{{}, traffic{n: 19, pairs: true}.data(t)} {
		if _, err := d.TierReport(nil, pick()); err == nil || !strings.Contains(err.Error(), "each tier needs 20") {
			t.Error(err)
		}
	}
	d := traffic{n: 40, pairs: true}.data(t)
	for i := range d.rows { // feedback only
		for tier := range d.rows[i].tiers {
			d.rows[i].tiers[tier].random = tally{}
		}
	}
	if _, err := d.TierReport((*tierscore.Model)(nil), pick()); err == nil {
		t.Error("feedback is evaluated")
	}
}

// TestFeedbackAboutBadAnswersDoesNotEvaluate: 70 % of the answers of explored requests are right. Clients report 5 % of
// these, and 50 % of the others. Labels of the source exploration about all of them have the true quality.
func TestFeedbackAboutBadAnswersDoesNotEvaluate(t *testing.T) {
	const n = 4000
	source := rand.New(rand.NewPCG(1, 5))
	var features, feedback, exploration strings.Builder
	for i := range n {
		tier, ok, id := []string{"small", "large"}[i%2], source.Float64() < 0.7, fmt.Sprint("r", i)
		features.WriteString(strings.Replace(goodFeatures(id), `"baseline"`,
			fmt.Sprintf(`"tier":%q,"explored":0.5,"baseline"`, tier), 1) + "\n")
		line := fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00Z","ok":%v,"source":"feedback"}`+"\n", id, ok)
		if source.Float64() < map[bool]float64{true: 0.05, false: 0.5}[ok] {
			feedback.WriteString(line)
		}
		exploration.WriteString(strings.Replace(line, sourceFeedback, sourceExploration, 1))
	}
	for name, c := range map[string]struct {
		labels   string
		evaluate bool
		low      float64 // bounds of the quality of the small tier
		high     float64
		problem  string
	}{
		"feedback":            {feedback.String(), false, 0, 0, "explored requests does not evaluate"},
		"feedback, evaluated": {feedback.String(), true, 0.12, 0.28, ""},
		"exploration":         {exploration.String(), false, 0.67, 0.73, ""},
	} {
		_, _, d := joinedTiers(t, c.labels, features.String(), c.evaluate)
		r, err := d.TierReport(nil, pick())
		if c.problem != "" {
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if small := r.Curves[0].Points[0].Quality.Value; small < c.low || small > c.high {
			t.Errorf("%s: the quality of the small tier is %v", name, small)
		}
	}
}
