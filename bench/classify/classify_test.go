package main

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tierway/tierscore/curve"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) }

func TestTheSameSeedDrawsTheSameInterval(t *testing.T) {
	var all []outcome
	for i := range 40 {
		all = append(all, outcome{float64(i * 7 % 40), float64(i % 3)})
	}
	first, again, other := worthOf(all, 200, 1), worthOf(all, 200, 1), worthOf(all, 200, 2)
	if first != again {
		t.Errorf("%+v, then %+v", first, again)
	}
	if first.apgr == other.apgr {
		t.Errorf("another seed drew the same: %+v", other)
	}
	if a := first.apgr; a.Low >= a.Value || a.Value >= a.High {
		t.Errorf("the interval is not around its value: %+v", a)
	}
	if w := worthOf([]outcome{{1, 1}, {1, 1}}, 50, 1); w.apgr != (curve.Interval{Value: 0.5, Low: 0.5, High: 0.5}) {
		t.Errorf("prompts that are all alike vary: %+v", w.apgr)
	}
	if w := worthOf([]outcome{{2, 1}, {1, -1}}, 50, 1); !math.IsNaN(w.apgr.Value) || !math.IsNaN(w.over[0].Value) {
		t.Errorf("without a gap the order is worth %+v", w)
	}
}

func TestGSM8KIsReadWithoutTheSeenRows(t *testing.T) {
	text := "prompt," + weakModel + "," + strongModel + ",x\n" +
		"a,True,True,\nb,True,True,\nc,True,True,\n\"d,\nd\",False,True,y\ne,True,False,\nf,True,True,\n"
	s, err := readGSM8K(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []promptRow{{text: "d,\nd", gain: 1, right: [2]bool{false, true}},
		{text: "e", gain: -1, right: [2]bool{true, false}},
		{text: "f", right: [2]bool{true, true}}}
	if s.left != 3 || len(s.prompts) != 3 || s.prompts[0] != want[0] || s.prompts[1] != want[1] ||
		s.prompts[2] != want[2] {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"", "prompt,x\n", text + "g,yes,True,\n", text + "g\n"} {
		if _, err := readGSM8K(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestMTBenchIsJoinedByQuestionTurnAndModel(t *testing.T) {
	questions := []question{{81, "writing", []string{"seen", "x"}}, {82, "math", []string{"one", "two"}}}
	scores, err := readJudgements(strings.NewReader(`{"question_id":82,"model":"` + weakModel + `","turn":1,"score":2}
{"question_id":82,"model":"` + strongModel + `","turn":1,"score":5,"judgment":"x"}
{"question_id":82,"model":"` + weakModel + `","turn":2,"score":9.5}
{"question_id":82,"model":"` + strongModel + `","turn":2,"score":8.5}`))
	if err != nil {
		t.Fatal(err)
	}
	first, second, err := mtBench(questions, scores)
	if err != nil {
		t.Fatal(err)
	}
	if first.left != 1 || len(first.prompts) != 1 ||
		first.prompts[0] != (promptRow{text: "one", category: "math", gain: 1}) {
		t.Errorf("%+v", first)
	}
	good := [2]bool{true, true} // 9.5 and 8.5 of ten
	if second.left != 1 || len(second.prompts) != 1 ||
		second.prompts[0] != (promptRow{text: "two", category: "math", gain: -1, right: good}) {
		t.Errorf("%+v", second)
	}
	chat := inChats(first, second)
	if len(chat.prompts) != 1 || chat.prompts[0] != (promptRow{text: "two", category: "math", gain: -1, right: good,
		before: "one"}) || second.prompts[0].before != "" {
		t.Errorf("%+v of %+v", chat, second)
	}
	delete(scores, asked{82, 2, weakModel})
	if _, _, err := mtBench(questions, scores); err == nil {
		t.Error("a missing score was taken for one")
	}
	if _, err := readJudgements(strings.NewReader(`{"question_id":`)); err == nil {
		t.Error("half a line was read")
	}
}

func TestExamQuestionsAreReadWithAndWithoutChoices(t *testing.T) {
	const head, question = "subject,prompt,weak_right,strong_right\n", "Which is even?\nA. 3\nB. 4\nAnswer:"
	exam, err := readExam(strings.NewReader(head + "algebra,\"" + question + "\",False,True\n"))
	if err != nil {
		t.Fatal(err)
	}
	right := [2]bool{false, true}
	if exam.points != 100 || len(exam.prompts) != 1 ||
		exam.prompts[0] != (promptRow{text: question, category: "algebra", gain: 1, right: right}) {
		t.Errorf("%+v", exam)
	}
	bare := withoutChoices(exam)
	if len(bare.prompts) != 1 ||
		bare.prompts[0] != (promptRow{text: "Which is even?", category: "algebra", gain: 1, right: right}) ||
		exam.prompts[0].text != question {
		t.Errorf("%+v of %+v", bare, exam)
	}
	for _, bad := range []string{"", "prompt,x\n", head + "a,b,True\n", head + "a,b,True,yes\n"} {
		if _, err := readExam(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestOrdinaryPromptsAreMeasuredWithoutTheData(t *testing.T) {
	var out bytes.Buffer
	folder := filepath.Join(t.TempDir(), "none")
	if err := run([]string{"-data", folder, "-resamples", "40"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no labelled prompts were measured", folder, "-data", "ordinary prompts (in-sample)",
		"ordinary prompts, written later"} {
		if got := out.String(); !strings.Contains(got, want) {
			t.Errorf("it does not say %q: %q", want, got)
		}
	}
	for _, args := range [][]string{{"x"}, {"-resamples", "3"}, {"-nothing"}} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestTheReportHasEverySetCategoryAndOrder(t *testing.T) {
	s := set{name: "some", seen: "in-sample", left: 2, points: 10, prompts: []promptRow{
		{text: "Write a function that reverses a string in Python.", category: "coding", gain: 4},
		{text: "Write a poem about the code of the sea.", category: "writing"},
		{text: "Write a poem about 7 hills.", category: "writing"},
		{text: "x^2 + 4x = 12, solve for x", category: "maths", gain: 2},
	}}
	r, err := measure([]set{s, {name: "plain", prompts: s.prompts[1:3]}}, 50, true)
	if err != nil {
		t.Fatal(err)
	}
	one := r.results[0]
	if one.shares != [3]shares{{0.75, 0.25, 0}, {0.5, 0.25, 0.25}, {0.75, 0, 0.25}} {
		t.Errorf("the tiers get %v", one.shares)
	}
	// All of the gap of 1.5 a prompt; half of it at random.
	if v := one.groups.upper; !near(v.up, 0.5) || !near(v.over.Value, 0.75) || !near(v.within.Value, 0) ||
		!near(v.recovered, 1) {
		t.Errorf("medium and large: %+v", v)
	}
	if v := one.groups.lower; !near(v.up, 0.25) || !near(v.over.Value, 1-0.375) || !near(v.recovered, 4.0/6) {
		t.Errorf("large: %+v", v)
	}
	// The lesson's only match is a poem: (0.25, 0), then straight to (1, 1).
	for i, want := range map[int]float64{3: 0.5, 4: 0.375, 5: 0.375} {
		if got := one.orders[i].apgr; !near(got.Value, want) {
			t.Errorf("%s: %v, want %v", one.orders[i].name, got.Value, want)
		}
	}
	for _, markdown := range []bool{false, true} {
		text := r.text(markdown)
		for _, want := range []string{"some (in-sample)", "plain", "graded: medium, large", "groups: large", "+0.75 of 10 [",
			"score of preset graded",
			"groups alone", "large: 0.2", "lesson, any match", "prompt length", "digit count", "random", "coding", "writing", "maths", "50 %"} {
			if !strings.Contains(text, want) {
				t.Errorf("markdown %v: the report lacks %q:\n%s", markdown, want, text)
			}
		}
		if strings.Contains(text, "|--:|") != markdown {
			t.Errorf("markdown %v:\n%s", markdown, text)
		}
	}
}

func TestScorersRankAsTheirNamesSay(t *testing.T) {
	all, err := newScorers()
	if err != nil {
		t.Fatal(err)
	}
	const both = "Calculate this and debug that program, 12 times 3" // 49 bytes
	for i, want := range []float64{3 + 5.644, 3, 49, 0, 1, 2, 3} {
		if got := all[i].score(both); got != want {
			t.Errorf("%s: %v, want %v", all[i].name, got, want)
		}
	}
}

// TestAnOrderIsComparedWithARandomOneAtEachShare: ties are taken in part.
func TestAnOrderIsComparedWithARandomOneAtEachShare(t *testing.T) {
	var all []outcome
	for i := range 10 {
		all = append(all, outcome{float64(-i), 0})
	}
	all[0].gain, all[1].gain, all[9].gain = 4, 2, 4
	tied := slices.Clone(all)
	tied[1].score, tied[2].score = -2, -2
	for name, c := range map[string]struct {
		outcomes []outcome
		want     [3]float64
	}{
		"in order": {all, [3]float64{0.4 - 0.1, 0.6 - 0.2, 0.6 - 0.3}}, "tied": {tied, [3]float64{0.4 - 0.1, 0.5 - 0.2, 0.6 - 0.3}},
	} {
		for i, got := range worthOf(c.outcomes, 40, seed).over {
			if !near(got.Value, c.want[i]) {
				t.Errorf("%s, %v: %v, want %v", name, strongShares[i], got.Value, c.want[i])
			}
		}
	}
}

// TestAShareIsThatOfLongTraffic: a set of few prompts is sent until the window is full.
func TestAShareIsThatOfLongTraffic(t *testing.T) {
	g, err := newGateway("classifier: { preset: none, share: { medium: 0.3, large: 0.2 } }\n")
	if err != nil {
		t.Fatal(err)
	}
	var prompts []promptRow
	for i := range 20 {
		prompts = append(prompts, promptRow{text: strings.Repeat("x", i+1)})
	}
	sent, err := g.route(prompts)
	if err != nil {
		t.Fatal(err)
	}
	// The shortest prompt of a share is at its threshold, which moves.
	for tier, lengths := range [][2]int{{1, 10}, {12, 16}, {18, 20}} {
		for n := lengths[0]; n <= lengths[1]; n++ {
			if got := sent[n-1].tier; got != tier {
				t.Errorf("a text of %d bytes is at tier %d, want %d", n, got, tier)
			}
		}
	}
}

// labelled reads the sets; where the data is not there, the test is skipped.
func labelled(t *testing.T) []set {
	t.Helper()
	sets, err := load("../../../shared/data")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the labelled prompts are not there")
	}
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

func TestTheDataIsRead(t *testing.T) {
	sets := labelled(t)
	for i, want := range []int{1307, 72, 72, 72, 5467, 5467} {
		if got := len(sets[i].prompts); got != want {
			t.Errorf("%s has %d prompts, want %d", sets[i].name, got, want)
		}
	}
	all, err := newScorers()
	if err != nil {
		t.Fatal(err)
	}
	// Length and digits need no rules: their areas check data and arithmetic.
	for i, want := range [][2]float64{{0.598, 0.483}, {0.548, 0.665}} {
		for j, name := range []string{"prompt length", "digit count"} {
			by := all[slices.IndexFunc(all, func(s scorer) bool { return s.name == name })]
			if got := worthOf(outcomes(sets[i].prompts, by), 40, seed).apgr.Value; math.Abs(got-want[j]) > 0.0006 {
				t.Errorf("%s: %s has the area %.4f, want %.3f", sets[i].name, by.name, got, want[j])
			}
		}
	}
}

func TestDataDocIsGeneratedFromMeasurements(t *testing.T) {
	const path, begin, end = "../../docs/tiers.md", "<!-- measured -->\n", "<!-- /measured -->\n"
	r, err := measure(append(labelled(t), ordinary()...), 2000, false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, opened := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no place for the tables", path)
	}
	want := head + begin + "\n" + r.text(true) + "\n" + end + tail
	if os.Getenv("UPDATE_DOCS") == "1" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s is not what is measured: UPDATE_DOCS=1 go test ./bench/classify -run Document writes it", path)
	}
	figures, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range r.results {
		if s := one.set; s.points > 0 && s.seen != "in-sample" && !strings.Contains(s.name, "with choices") &&
			!strings.HasSuffix(s.name, "chat") {
			for _, v := range []value{one.groups.upper, one.graded[0]} {
				if want := percent(v.up) + ", " + s.score(v.over); !strings.Contains(string(figures), want) {
					t.Errorf("docs/performance.md lacks the measured figure of %s: %s", s.name, want)
				}
			}
		}
	}
}
