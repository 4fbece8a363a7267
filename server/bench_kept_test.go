//go:build unix

package server

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkChatKept sends a chat of 1 KB that the response cache answers, beside one with an unknown model, which gets
// 404. C8: the kept answer costs at most 1.2 times as much CPU time. It fails otherwise; the CPU time includes that of
// the client.
func BenchmarkChatKept(b *testing.B) {
	text := strings.Replace(plain, "    workers:",
		"    response_cache: { exact: { any_temperature: true } }\n    workers:", 1)
	front := benchFront(b, fmt.Sprintf(text, benchWorker(b, "w0", benchAnswer, "")))
	refused, _ := benchCost(b, "404", func(b *testing.B) func() {
		return func() { benchStatus(b, benchBody("unknown", 1000), front, "HTTP/1.1 404") }
	})
	hit, _ := benchCost(b, "hit", func(b *testing.B) func() {
		return func() { benchRequests(b, 1000, front) }
	})
	if hit > refused*12/10 {
		b.Errorf("C8: %v of CPU time for a kept answer, %v for a 404", hit, refused)
	}
}
