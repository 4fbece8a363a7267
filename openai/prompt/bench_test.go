package prompt

import (
	"fmt"
	"strings"
	"testing"

	"tierway/openai"
)

// chatOf returns a chat of about size bytes. Its turns have escapes and some characters beyond ASCII,
// like those of agents.
func chatOf(size int) []byte {
	var b strings.Builder
	b.WriteString(
		`{"model":"small","stream":true,"max_tokens":512,"temperature":0.2,"messages":[{"role":"system","content":"You answer in one paragraph and cite the section."}`)
	for i := 0; b.Len() < size-20; i++ {
		role := [2]string{"user", "assistant"}[i%2]
		fmt.Fprintf(&b,
			`,{"role":%q,"content":"Turn %d: the scheduler keeps one queue a pool,\nand \"fair\" means by tokens, not by requests. Gr\u00fc\u00dfe aus Köln, 東京から。 What happens when every worker of the pool is full and the head of the queue waits for a cache it has already lost?"}`, role, i)
	}
	b.WriteString(`],"user":"u-1"}`)
	return []byte(b.String())
}

// BenchmarkPromptReaders measures the cost of a request in addition to Parse: the user's text and the
// chain.
func BenchmarkPromptReaders(b *testing.B) {
	const limit = 8 << 10 // bytes at either end in which keywords are searched
	for _, kb := range []int{8, 400} {
		r, err := openai.Parse(openai.Chat, chatOf(kb<<10))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("user/%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(r.Body)))
			var text []byte
			for b.Loop() {
				text = AppendUserText(text[:0], r, limit)
			}
		})
		b.Run(fmt.Sprintf("chain/%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(r.Body)))
			var chain []Block
			for b.Loop() {
				chain, _ = AppendChain(chain[:0], r, 1)
			}
		})
	}
}
