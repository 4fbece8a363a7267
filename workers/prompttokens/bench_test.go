package prompttokens

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"tierway/openai"
)

// BenchmarkLookup measures the look-up of a prompt of 16,000 tokens, or 1,000 blocks. All of it is known, or
// all but the last message.
func BenchmarkLookup(b *testing.B) {
	w := &templateEngine{render: marked, tokens: words}
	for _, turns := range []int{1, 50} {
		s := New(Config{Worker: func() Poster { return w }, LookupTimeout: 1 << 40})
		messages := []object{say("system", long(0, 20))}
		for i := range turns {
			messages = append(messages, say("user", long(i, 3000/turns)), say("assistant", "yes"))
		}
		known := query(b, openai.Chat, object{"model": "m", "messages": messages[:len(messages)-1]})
		lookup(b, s, known)
		longer := query(b, openai.Chat, object{"model": "m", "messages": append(messages, say("user", long(99, 20)))})
		keys := make([]uint64, 0, 2000)
		b.Run(fmt.Sprintf("whole/%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			var p Prompt
			for b.Loop() {
				p = s.Lookup(b.Context(), known, keys)
			}
			b.ReportMetric(float64(p.Tokens), "tokens")
			b.ReportMetric(float64(len(p.Keys)), "keys")
		})
		b.Run(fmt.Sprintf("beginning/%d", turns), func(b *testing.B) {
			b.ReportAllocs()
			var p Prompt
			for b.Loop() {
				p = remembered(s, longer)
			}
			b.ReportMetric(float64(len(p.Keys)), "keys")
		})
	}
}

// BenchmarkLookupIDs measures a prompt of 16,000 token ids in the request.
func BenchmarkLookupIDs(b *testing.B) {
	ids := make([]int, 16000)
	for i := range ids {
		ids[i] = 1000 + i
	}
	s := New(Config{})
	q := query(b, openai.Completions, object{"model": "m", "prompt": ids})
	keys := make([]uint64, 0, 2000)
	b.ReportAllocs()
	for b.Loop() {
		s.Lookup(context.Background(), q, keys)
	}
}

// BenchmarkReadTokens measures the answer for 16,000 tokens.
func BenchmarkReadTokens(b *testing.B) {
	ids := make([]int, 16000)
	for i := range ids {
		ids[i] = 7 * i
	}
	answer, err := json.Marshal(object{"count": len(ids), "max_model_len": 1, "tokens": ids, "token_strs": nil})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(answer)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := readTokens(answer); err != nil {
			b.Fatal(err)
		}
	}
}
