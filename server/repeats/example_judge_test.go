package repeats

import (
	"errors"
	"os"
	"testing"

	"tierway/config"
	"tierway/pairing"
)

// TestExampleJudgeGradesOnlyWhatItCanCheck: calculations and JSON. Other requests get no verdict.
func TestExampleJudgeGradesOnlyWhatItCanCheck(t *testing.T) {
	const path = "../../examples/judges/check.py"
	if _, err := os.ReadFile(path); err != nil { // so that the cache of tests knows the file
		t.Fatal(err)
	}
	asks := func(text string) string { return `{"messages":[{"role":"user","content":"` + text + `"}]}` }
	for name, c := range map[string]struct {
		request, small, large string
		want                  pairing.Verdict
		none                  bool
	}{
		"a product":         {asks("What is 17 * 23?"), "17 * 23 = 391", "It is 381.", pairing.Verdict{true, false}, false},
		"thousands":         {asks("1000 x 3 = ?"), "3,000", "The answer is 3000.", pairing.Verdict{true, true}, false},
		"a fraction":        {asks("Compute (0.1 + 0.2) ÷ 2"), "0.15", "0.150000001", pairing.Verdict{true, false}, false},
		"no number":         {asks("2 + 2?"), "four", "", pairing.Verdict{}, false},
		"parts":             {`{"messages":[{"role":"user","content":[{"type":"text","text":"2 + 3"}]},{"role":"assistant","content":"5"},{"role":"user","content":[{"type":"text","text":"And 6 + 1?"}]}]}`, "5", "7", pairing.Verdict{false, true}, false},
		"completions":       {`{"prompt":"7 - 9 ="}`, "-2", "2", pairing.Verdict{true, false}, false},
		"responses":         {`{"input":"2 + 2"}`, "4", "5", pairing.Verdict{true, false}, false},
		"JSON":              {`{"response_format":{"type":"json_object"},"prompt":"x"}`, `{"a": [1]}`, "```json\n{}\n```", pairing.Verdict{true, false}, false},
		"JSON of responses": {`{"text":{"format":{"type":"json_schema"}},"input":"x"}`, `{`, `[]`, pairing.Verdict{false, true}, false},
		"an essay":          {asks("Write about the sea."), "x", "y", pairing.Verdict{}, true},
		"a date":            {asks("What happened on 2026-11-30?"), "1", "2", pairing.Verdict{}, true},
		"two calculations":  {asks("1 + 1 and 2 + 2"), "1", "2", pairing.Verdict{}, true},
		"a division by 0":   {asks("1 / 0"), "0", "0", pairing.Verdict{}, true},
		"a power":           {asks("9 ** 999999999"), "0", "0", pairing.Verdict{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := pair{sample: &pairing.Sample{Body: []byte(c.request), Tiers: [2]string{"small", "large"}},
				answers: [2]string{c.small, c.large}}
			v, err := p.judge(t.Context(), &config.Replay{Timeout: defaultTimeout,
				Judge: config.Judge{Command: []string{"python3", path}}})
			if c.none && (err == nil || !errors.Is(err, errNotJudged)) || !c.none && err != nil ||
				v != c.want {
				t.Errorf("%v %v", v, err)
			}
		})
	}
}
