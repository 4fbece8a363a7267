package openai

import (
	"io"
	"strings"
	"testing"
)

// endlessReader returns the same bytes repeatedly, in small reads like those of a socket.
type endlessReader struct {
	text string
	at   int
}

func (e *endlessReader) Read(p []byte) (int, error) {
	n := copy(p, e.text[e.at:])
	e.at = (e.at + n) % len(e.text)
	return n, nil
}

func BenchmarkNextAndObserve(b *testing.B) {
	chunk :=
		unnamedEvents(
			`{"id":"chatcmpl-8a1c0f2e5d3b4f6a9c7e","object":"chat.completion.chunk","created":1763690000,"model":"Qwen/Qwen3-32B","choices":[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}`)
	r := NewEventReader(&endlessReader{text: chunk}, 0)
	t := NewTracker(Chat)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		ev, err := r.Next()
		if err != nil || t.Observe(ev) != MarkContent {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadAnswer(b *testing.B) {
	text := strings.Repeat(`words and \"quotes\" and\nlines `, 20)
	chat :=
		[]byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
			text +
			`","tool_calls":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`)
	for name, bb := range map[string]struct {
		d    Dialect
		body []byte
	}{"chat 1KB": {Chat, chat}, "embeddings 1MB": {Embeddings, embeddings(1 << 20)}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				if a := ReadAnswer(bb.d, bb.body); !a.HasUsage {
					b.Fatal(io.ErrUnexpectedEOF)
				}
			}
		})
	}
}
