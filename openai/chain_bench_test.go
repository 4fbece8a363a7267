package openai

import (
	"fmt"
	"testing"
)

// BenchmarkPromptAgain is what a request costs beside Parse: its user's text
// and its chain.
func BenchmarkPromptAgain(b *testing.B) {
	const most = 8 << 10 // what keywords are looked for in
	for _, kb := range []int{8, 400} {
		r, err := Parse(Chat, chatOf(kb<<10), Limits{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("user/%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(r.Body)))
			var text []byte
			for b.Loop() {
				text = r.AppendUserText(text[:0], most)
			}
		})
		b.Run(fmt.Sprintf("chain/%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(r.Body)))
			var chain []ChainBlock
			for b.Loop() {
				chain, _ = r.AppendChain(chain[:0], 1)
			}
		})
	}
}
