package openai

import (
	"fmt"
	"strings"
	"testing"
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

func BenchmarkParse(b *testing.B) {
	for _, kb := range []int{1, 8, 64} {
		body := chatOf(kb << 10)
		b.Run(fmt.Sprintf("%dKB", kb), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := Parse(Chat, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSplice(b *testing.B) {
	r, err := Parse(Chat, chatOf(64<<10))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(r.Splice(Edit{Model: "qwen2.5-7b-instruct", IncludeUsage: true})) != 5 {
			b.Fatal("pieces")
		}
	}
}
