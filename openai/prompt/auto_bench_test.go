package prompt

import (
	"fmt"
	"strings"
	"testing"

	"tierway/openai"
	"tierway/openai/tokens"
	"tierway/tiers"
)

// BenchmarkAuto measures the classification of a parsed request with three tiers and the default
// thresholds of config.yaml and of the demo. counts/op is the number of exact token counts. The
// prompts are English prose of the given size in bytes, without keywords.
func BenchmarkAuto(b *testing.B) {
	c, err := tiers.NewClassifier(tiers.Rules{}, []string{"small", "medium", "large"}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{tokens.Cl100kBase, tokens.O200kBase} {
		v, err := tokens.Load(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, size := range []int{400, 8 << 10, 16 << 10, 48 << 10, 60 << 10} {
			const prose = "The scheduler keeps one queue for each pool, and fair is what is fair by tokens. "
			words := strings.Repeat(prose, size/len(prose)+1)[:size]
			r := mustParse(b, openai.Chat, `{"model":"auto","messages":[{"role":"user","content":"`+words+`"}]}`)
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				counts := 0
				var text []byte
				f := tiers.ClassifierInput{PromptTokens: r.PromptTokens()}
				f.Count = func() (int64, bool) { counts++; return CountTokens(r, v) }
				f.User = func() []byte { text = AppendUserText(text[:0], r, tiers.TextLimit); return text }
				for b.Loop() {
					c.Classify(&f)
				}
				b.ReportMetric(float64(counts)/float64(b.N), "counts/op")
			})
		}
	}
}
